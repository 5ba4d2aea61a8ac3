"""Streams that repair themselves: prev-ids, next links and gaps (docs/grip.md §4.2, §6.3, §6.4, §6.6, §6.7, §6.9)."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable

import pytest

from tests.wire.wirekit import (
    CLOSE,
    UPDATED,
    Aborted,
    Exchange,
    Script,
    Setup,
    Silence,
    Site,
    covers,
    expect,
    hold,
    on_pushpin,
    response,
)
from tests.wire.wirekit.holding import stream

SETUP = Setup(
    routes="* {backend}\n*,path_beg=/debug,debug {backend}\n*,path_beg=/prefixed,prefix=pre- {backend}\n",
    # What waits for its turn must not go out because the machine was busy for a second.
    config={"handler.message_wait": 60_000},
)
ASKED_AGAIN = Setup(config=UPDATED)
# Sharing is a worker's own affair.
ONE_WORKER = Setup(routes="* {backend}\n", config={"proxy.workers": 1})
IGNORING = Setup(routes="* {backend}\n", config={"proxy.workers": 1, "proxy.share_links_ignoring_query": True})
ELSEWHERE = Setup(routes="* {backend}\nother.example {second}\n")


@pytest.fixture(autouse=True)
def _links_are_followed(site: Site) -> None:
    """Wait until Pushpin's handler, after its start, reaches the proxy with link requests; the first ones get lost."""
    follow_links(site)


def follow_links(site: Site, *, again: bool = False) -> None:
    """Ask for two pages until both come; see the fixture. ``again``: the proxy was started again."""
    if not on_pushpin() or (site.backend.count("/warm-2") and not again):
        return
    site.backend.on("/warm-1", response("200 OK", "Grip-Link: </warm-2>; rel=next", body="one "))
    site.backend.on("/warm-2", response("200 OK", body="two"))
    for _ in range(20):
        with site.connect() as client, contextlib.suppress(Silence):
            client.request("GET", "/warm-1")
            client.head()
            if client.rest(0.5) == b"one two":
                return
    raise AssertionError("link requests do not work")


def ask_again(site: Site, channel: str) -> None:
    """Let all streams of a channel ask their links. Pushpin does that a second after the first of them began."""
    if not on_pushpin():
        site.publisher.publish({"channel": channel, "http-stream": {"action": "hint"}})


class Feed:
    """A backend page that tells where it was asked from and holds on at the id it is told to have."""

    def __init__(self, site: Site, path: str, channel: str, last: str, timeout: int = 100, more: str = "") -> None:
        """Script the page."""
        self.path, self.channel, self.last, self.timeout, self.more = path, channel, last, timeout, more
        self.behind: str | None = None
        """What it has for those who begin, if that is not the last one."""
        site.backend.on(path, self.answer)

    def answer(self, exchange: Exchange) -> bytes:
        """Return a stream hold with a link to what follows."""
        body = f"[{exchange.request.uri} {exchange.request['grip-last']}]"
        last = self.last if self.behind is None or "?" in exchange.request.uri else self.behind
        link = f"Grip-Link: <{self.path}?after={last}>; rel=next; timeout={self.timeout}"
        return hold("stream", f"{self.channel}; prev-id={last}{self.more}", link, body=body)


def item(channel: str, content: str, id: str | None, prev: str | None, **fields: object) -> dict[str, object]:
    """Return an item for the streams of a channel."""
    made: dict[str, object] = {"channel": channel, "formats": {"http-stream": {"content": content}}}
    if id is not None:
        made["id"] = id
    if prev is not None:
        made["prev-id"] = prev
    return {**made, **{name.replace("_", "-"): value for name, value in fields.items()}}


