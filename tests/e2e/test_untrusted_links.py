"""What links of an untrusted target may reach: nothing that ``policy_deny`` names, however it is written.

Three addresses: ``second`` on 127.0.0.1 is what no untrusted target may lead to; the untrusted target itself is at an
address that ``policy_allow`` names; the trusted target of ``/failed`` does not answer connects, so the untrusted one
behind it answers.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

import pytest

from tests.support.ports import free_ports
from tests.wire.wirekit import Backend, Setup, Site, hold, response
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.events import GRIP, control, event, opened, subscribe
from tests.wire.wirekit.holding import long_poll, stream
from tests.wire.wirekit.websocket import websocket

ALLOWED: Final = "127.0.0.9"

SPELLINGS: Final = (
    "127.0.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "127.0.1",
    "0.0.0.0",
    "0",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    socket.gethostname(),
)
"""Ways to write an address at which ``second`` accepts, or one that is refused for what it is. Which of the names lead
where depends on the machine; none leads to an address that is allowed."""

ANSWERED: Final = ("127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0.0.0.0", "[::ffff:127.0.0.1]",
                   "[::ffff:7f00:1]", "localhost")  # fmt: skip
"""Those that lead there on every machine, for the trusted target, whose links go on working."""


@pytest.fixture(scope="module")
def untrusted() -> Iterator[Backend]:
    backend = Backend("untrusted", host=ALLOWED)
    yield backend
    backend.stop()
    assert not backend.problems


@pytest.fixture(scope="module")
def site(untrusted: Backend) -> Iterator[Site]:
    lines = (
        f"*,path_beg=/failed {{dead}},over_http {untrusted.address},untrusted,over_http",
        f"*,path_beg=/only {untrusted.address},untrusted,over_http",
        f"*,path_beg=/trusted {{backend}},over_http {untrusted.address},untrusted,over_http",
        "* {second}",
    )
    config = {"proxy.policy_allow": ALLOWED, "proxy.workers": 1, "runner.log_level": 2}
    site = Site(Setup(routes="\n".join(lines) + "\n", config=config))
    yield site
    assert not site.stop()


Act = Callable[[Site, Backend, str, str, str], AbstractContextManager[None]]
"""Has a link asked for. Arguments: the site, the target that answers, the beginning of the path, a name that nothing
else has, the link."""


@contextlib.contextmanager
def page(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """A response without a hold, whose next page is elsewhere."""
    target.on(f"{begin}/{case}", response("200 OK", f"Grip-Link: <{link}>; rel=next", body="one "))
    with site.connect() as client:
        client.request("GET", f"{begin}/{case}")
        assert client.head().status == 200
        assert client.data(4) == b"one "
        yield


@contextlib.contextmanager
def next_link(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """A stream that has missed something, and asks its next link."""
    target.on(f"{begin}/{case}", hold("stream", f"{case}; prev-id=1", f"Grip-Link: <{link}>; rel=next"))
    with stream(site, f"{begin}/{case}"):
        site.publisher.stream(case, "three", id="3", prev_id="2")
        yield


@contextlib.contextmanager
def quiet_link(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """A stream whose next link is asked because nothing came."""
    target.on(f"{begin}/{case}", hold("stream", f"{case}; prev-id=1", f"Grip-Link: <{link}>; rel=next; timeout=0"))
    with stream(site, f"{begin}/{case}"):
        yield


@contextlib.contextmanager
def second_link(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """A link that the answer of a link on the session's own host names."""
    own = f"Grip-Link: <{begin}/{case}-own>; rel=next; timeout=0"
    target.on(f"{begin}/{case}", hold("stream", f"{case}; prev-id=1", own))
    target.on(f"{begin}/{case}-own", response("200 OK", f"Grip-Link: <{link}>; rel=next"))
    with stream(site, f"{begin}/{case}"):
        yield


