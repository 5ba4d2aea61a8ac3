"""How a routes file is read (docs/grip.md §1.1, §1.2): what a line may look like, and what happens to a bad one."""

from __future__ import annotations

import re

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect

SETUP = Setup(
    routes="""
# a comment line
spaces.test,header=X-Line:spaces      {backend}
comment.test,header=X-Line:comment {backend} # the rest is a comment {dead}
quoted.test,header="X-Line:a b, \\"c\\" \\\\ #d" {backend}
,id=hostless,header=X-Line:hostless {backend}
id=property-first,header=X-Line:property-first {backend}
tab.test	{backend}
unterminated.test,header="X-Line:x {backend}
escape.test,header="X-\\n:x" {backend}
empty-property.test,, {backend}
empty-name.test,=x {backend}
lonely.test
no-port.test 127.0.0.1
port-0.test 127.0.0.1:0
port-65536.test 127.0.0.1:65536
empty-path.test,path_beg= {backend}
log-level.test,log_level=1,header=X-Line:log-level {backend}
test.test,header=X-Line:last {backend}
""",
    config={"proxy.accept_pushpin_route": True},
)


def line_of(site: Site, case: str, *headers: str) -> str | None:
    """Return the X-Line header that the route of the request adds."""
    assert site.get(f"/{case}", *headers).status == 200
    return site.backend.request(f"/{case}")["X-Line"]


@covers("1.1 sections")
def test_sections_are_separated_by_several_spaces(site: Site, case: str) -> None:
    assert line_of(site, case, "Host: spaces.test") == "spaces"


@covers("1.1 comment")
def test_comment_ends_the_line(site: Site, case: str) -> None:
    assert line_of(site, case, "Host: comment.test") == "comment"


@covers("1.1 quotes")
def test_quoted_piece_keeps_commas_blanks_and_hashes(site: Site, case: str) -> None:
    assert line_of(site, case, "Host: quoted.test") == 'a b, "c" \\ #d'


@covers("1.2 empty host")
def test_line_without_host_is_used_by_id(site: Site, case: str) -> None:
    assert line_of(site, case, "Host: nowhere.test", "Pushpin-Route: hostless") == "hostless"


@covers("1.1 first piece property")
def test_first_piece_with_equals_sign_is_a_property(site: Site, case: str) -> None:
    assert line_of(site, case, "Host: nowhere.test", "Pushpin-Route: property-first") == "property-first"


@covers("1.1 bad line", "1.3 log_level")
def test_lines_after_bad_ones_still_load(site: Site, case: str) -> None:
    assert line_of(site, case + "a", "Host: test.test") == "last"
    assert line_of(site, case + "b", "Host: log-level.test") == "log-level"


@covers("1.1 quote errors", "1.1 no target", "1.4 port range", "1.3 path_beg")
@pytest.mark.parametrize(
    "host",
    ["unterminated", "escape", "empty-property", "empty-name", "lonely", "no-port", "port-0", "port-65536", "tab"],
)
def test_bad_line_is_logged_and_skipped(site: Site, host: str) -> None:
    lines = site.proxy.fill(SETUP.routes).split("\n")
    number = next(i for i, line in enumerate(lines, 1) if line.startswith(f"{host}.test"))
    reason = expect(
        pushpin=r".*",
        ours=r"\S+",
        pushpin_does="Logs some skipped lines of a routes file without a reason.",
        ours_does="Logs every skipped line of a routes file with its number and the reason, unterminated quotes "
        "included.",
        because="The author of the file learns what to correct.",
    )
    assert re.search(rf"routes:{number}: {reason}", site.proxy.log)
    answer = site.get("/", f"Host: {host}.test")
    assert answer.line == "502 Bad Gateway"
    assert answer.body == f"No route for host: {host}.test\n".encode()


@covers("1.3 path_beg")
def test_empty_path_beg_is_refused(site: Site) -> None:
    answer = site.get("/", "Host: empty-path.test")
    assert answer.status == 502
    assert "path_beg" in site.proxy.log