@covers("4.2 2 prev-id no link", "2.7 stream")
def test_prev_id_without_next_link_ends_the_stream(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; prev-id=1", body="begin\n"))
    assert site.get(f"/{case}").body == b"begin\n"
    site.backend.on(f"/debug/{case}", hold("stream", f"{case}; prev-id=1", body="begin\n"))
    message = f"channel '{case}' specifies prev-id, but no next link found"
    assert site.get(f"/debug/{case}").body.decode() == f"begin\n\n\n{message}\n"


@covers("6.9 paged", "6.6 fetch", "15 4 link requests")
def test_pages_follow_each_other(site: Site, case: str) -> None:
    b = site.backend
    b.on(f"/{case}/1", response("200 OK", "Grip-Link: <2?x=1>; rel=next", "X-A: 1", body="page 1\n"))
    b.on(f"/{case}/2", response("201 Made", f"Grip-Link: </{case}/3>; rel=next", "X-B: 2", body="page 2\n"))
    b.on(f"/{case}/3", response("200 OK", body="page 3\n"))
    with site.connect() as client:
        client.request(
            "POST", f"/{case}/1", "Cookie: a=b", "Authorization: c", "User-Agent: d", "X-C: 1", body="question"
        )
        head = client.head()
        assert head.line == "200 OK"
        assert head["x-a"] == "1"
        assert client.rest() == b"page 1\npage 2\npage 3\n"
    for path, uri in ((f"/{case}/2", f"/{case}/2?x=1"), (f"/{case}/3", f"/{case}/3")):
        request = b.request(path)
        assert (request.method, request.uri, request.body) == ("GET", uri, b"")
        assert {name for name in request.names if name not in ("accept", "accept-encoding")} == {
            "host",
            "grip-sig",
            "grip-feature",
        }
        assert request["host"] == "wire.example"


@covers("6.9 paged", "6.6 outcomes")
def test_pages_may_end_in_a_hold(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: </{case}-2>; rel=next", body="page\n"))
    site.backend.on(f"/{case}-2", hold("stream", case, "Grip-Keep-Alive: k; timeout=1", body="hold\n"))
    with stream(site, f"/{case}", opening=b"page\nhold\n") as client:
        assert client.data(1) == b"k"
        site.publisher.stream(case, "live\n")
        assert b"live\n" in client.data_until(b"\n")


@covers("6.6 failure")
def test_a_failing_link_is_asked_again(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: </{case}-2>; rel=next", body="page\n"))
    bad = response("500 Oops", body="not for the client")
    site.backend.on(f"/{case}-2", [bad, bad, response("200 OK", body="at last\n")])
    answer = site.get(f"/{case}")
    assert answer.body == b"page\nat last\n"
    first, second, third = (site.backend.request(f"/{case}-2", n).time for n in range(3))
    assert second - first > 0.9
    assert third - second > 1.9


@covers("6.6 outcomes")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (hold("response", "any", body="more\n"), "more\n\n\nNext link returned non-stream hold.\n"),
        (hold("zz", "any", body="more\n"), "more\n\n\nGrip-Hold must be set to either 'response' or 'stream'\n"),
    ],
    ids=["response hold", "bad instruct"],
)
def test_link_responses_that_end_the_stream(site: Site, case: str, answer: bytes, text: str) -> None:
    site.backend.on(f"/debug/{case}", response("200 OK", f"Grip-Link: </debug/{case}-2>; rel=next", body="page\n"))
    site.backend.on(f"/debug/{case}-2", answer)
    assert site.get(f"/debug/{case}").body.decode() == f"page\n{text}"


@covers("6.3 check", "6.4 gap", "6.2 in order", "4.2 4 hint", "6.4 hint", "15 5 no prev-id is a gap", "6.4 recover")
def test_gaps_are_repaired(site: Site, case: str) -> None:
    feed = Feed(site, f"/{case}", case, "3")
    with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as client:
        site.publisher.publish(item(case, "four ", "4", "3"))
        assert client.data(5) == b"four "
        # Six waits in the sequencer for five.
        site.publisher.publish(item(case, "six ", "6", "5"))
        site.publisher.publish(item(case, "five ", "5", "4"))
        assert client.data(9) == b"five six "
        # A gap: the item is dropped and the backend asked. The link is old, Grip-Last is current.
        feed.last = "9"
        site.publisher.publish(item(case, "nine ", "9", "8", no_seq=True))
        assert client.data_until(b"]").decode() == f"[/{case}?after=3 {case}; last-id=6]"
        site.publisher.publish({"channel": case, "http-stream": {"action": "hint"}})
        assert client.data_until(b"]").decode() == f"[/{case}?after=9 {case}; last-id=9]"
        # An item without prev-id is a gap too.
        site.publisher.publish(item(case, "no id", None, None))
        assert client.data_until(b"]").decode() == f"[/{case}?after=9 {case}; last-id=9]"
        assert site.publisher.command("recover")[b"success"] is True
        assert client.data_until(b"]").decode() == f"[/{case}?after=9 {case}; last-id=9]"
        site.publisher.publish(item(case, "ten ", "10", "9"))
        assert client.data_until(b"ten ").endswith(b"ten ")


@covers("6.4 first subscription")
def test_the_first_subscription_is_followed_by_an_update(start: Callable[[Setup], Site], case: str) -> None:
    site = start(ASKED_AGAIN)
    Feed(site, f"/{case}", case, "3")
    with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as client:
        assert client.data_until(b"]").decode() == f"[/{case}?after=3 {case}; last-id=3]"
        first, second = site.backend.request(f"/{case}", 0), site.backend.request(f"/{case}", 1)
        assert second.time - first.time > 0.9
        # The second client of the channel is not the first subscription.
        with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as other:
            assert other.silent(1.4)
            assert client.silent(0)


@covers("6.4 conflict", "4.2 3 conflict", "6.1 state")
def test_a_hold_that_begins_behind_the_last_id(site: Site, case: str) -> None:
    feed = Feed(site, f"/{case}", case, "3")
    with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as client:
        site.publisher.publish(item(case, "four ", "4", "3"))
        assert client.data(5) == b"four "
        # This one begins with what was before four, so it is repaired at once.
        feed.last, feed.behind = "4", "3"
        with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as late:
            assert late.data_until(b"]").decode() == f"[/{case}?after=3 {case}; last-id=3]"
            site.publisher.publish(item(case, "five ", "5", "4"))
            assert late.data_until(b"five ").endswith(b"five ")


@covers("6.3 check", "15 6 prev-id advances")
def test_prev_id_advances_when_a_filter_drops(site: Site, case: str) -> None:
    Feed(site, f"/{case}", case, "3", more="; filter=skip-self")
    with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as client:
        site.publisher.publish(item(case, "four ", "4", "3", meta={"skip_users": "x", "sender": "x"}))
        assert client.data(5) == b"four "
        site.publisher.publish(item(case, "five ", "5", "4"))
        assert client.data(5) == b"five "


@covers("6.3 check", "15 6 prev-id advances")
def test_an_item_without_id_ends_the_checking(site: Site, case: str) -> None:
    Feed(site, f"/{case}", case, "3")
    with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as client:
        site.publisher.publish(item(case, "no id ", None, "3"))
        assert client.data(6) == b"no id "
        site.publisher.publish(item(case, "any ", "99", "98", no_seq=True))
        assert client.data(4) == b"any "


@covers("6.3 check")
def test_an_item_that_is_already_contained(site: Site, case: str) -> None:
    Feed(site, f"/{case}", case, "3")
    with stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as client:
        site.publisher.publish(item(case, "three again ", "3", "2", no_seq=True))
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="Requests the next link when an item arrives whose id the client has already.",
            ours_does="Drops an item whose id the client has already, without a request.",
            because="The item is contained in the response and no sign of a gap.",
        ):
            assert client.data_until(b"]", 0.9).decode() == f"[/{case}?after=3 {case}; last-id=3]"
        else:
            assert client.silent(0.5)
            site.publisher.publish(item(case, "four ", "4", "3"))
            assert client.data(5) == b"four "