@contextlib.contextmanager
def gone(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """The backend is told that a client has gone."""
    target.on(f"{begin}/{case}", hold("stream", case, f"Grip-Link: <{link}>; rel=gone"))
    with stream(site, f"{begin}/{case}"):
        pass
    yield


@contextlib.contextmanager
def retried(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """The same for a long-poll whose request was repeated: the link is of the second answer."""
    again = hold("response", case, f"Grip-Link: <{link}>; rel=gone")
    target.on(f"{begin}/{case}", [hold("response", case), again])
    with long_poll(site, f"{begin}/{case}", case):
        site.publisher.publish({"channel": case, "http-response": {"action": "hint"}})
        deadline = time.monotonic() + PATIENCE
        while site.proxy.log.count(f" path={begin}/{case} ") < 2:
            assert time.monotonic() < deadline, "not held again"
            time.sleep(0.01)
    yield


def filtered(name: str) -> Act:
    """A stream's filter asks the URL of the meta that the target has set."""

    @contextlib.contextmanager
    def act(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
        target.on(f"{begin}/{case}", hold("stream", f"{case}; filter={name}", f'Grip-Set-Meta: url="{link}"'))
        with stream(site, f"{begin}/{case}"):
            site.publisher.stream(case, "item")
            yield

    act.__name__ = name
    return act


@contextlib.contextmanager
def filtered_poll(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """The same of a long-poll."""
    target.on(f"{begin}/{case}", hold("response", f"{case}; filter=http-modify", f'Grip-Set-Meta: url="{link}"'))
    with long_poll(site, f"{begin}/{case}", case):
        site.publisher.answer(case, "item")
        yield


@contextlib.contextmanager
def filtered_socket(site: Site, target: Backend, begin: str, case: str, link: str) -> Iterator[None]:
    """The same of a WebSocket over HTTP, whose meta comes in a control message."""
    first = opened(
        event("TEXT", control("set-meta", name="url", value=link)),
        subscribe(case, filters=["http-check"]),
        headers=(GRIP,),
    )
    target.on(f"{begin}/{case}", first)
    with site.publisher.feed() as feed, websocket(site, f"{begin}/{case}"):
        feed.wait_for(b"\x01" + case.encode())
        site.publisher.publish({"channel": case, "formats": {"ws-message": {"content": "item"}}})
        yield


ACTS: Final[tuple[Act, ...]] = (
    page,
    next_link,
    quiet_link,
    second_link,
    gone,
    retried,
    filtered("http-check"),
    filtered("http-modify"),
    filtered_poll,
    filtered_socket,
)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("begin", ["/failed", "/only"])
def test_an_untrusted_target_leads_nowhere_it_may_not(site: Site, untrusted: Backend, act: Act, begin: str) -> None:
    """The first target of ``/failed`` is trusted; what counts is which one answered."""
    cases = [f"{act.__name__}-{begin[1:]}-{number}".replace("_", "-") for number in range(len(SPELLINGS))]
    links = [
        f"http://{spelling}:{site.second.port}/secret-{case}" for spelling, case in zip(SPELLINGS, cases, strict=True)
    ]
    with contextlib.ExitStack() as stack:
        # All at once: a link that cannot be had is asked for again later and later.
        for case, link in zip(cases, links, strict=True):
            stack.enter_context(act(site, untrusted, begin, case, link))
        for link in links:
            site.proxy.wait_log(rf'request="(GET|POST) {re.escape(link)}"')
    assert [link for case, link in zip(cases, links, strict=True) if site.second.count(f"/secret-{case}")] == []


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_an_untrusted_target_leads_where_it_may_without_a_signature(site: Site, untrusted: Backend, act: Act) -> None:
    case = f"{act.__name__}-open".replace("_", "-")
    for place, link in (("foreign", f"http://{untrusted.address}/{case}-to"), ("own", f"/failed/{case}-to")):
        path = f"/{link.partition('//')[2].partition('/')[2]}" if place == "foreign" else link
        with act(site, untrusted, "/failed", f"{case}-{place}", link):
            request = untrusted.request(path)
        assert request["grip-sig"] is None, place
        assert request["grip-feature"] is not None, place
        # What a client itself asks for is signed as ever.
        assert untrusted.request(f"/failed/{case}-{place}")["grip-sig"] is not None


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_the_trusted_target_of_the_same_route_leads_everywhere(site: Site, act: Act) -> None:
    for number, spelling in enumerate(ANSWERED):
        case = f"{act.__name__}-trusted-{number}".replace("_", "-")
        link = f"http://{spelling}:{site.second.port}/open-{case}"
        with act(site, site.backend, "/trusted", case, link):
            assert site.second.request(f"/open-{case}")["grip-sig"] is not None, link


def test_equal_links_of_both_targets_are_not_one(untrusted: Backend) -> None:
    """Two clients of one route, the same answers, and the same links: only that of the trusted target is asked."""
    (port,) = free_ports(1)
    routes = f"*,path_beg=/mixed 127.0.0.1:{port} {untrusted.address},untrusted\n* {{second}}\n"
    config = {"proxy.policy_allow": ALLOWED, "proxy.workers": 1}
    with Site(Setup(routes=routes, config=config)) as site, contextlib.ExitStack() as stack:
        trusted = Backend("trusted", port=port)
        stack.callback(trusted.stop)
        host = f"http://localhost:{site.second.port}"
        meta = f'Grip-Set-Meta: url="{host}/check"'
        link = f"Grip-Link: <{host}/next>; rel=next"
        for target in (trusted, untrusted):
            target.on("/mixed/filter", hold("stream", "filtered; filter=http-check", meta))
            target.on("/mixed/link", hold("stream", "linked; prev-id=1", link))
        site.second.on("/check", response("204 No Content"))
        site.second.on("/next", hold("stream", "linked; prev-id=3", link, body="two three "))
        ways = ("filter", "link")
        first = [stack.enter_context(stream(site, f"/mixed/{way}")) for way in ways]
        trusted.stop()
        second = [stack.enter_context(stream(site, f"/mixed/{way}")) for way in ways]
        assert [target.count("/mixed/filter") for target in (trusted, untrusted)] == [1, 1]
        site.publisher.stream("filtered", "item ")
        assert first[0].data(5) == b"item "
        site.proxy.wait_log(rf'request="POST {host}/check".*untrusted')
        assert site.second.count("/check") == 1
        site.publisher.stream("linked", "three ", id="3", prev_id="2")
        assert first[1].data(10) == b"two three "
        site.proxy.wait_log(rf'request="GET {host}/next".*untrusted')
        site.publisher.stream("linked", "four ", id="4", prev_id="3")
        assert first[1].data(5) == b"four "
        assert site.second.count("/next") == 1
        assert all(client.silent(0.2) for client in second)


@pytest.mark.parametrize(
    "link", ["unix:/run/x.sock", "file:///etc/passwd", "http://user@127.0.0.9/", "//u:p@127.0.0.9/"]
)
def test_links_of_other_kinds_are_refused(site: Site, untrusted: Backend, link: str) -> None:
    untrusted.on("/failed/kind", response("200 OK", f"Grip-Link: <{link}>; rel=next", body="one "))
    answer = site.get("/failed/kind")
    assert (answer.status, answer.body) == (502, b"Error while proxying to origin.\n")
