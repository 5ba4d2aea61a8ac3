"""Automatic CORS (docs/grip.md §2.8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire.wirekit import Setup, Site, covers, hold, response
from tests.wire.wirekit.holding import long_poll

SETUP = Setup(routes="* {backend}\naco.test,aco {backend}\ndown.test,aco {dead}\n")
EVERYWHERE = Setup(config={"proxy.auto_cross_origin": True})
CORS = {
    "Access-Control-Allow-Methods": "OPTIONS, HEAD, GET, POST, PUT, DELETE",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Max-Age": "3600",
}


def added(lines: list[str]) -> dict[str, str]:
    """Return the Access-Control headers among header lines."""
    pairs = [line.partition(": ")[::2] for line in lines]
    return {name: value for name, value in pairs if name.startswith("Access-Control-")}


@covers("2.8 allow", "2.8 expose", "1.3 aco")
def test_defaults(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", "Content-Type: a/b", body="x"))
    answer = site.get(f"/{case}", "Host: aco.test")
    assert added(answer.lines) == CORS
    # Without aco nothing is added.
    assert added(site.get(f"/{case}").lines) == {}


@covers("2.8 allow", "2.8 options")
def test_values_of_the_request(site: Site, case: str) -> None:
    answer = site.ask(
        "OPTIONS",
        f"/{case}",
        "Host: aco.test",
        "Origin: http://here.test",
        "Access-Control-Request-Method: PATCH",
        "Access-Control-Request-Headers: X-One, X-Two",
    )
    assert added(answer.lines) == CORS | {
        "Access-Control-Allow-Methods": "PATCH",
        "Access-Control-Allow-Headers": "X-One, X-Two",
        "Access-Control-Allow-Origin": "http://here.test",
    }
    assert site.backend.request(f"/{case}").method == "OPTIONS"


@covers("2.8 expose")
def test_exposed_headers(site: Site, case: str) -> None:
    plain = ["Cache-Control", "Content-Language", "Content-Type", "Expires", "Last-Modified", "Pragma"]
    site.backend.on(f"/{case}", response("200 OK", *[f"{name}: 1" for name in plain], "X-A: 1", "ETag: 2", body="x"))
    answer = site.get(f"/{case}", "Host: aco.test")
    assert answer["Access-Control-Expose-Headers"] == "X-A, ETag"


@covers("2.8 present kept")
def test_headers_of_the_backend_win(site: Site, case: str) -> None:
    own = {"Access-Control-Allow-Origin": "http://only.test", "Access-Control-Max-Age": "1"}
    site.backend.on(f"/{case}", response("200 OK", *[f"{name}: {value}" for name, value in own.items()], body="x"))
    answer = site.get(f"/{case}", "Host: aco.test", "Origin: http://here.test")
    assert added(answer.lines) == CORS | own
    assert len(answer.all("Access-Control-Allow-Origin")) == 1


@covers("2.8 holds", "15 20 cors", "15 9 inherits")
def test_published_response_and_stream_start(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("response", case))
    with long_poll(site, f"/{case}", case, "Host: aco.test") as client:
        site.publisher.publish({"channel": case, "http-response": {"headers": {"X-A": "1"}, "body": "x"}})
        answer = client.response()
        assert added(answer.lines) == CORS | {"Access-Control-Expose-Headers": "X-A"}
    site.backend.on(f"/{case}s", hold("stream", f"{case}s"))
    with site.connect() as client:
        client.request("GET", f"/{case}s", "Host: aco.test")
        assert added(client.head().lines) == CORS


@covers("2.8 errors", "15 20 cors")
def test_errors(site: Site) -> None:
    answer = site.get("/", "Host: down.test")
    assert answer.status == 502
    assert added(answer.lines) == CORS


@covers("1.8 auto_cross_origin")
@pytest.mark.parametrize("uri", ["/a", "/b"])
def test_on_every_route(start: Callable[[Setup], Site], uri: str) -> None:
    assert added(start(EVERYWHERE).get(uri).lines) == CORS
