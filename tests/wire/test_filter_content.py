"""Filters that change the content, and what happens when they cannot (docs/grip.md §7)."""

from __future__ import annotations

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold, response
from tests.wire.wirekit.holding import long_poll, stream

SETUP = Setup(routes="* {backend}\n*,path_beg=/debug,debug {backend}\n")


@covers("7 var-subst")
def test_var_subst(site: Site, case: str) -> None:
    meta = 'Grip-Set-Meta: name=Al, q="a,b", empty='
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=var-subst, {case}-free", meta))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "%(name)s q=%(q)s [%(empty)s] 100%% %%(name)s\n")
        assert client.data_until(b"\n") == b"Al q=a,b [] 100% %(name)s\n"
        site.publisher.stream(f"{case}-free", "%(name)s %%\n")
        assert client.data_until(b"\n") == b"%(name)s %%\n"


@covers("7 var-subst", "7 after patch")
def test_var_subst_of_a_long_poll_sees_the_patched_body(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}",
        hold("response", f"{case}; filter=var-subst", "Grip-Set-Meta: name=Al", body='{"held":"%(name)s"}\n'),
    )
    with long_poll(site, f"/{case}", case) as client:
        patch = [{"op": "add", "path": "/new", "value": "%(name)s!"}]
        site.publisher.publish({"channel": case, "http-response": {"body-patch": patch}})
        answer = client.response()
        assert answer["content-length"] == str(len(answer.body))
        assert answer.body == b'{"held":"Al","new":"Al!"}\n'


@covers("7 build-id")
def test_build_id(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}",
        hold("stream", f"{case}; filter=build-id", "Grip-Set-Meta: id_format=v%%", body="open %(a b)I 100%% end\n"),
    )
    with stream(site, f"/{case}", opening=b"open a b 100% end\n") as client:
        site.publisher.stream(case, "id: %I, %(x)I %%\n")
        assert client.data_until(b"\n") == b"id: v%, x %\n"


@covers("7 build-id hex")
def test_build_id_hex(site: Site, case: str) -> None:
    meta = "Grip-Set-Meta: id_format=v, id_encoding=hex"
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=build-id", meta, body="open %(v-x)I\n"))
    with stream(site, f"/{case}", opening=b"open 762d78\n") as client:
        site.publisher.stream(case, "%I %(v-9)I\n")
        assert client.data_until(b"\n") == b"76 762d39\n"


@covers("7 build-id")
def test_build_id_of_a_response_that_is_not_held(site: Site, case: str) -> None:
    site.backend.on(
        f"/{case}",
        response(
            "200 OK", f"Grip-Channel: {case}; filter=build-id", "Grip-Set-Meta: id_format=v", body="plain %(x)I\n"
        ),
    )
    assert site.get(f"/{case}").body == b"plain x\n"


WRONG = [
    ("var-subst", "a=1", "%(nope)s", "No such variable 'nope' at position 7"),
    ("var-subst", "a=1", "%(nope", "Unterminated field starting at position 1"),
    ("var-subst", "a=1", "%x", "Unknown directive 'x' at position 1"),
    ("var-subst", "a=1", "x%", "Expected directive after '%' at position 1"),
    ("var-subst", "a=1", "%(a)d", "Unknown directive 'd' at position 4"),
    ("build-id", "id_format=x", "%(x", "Unterminated field starting at position 1"),
    ("build-id", "id_format=x", "%z", "Unknown directive 'z' at position 1"),
    ("build-id", "id_format=x", "%(x)z", "Unknown directive 'z' at position 4"),
    ("build-id", "id_format=%(no)s", "%I", "failed to render ID: No such variable 'no' at position 5"),
]


@covers("7 directive errors", "7 error effect", "2.7 stream")
@pytest.mark.parametrize(("name", "meta", "content", "text"), WRONG, ids=[f"{w[0]} {w[2]}" for w in WRONG])
def test_directive_errors_end_a_stream_in_debug(
    site: Site, case: str, name: str, meta: str, content: str, text: str
) -> None:
    site.backend.on(f"/debug/{case}", hold("stream", f"{case}; filter={name}", f"Grip-Set-Meta: {meta}"))
    with stream(site, f"/debug/{case}") as client:
        site.publisher.stream(case, content)
        assert client.rest().decode() == f"\n\nfilter error: {name}: {text}\n"