@covers("6.6 sharing")
def test_clients_share_a_link_request(start: Callable[[Setup], Site], case: str) -> None:
    site = start(ONE_WORKER)
    follow_links(site)
    gate = threading.Event()
    link = f"Grip-Link: </{case}-next?who=1>; rel=next; timeout=100"
    site.backend.on(f"/{case}", hold("stream", f"{case}; prev-id=0", link, body="begin "))
    site.backend.on(f"/{case}-next", Script(gate, hold("stream", f"{case}; prev-id=0", link, body="shared ")))
    with (
        stream(site, f"/{case}", opening=b"begin ") as one,
        stream(site, f"/{case}", opening=b"begin ") as two,
        stream(site, f"/{case}", opening=b"begin ") as three,
    ):
        ask_again(site, case)
        request = site.backend.request(f"/{case}-next")
        assert request["grip-last"] == f"{case}; last-id=0"
        gate.set()
        assert one.data(7) == two.data(7) == three.data(7) == b"shared "
    assert site.backend.count(f"/{case}-next") == 1


@covers("6.6 sharing")
@pytest.mark.parametrize("setup", [ONE_WORKER, IGNORING], ids=["as shipped", "ignoring the query"])
def test_links_that_differ_in_their_query(start: Callable[[Setup], Site], case: str, setup: Setup) -> None:
    site = start(setup)
    follow_links(site)
    gate = threading.Event()

    def begin(exchange: Exchange) -> bytes:
        who = exchange.request.uri.partition("=")[2]
        link = f"Grip-Link: </{case}-next?who={who}>; rel=next; timeout=100"
        return hold("stream", f"{case}; prev-id=0", link, body="begin ")

    def again(exchange: Exchange) -> Script:
        who = exchange.request.uri.partition("=")[2]
        link = f"Grip-Link: </{case}-next?who={who}>; rel=next; timeout=100"
        return Script(gate, hold("stream", f"{case}; prev-id=0", link, body=f"for {who} "))

    site.backend.on(f"/{case}", begin)
    site.backend.on(f"/{case}-next", again)
    with (
        stream(site, f"/{case}?who=1", opening=b"begin ") as one,
        stream(site, f"/{case}?who=2", opening=b"begin ") as two,
    ):
        shared = setup is IGNORING or expect(
            pushpin=True,
            ours=False,
            pushpin_does="Sends clients whose next links differ in their query only the response to one of these "
            "links.",
            ours_does="Requests each link, query included, for the clients that have it; `share_links_ignoring_query` "
            "restores Pushpin's way.",
            because="The query may name the client.",
        )
        ask_again(site, case)
        first = site.backend.request(f"/{case}-next").uri.partition("=")[2]
        if shared:
            # Time for the second question, which Pushpin asks in a batch of its own.
            assert two.silent(0.4)
        else:
            site.backend.request(f"/{case}-next", 1)
        gate.set()
        assert one.data(6) == (f"for {first} " if shared else "for 1 ").encode()
        assert two.data(6) == (f"for {first} " if shared else "for 2 ").encode()
    assert site.backend.count(f"/{case}-next") == (1 if shared else 2)


