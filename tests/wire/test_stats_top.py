"""`gripproxy top` shows the same of both proxies: what the case made."""

from __future__ import annotations

import re

from tests.support.terminal import Terminal, top
from tests.wire.wirekit import Setup, Site, on_pushpin, response
from tests.wire.wirekit.events import GRIP, opened, over_http, subscribe
from tests.wire.wirekit.holding import stream
from tests.wire.wirekit.stats import BEGIN

SETUP = Setup(
    routes=BEGIN + "* {backend}\nnamed,id=named {backend}\nws,id=sockets {backend},over_http\n",
    config={"handler.stats_report_interval": 1, "proxy.stats_report_interval": 1},
)
JSON = Setup(routes=SETUP.routes, config={**SETUP.config, "handler.stats_format": "json"})


def watched(site: Site, terminal: Terminal) -> None:
    """Wait until events arrive: from then on all are seen."""
    while not re.search(r"requests +[1-9]|new +[1-9]", "\n".join(terminal.screen)):
        assert site.get("/", "Host: begin.stats").status == 200
        terminal.read(0.2)
    # And until they are over.
    terminal.shows(r"connections +0 ", r"requests +0 ")


def look(site: Site, case: str) -> None:
    hold = response("200 OK", "Grip-Hold: stream", f"Grip-Channel: {case}", body="[]")
    site.backend.on(f"/{case}", [hold] * 3)
    spec = f"--spec=tcp://127.0.0.1:{site.proxy.ports['stats']}"
    with top(spec, "--filter", case, columns=120, lines=40) as terminal:
        watched(site, terminal)
        with (
            stream(site, f"/{case}", opening=b"[]"),
            stream(site, f"/{case}", "Host: named", opening=b"[]"),
            stream(site, f"/{case}", "Host: named", opening=b"[]"),
            over_http(site, f"/{case}-ws", opened(subscribe(case), headers=(GRIP,)), headers=("Host: ws",)),
        ):
            terminal.shows(r"connections +4 http 3  ws 1", r"subscribers +4 stream 3  ws 1", "response 0  channels 1")
            formats = {"http-stream": {"content": "news"}, "ws-message": {"content": "news"}}
            for number in range(10):
                site.publisher.publish({"channel": case, "id": f"{case} {number}", "formats": formats})
            terminal.shows(
                rf"^ {case} +· +3 +1 .* 40 ", r"^ named +2 +0 ", r"^ sockets +0 +1 ", r"^ \(without id\) +1 "
            )
            # From the reports.
            terminal.shows(r"peak [1-9]")
            terminal.type("3")
            terminal.shows(r"^ \w+-handler_\d+ +4 +2 ")
            terminal.type("4")
            if on_pushpin():
                terminal.shows("nothing written, nothing dropped")
            else:
                terminal.shows(r"^ written +40 ")
        terminal.type("1")
        terminal.shows(r"connections +0 http 0  ws 0", r"subscribers +0 ", rf"^ {case} +· +· +· .* 40 ")
        assert "malformed" not in "\n".join(terminal.screen)


def test_a_site(site: Site, case: str) -> None:
    look(site, case)


def test_a_site_that_speaks_json(start: object, case: str) -> None:
    assert callable(start)
    look(start(JSON), case)
