"""A target on a Unix socket, and one that may be away: what Pushpin makes of such a line (docs/routes.md).

Everything else about them is in tests/e2e/test_targets.
"""

from __future__ import annotations

from tests.wire.wirekit import Setup, Site, covers, expect

SETUP = Setup(routes="unix.test {unix}\naway.test {dead},away=503,away_wait=0\n* {backend}\n")


@covers("1.4 unix")
def test_unix_socket(site: Site, case: str) -> None:
    assert site.get(f"/{case}", "Host: unix.test").body == expect(
        pushpin=b"backend\n",
        ours=b"unix\n",
        pushpin_does="Finds no valid port in a target `unix:path`, and leaves the line out.",
        ours_does="Connects to the Unix socket of a target `unix:path`.",
        because="A backend on the same machine needs no port.",
    )


@covers("1.4 away")
def test_away(site: Site, case: str) -> None:
    answer = site.get(f"/{case}", "Host: away.test")
    assert (answer.status, answer["Retry-After"]) == expect(
        pushpin=(502, None),
        ours=(503, "3"),
        pushpin_does="Does not know the target property `away`: a backend that refuses connections is a 502.",
        ours_does="Tries a backend with `away=503` again for some seconds, then answers 503 with `Retry-After`.",
        because="A restart of the backend is a pause for its clients, and not an error.",
    )