def errors_end_the_hold() -> bool:
    """Tell what an item that cannot be filtered does outside debug mode."""
    return expect(
        pushpin=True,
        ours=False,
        pushpin_does="Outside debug mode, ends the stream of a client for which an item cannot be filtered, and "
        "answers a long-poll with an error.",
        ours_does="Outside debug mode, skips an item that cannot be filtered for a client, which stays held.",
        because="Pushpin 1.41 skips such items.",
    )


@covers("7 error effect")
def test_without_debug_the_item_is_skipped(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=var-subst", "Grip-Set-Meta: a=1"))
    with stream(site, f"/{case}") as client:
        site.publisher.stream(case, "%(nope)s")
        site.publisher.stream(case, "%(a)s\n")
        site.publisher.end(case)
        assert client.rest() == (b"" if errors_end_the_hold() else b"1\n")


@covers("7 error effect")
def test_an_error_in_a_long_poll(site: Site, case: str) -> None:
    for path, channel in ((f"/{case}", case), (f"/debug/{case}", f"{case}-debug")):
        site.backend.on(path, hold("response", f"{channel}; filter=var-subst", "Grip-Set-Meta: a=1"))
    with long_poll(site, f"/{case}", case) as client:
        site.publisher.answer(case, "%(nope)s")
        site.publisher.answer(case, "fine\n")
        wanted = b"Error while proxying to origin.\n" if errors_end_the_hold() else b"fine\n"
        assert client.response().body == wanted
    with long_poll(site, f"/debug/{case}", f"{case}-debug") as client:
        site.publisher.answer(f"{case}-debug", "%(nope)s")
        answer = client.response()
        assert answer.line == "502 Bad Gateway"
        assert answer.body == b"filter error: var-subst: No such variable 'nope' at position 7\n"


@covers("7 build-id", "7 directive errors")
@pytest.mark.parametrize(
    ("meta", "body", "text"),
    [
        ("id_format=v", "%(zz", "Unterminated field starting at position 1"),
        ("a=1", "open", "no sub meta 'id_format'"),
        ("id_format=v, id_encoding=rot13", "open", "unsupported encoding: rot13"),
    ],
)
def test_an_initial_body_that_cannot_be_filtered(site: Site, case: str, meta: str, body: str, text: str) -> None:
    site.backend.on(f"/debug/{case}", hold("stream", f"{case}; filter=build-id", f"Grip-Set-Meta: {meta}", body=body))
    with site.connect() as client:
        client.request("GET", f"/debug/{case}")
        line = expect(
            pushpin="200 OK",
            ours="502 Bad Gateway",
            pushpin_does="Answers 200 and appends the filter error to the body when the initial body of a stream "
            "cannot be filtered.",
            ours_does="Answers 502 with the filter error when the initial body of a stream cannot be filtered.",
            because="The status has not been sent yet, so it can report the error.",
        )
        assert client.head().line == line
        assert f"filter error: build-id: {text}\n" in client.rest().decode()


MATCHES = [
    ("skip-self", [], True),
    ("skip-self", ["var-subst"], False),
    ("var-subst", [], False),
    ("var-subst", ["var-subst"], True),
    ("var-subst; filter=build-id", ["build-id", "var-subst"], False),
    ("var-subst; filter=skip-self; filter=build-id", ["var-subst", "build-id"], True),
]


@covers("7 content-filters", "5.4 4 per connection")
@pytest.mark.parametrize(("filters", "prepared", "same"), MATCHES, ids=[f"{f} for {p}" for f, p, _ in MATCHES])
def test_content_filters(site: Site, case: str, filters: str, prepared: list[str], same: bool) -> None:
    for path in (f"/{case}", f"/debug/{case}"):
        site.backend.on(path, hold("stream", f"{case}; filter={filters}", "Grip-Set-Meta: id_format=x"))
    with stream(site, f"/{case}") as plain, stream(site, f"/debug/{case}") as debug:
        form = {"content": "for these filters\n", "content-filters": prepared}
        site.publisher.publish({"channel": case, "formats": {"http-stream": form}})
        if same:
            assert plain.chunk() == debug.chunk() == b"for these filters\n"
            return
        has = ",".join(name for name in filters.split("; filter=") if name != "skip-self")
        text = f"\n\ncontent filter mismatch: subscription={has} message={','.join(prepared)}\n"
        assert debug.rest().decode() == text
        site.publisher.stream(case, "for any\n")
        site.publisher.end(case)
        assert plain.rest() == (b"" if errors_end_the_hold() else b"for any\n")