@covers("6.6 failure", "6.9 paged")
def test_a_page_that_breaks_off(site: Site, case: str) -> None:
    """Nothing that is missing a piece may look complete."""
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: </{case}-2>; rel=next", body="page "))
    seen = threading.Event()
    site.backend.on(f"/{case}-2", Script(response("200 OK", "Content-Length: 100", body="half"), seen, CLOSE))
    with site.connect() as client:
        client.request("GET", f"/{case}")
        client.head()
        assert client.data(9) == b"page half"
        seen.set()
        try:
            ended = client.rest() == b""
        except Aborted:
            ended = False
        assert ended == expect(
            pushpin=True,
            ours=False,
            pushpin_does="Ends a paged stream as if it were complete when a page breaks off.",
            ours_does="Aborts the client's connection when a page of a paged stream breaks off.",
            because="A truncated response must not look complete.",
        )
    assert site.backend.count(f"/{case}-2") == 1


@covers("6.9 paged", "6.6 fetch")
def test_a_page_that_is_compressed(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: </{case}-2>; rel=next", body="page "))
    packed = gzip.compress(b"unpacked")
    site.backend.on(f"/{case}-2", response("200 OK", "Content-Encoding: gzip", body=packed))
    assert site.get(f"/{case}").body == b"page unpacked"


@covers("6.9 paged", "6.6 outcomes")
def test_a_long_page_goes_on_to_the_client_as_it_comes(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", response("200 OK", f"Grip-Link: </{case}-2>; rel=next", body="page "))
    piece, gate = "x" * 100_000, threading.Event()
    head = hold("stream", case, "Content-Length: 12000000", body=piece * 60)
    site.backend.on(f"/{case}-2", Script(head, gate, piece.encode() * 60))
    with stream(site, f"/{case}", opening=b"page ") as client:
        assert len(client.data(6_000_000)) == 6_000_000
        gate.set()
        assert len(client.data(6_000_000)) == 6_000_000
        site.publisher.stream(case, "live\n")
        assert client.data_until(b"\n") == b"live\n"


@covers("6.6 outcomes", "4.3 link")
def test_a_link_response_replaces_the_terms(site: Site, case: str) -> None:
    meta = "Grip-Set-Meta: who=Ann"
    link = f"Grip-Link: </{case}-2>; rel=next; timeout=100"
    site.backend.on(f"/{case}", hold("stream", f"{case}-a, {case}-b", link, body="first "))
    site.backend.on(f"/{case}-2", hold("stream", f"{case}-b; filter=var-subst, {case}-c", meta, body="second "))
    with site.publisher.feed() as feed, stream(site, f"/{case}", opening=b"first ") as client:
        feed.wait_for(b"\x01" + f"{case}-a".encode())
        ask_again(site, f"{case}-a")
        assert client.data(7) == b"second "
        feed.wait_for(b"\x00" + f"{case}-a".encode())
        for channel in ("a", "b", "c"):
            site.publisher.stream(f"{case}-{channel}", f"{channel}%(who)s ")
        assert client.data(14) == b"bAnn c%(who)s "


@covers("6.4 link timeout", "6.7 timeout", "3.1 link next")
def test_a_quiet_stream_asks_after_the_link_timeout(site: Site, case: str) -> None:
    site.backend.on(f"/{case}-busy", hold("stream", case))
    Feed(site, f"/{case}", case, "1", timeout=1)
    with stream(site, f"/{case}-busy"), stream(site, f"/{case}", opening=f"[/{case} None]".encode()) as client:
        for _ in range(3):
            assert client.data_until(b"]").decode() == f"[/{case}?after=1 {case}; last-id=1]"
    # Each time after a second, but Pushpin's first one may be the update of the first subscription.
    times = [site.backend.request(f"/{case}", number).time for number in range(4)]
    assert times[3] - times[1] > 1.5


@covers("4.2 5 queue", "10 stream queue")
def test_items_wait_while_a_link_is_asked(start: Callable[[Setup], Site], case: str) -> None:
    site = start(ONE_WORKER)
    follow_links(site)
    gate = threading.Event()
    link = f"Grip-Link: </{case}-next>; rel=next; timeout=100"
    site.backend.on(f"/{case}", hold("stream", case, link, body="begin "))
    site.backend.on(f"/{case}-next", Script(gate, hold("stream", case, link, body="asked ")))
    site.backend.on(f"/{case}-other", hold("stream", case, body="other "))
    with (
        stream(site, f"/{case}", opening=b"begin ") as client,
        stream(site, f"/{case}-other", opening=b"other ") as other,
    ):
        site.publisher.publish({"channel": case, "http-stream": {"action": "hint"}})
        site.backend.request(f"/{case}-next")
        site.publisher.publish(*[item(case, f"<{number:03}>", None, None) for number in range(105)])
        # They are all there when one who does not wait has them.
        other.data_until(b"<104>")
        assert client.silent(0.2)
        gate.set()
        wanted = "asked " + "".join(f"<{number:03}>" for number in range(100))
        assert client.data(len(wanted)).decode() == wanted
        site.publisher.stream(case, "later")
        assert client.data(5) == b"later"


@covers("6.6 fetch")
def test_a_link_to_another_host(start: Callable[[Setup], Site], case: str) -> None:
    site = start(ELSEWHERE)
    follow_links(site)
    link = f"Grip-Link: <http://{site.second.address}/{case}-2>; rel=next"
    site.backend.on(f"/{case}", response("200 OK", link, body="one "))
    site.second.on(f"/{case}-2", response("200 OK", body="two\n"))
    assert site.get(f"/{case}").body == b"one two\n"
    request = site.second.request(f"/{case}-2")
    assert request["host"] == site.second.address
    assert request["grip-sig"] is not None


@covers("7 build-id", "6.3 check")
def test_build_id_with_prev_ids(site: Site, case: str) -> None:
    link = f"Grip-Link: </{case}-next>; rel=next; timeout=100"
    meta = f"Grip-Set-Meta: id_format=v-%({case})s"
    site.backend.on(f"/{case}", hold("stream", f"{case}; prev-id=10; filter=build-id", link, meta, body="%(v-x)I "))
    with stream(site, f"/{case}", opening=b"v-x ") as client:
        site.publisher.publish(item(case, "id %I, %(v-9)I", "11", "10"))
        # The id is the one of the item itself.
        assert client.data(12) == b"id v-11, v-9"


@covers("7 build-id")
def test_an_id_that_tells_the_position_in_several_channels(site: Site, case: str) -> None:
    one, two = f"{case}-1", f"{case}-2"

    def answer(exchange: Exchange) -> bytes:
        """Nothing is missing, whatever the last ids are."""
        last = exchange.request.all("grip-last") or [f"{one}; last-id=3", f"{two}; last-id=7"]
        channels = ", ".join(line.replace("last-id", "prev-id") + "; filter=build-id" for line in last)
        link = f"Grip-Link: </{case}>; rel=next; timeout=100"
        return hold("stream", channels, link, f"Grip-Set-Meta: id_format=%({one})s-%({two})s", body="")

    site.backend.on(f"/{case}", answer)
    with stream(site, f"/{case}") as client:
        for channel, id, prev, position in ((one, "4", "3", "4-7"), (two, "8", "7", "4-8"), (one, "5", "4", "5-8")):
            site.publisher.publish(item(channel, "id: %I\n", id, prev))
            assert client.data_until(b"\n").decode() == f"id: {position}\n"


@covers("6.5 grip-last", "1.3 prefix")
def test_grip_last_uses_the_name_without_prefix(site: Site, case: str) -> None:
    Feed(site, f"/prefixed/{case}", case, "3")
    with stream(site, f"/prefixed/{case}", opening=f"[/prefixed/{case} None]".encode()) as client:
        site.publisher.publish(item(f"pre-{case}", "x", "9", "8", no_seq=True))
        assert client.data_until(b"]").decode() == f"[/prefixed/{case}?after=3 {case}; last-id=3]"
