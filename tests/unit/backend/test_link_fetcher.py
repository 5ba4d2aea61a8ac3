"""Fetches of next links: equal questions are asked once, and everybody gets the answer, as it comes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from gripproxy.backend.link_fetcher import LinkFetcher
from gripproxy.grip.instruct import Instruct
from gripproxy.pipe import STREAM
from gripproxy.routing.grammar import parse_routes
from gripproxy.sessions.context import LinkRequest
from gripproxy.sessions.link_response import JOIN_MAX, PIECE, Reading
from tests.support.doubles import Backend, Browser, House, Parsed, unchunk

BASE = b"http://example/base"


class Reader:
    """One client: what it got, joined; its end is noted in ``answers`` of the fetches, as (URI, body or None)."""

    def __init__(self, answers: list[tuple[bytes, bytes | None]]) -> None:
        self.answers = answers
        self.body = bytearray()
        self.reading: Reading | None = None
        self.act: Callable[[], None] | None = None
        self.problem = ""

    def on_link_body(self, data: bytes, framed: bytes) -> None:
        self.body += data
        if self.act is not None:
            self.act()

    def on_link_end(self, uri: bytes, instruct: Instruct | None, problem: str) -> None:
        self.answers.append((uri, bytes(self.body)))
        self.problem = problem
        if self.act is not None:
            self.act()

    def on_link_failed(self) -> None:
        assert self.reading is not None
        self.answers.append((self.reading.uri, None))


class Fetches:
    """The fetches of a worker with one route."""

    def __init__(self, route: str = "*,id=r one:80", **changes: Any) -> None:
        self.house = House(route, **changes)
        self.fetches = LinkFetcher(self.house.worker.context)
        self.route = self.house.worker.router.routes.routes[0]
        self.answers: list[tuple[bytes, bytes | None]] = []

    def ask(
        self,
        link: bytes = b"/link",
        *last_ids: tuple[bytes, bytes],
        base: bytes = BASE,
        more: bool = False,
        untrusted: bool = False,
    ) -> Reader:
        reader = Reader(self.answers)
        request = LinkRequest(self.route, base, link, last_ids, more, untrusted)
        reader.reading = self.fetches.fetch(request, reader)
        return reader

    def begin(self, size: int) -> Backend:
        """The backend that was asked first begins to answer."""
        backend = self.house.pool.connect()
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        return backend

    def answer(self, body: bytes) -> None:
        """The backend that was asked first answers."""
        self.begin(len(body)).says(body)

    @property
    def asked(self) -> int:
        return len(self.house.pool.wanted)


@pytest.fixture
def fetches() -> Fetches:
    return Fetches()


class TestShared:
    def test_equal_questions_are_asked_once(self, fetches: Fetches) -> None:
        for _ in range(3):
            fetches.ask(b"/link", (b"a", b"1"))
        assert fetches.asked == fetches.fetches.asked == 1
        fetches.answer(b"x")
        assert fetches.answers == [(b"http://example/link", b"x")] * 3

    def test_it_counts_for_the_route(self, fetches: Fetches) -> None:
        fetches.ask(b"/link")
        fetches.answer(b"12345")
        tally = fetches.house.worker.stats
        assert tally.recovery == {(b"r", STREAM): [0, 0, 1, 0]}
        figures = tally.of(b"r")
        assert figures.server_content_bytes_received == 5
        assert figures.server_header_bytes_received == len(b"Content-Length: 5\r\n")
        assert figures.server_header_bytes_sent > len(b"GET /link HTTP/1.1\r\n")

    def test_also_if_the_link_is_written_otherwise(self, fetches: Fetches) -> None:
        fetches.ask(b"/dir/link", base=b"http://example/dir/page")
        fetches.ask(b"link", base=b"http://example/dir/page")
        fetches.ask(b"http://example/dir/link")
        assert fetches.asked == 1

    @pytest.mark.parametrize("link", [b"/link", b"http://other/link"])
    def test_not_with_one_that_an_untrusted_target_gave(self, fetches: Fetches, link: bytes) -> None:
        readers = [fetches.ask(link, untrusted=untrusted) for untrusted in (False, True, False, True)]
        assert fetches.asked == 2
        fetches.answer(b"x")
        fetches.answer(b"x")
        assert [reader.reading and reader.reading.untrusted for reader in readers] == [False, True, False, True]

    def test_others_are_not(self, fetches: Fetches) -> None:
        fetches.ask(b"/link", (b"a", b"1"))
        fetches.ask(b"/link", (b"a", b"2"))
        fetches.ask(b"/link?user=me", (b"a", b"1"))
        fetches.ask(b"/link")
        assert fetches.asked == 4

    def test_what_was_answered_is_asked_anew(self, fetches: Fetches) -> None:
        fetches.ask()
        fetches.answer(b"1")
        fetches.ask()
        assert fetches.fetches.asked == 2

    def test_one_that_joins_when_the_request_has_gone_knows_it(self, fetches: Fetches) -> None:
        first, same_turn = fetches.ask(), fetches.ask()
        fetches.house.pass_time(0.01)
        later = fetches.ask()
        assert fetches.asked == 1
        readings = [reader.reading for reader in (first, same_turn, later)]
        assert [reading is not None and reading.late for reading in readings] == [False, False, True]

    def test_those_of_one_group_are_in_time_however_long_their_turn_takes(self, fetches: Fetches) -> None:
        scheduler, readers = fetches.house.worker.context.scheduler, []

        class Session:
            request_key = backend_key = "x"

            def update(self) -> None:
                readers.append(fetches.ask())
                fetches.house.loop.now += 0.001

        for _ in range(20):
            scheduler.add(Session())
        fetches.house.pass_time(1)
        assert len(readers) == 20
        assert [reader for reader in readers if reader.reading is None or reader.reading.late] == []
        assert fetches.asked == 1

    def test_the_request_of_a_group_waits_until_all_of_it_have_joined(self, fetches: Fetches) -> None:
        scheduler = fetches.house.worker.context.scheduler
        sent: list[int] = []
        last = fetches.ask(b"/other")

        class Session:
            request_key = backend_key = "x"

            def update(self) -> None:
                fetches.ask()
                fetches.house.loop.now += 0.001
                sent.append(fetches.asked)

        for _ in range(20):
            scheduler.add(Session())
        fetches.house.pass_time(1)
        assert last.reading is not None
        assert (sent, fetches.asked) == ([1] * 20, 2)

    def test_one_that_nobody_waits_for_any_more_is_not_sent(self, fetches: Fetches) -> None:
        class Session:
            request_key = backend_key = "x"

            def update(self) -> None:
                reading = fetches.ask().reading
                assert reading is not None
                reading.leave()

        fetches.house.worker.context.scheduler.add(Session())
        fetches.house.pass_time(1)
        assert fetches.asked == 0

    def test_a_question_out_of_an_answer_is_a_new_one(self, fetches: Fetches) -> None:
        reader = fetches.ask()
        reader.act = lambda: setattr(reader, "act", fetches.ask().act)
        fetches.answer(b"")
        assert fetches.fetches.asked == 2
        assert fetches.answers == [(b"http://example/link", b"")]

    def test_while_little_has_passed(self, fetches: Fetches) -> None:
        first = fetches.ask()
        backend = fetches.begin(200_000)
        backend.says(b"x" * JOIN_MAX)
        second = fetches.ask()
        fetches.house.pass_time(0)
        assert first.body == second.body
        backend.says(b"x")
        fetches.ask()
        assert fetches.fetches.asked == 2

    def test_one_host_of_two_names_is_not_one_backend(self, fetches: Fetches) -> None:
        # One goes by the route, the other to where the link says.
        fetches.ask(b"http://example/link")
        fetches.ask(b"http://example/link", base=b"http://other/")
        assert fetches.asked == 2

    def test_if_the_operator_says_so_whatever_their_query(self) -> None:
        fetches = Fetches(share_links_ignoring_query=True)
        for link in (b"/link?user=me", b"/link?user=you", b"/link"):
            fetches.ask(link, (b"a", b"1"))
        fetches.ask(b"/other?user=me", (b"a", b"1"))
        fetches.ask(b"/link?user=me", (b"a", b"2"))
        assert fetches.asked == 3
        fetches.answer(b"mine")
        assert b"GET /link?user=me HTTP/1.1\r\n" in fetches.house.pool.opened[0].take()
        # Each goes on from where it was.
        assert fetches.answers == [
            (b"http://example/link?user=me", b"mine"),
            (b"http://example/link?user=you", b"mine"),
            (b"http://example/link", b"mine"),
        ]

    def test_but_not_with_a_query_on_another_host(self) -> None:
        fetches = Fetches(share_links_ignoring_query=True)
        fetches.ask(b"http://other/link?user=me")
        fetches.ask(b"http://other/link?user=you")
        assert fetches.asked == 2

    def test_a_failure_is_everybodys(self, fetches: Fetches) -> None:
        fetches.ask()
        fetches.ask()
        fetches.house.pool.refuse()
        assert fetches.answers == [(b"http://example/link", None)] * 2


class TestPace:
    def test_an_answer_of_any_size_goes_through_as_it_comes(self, fetches: Fetches) -> None:
        reader = fetches.ask()
        backend = fetches.begin(15_000_000)
        for n in range(1, 151):
            backend.says(b"x" * 100_000)
            assert len(reader.body) == n * 100_000
        assert len(fetches.answers) == 1
        assert backend.free

    def test_the_backend_waits_for_the_client_and_its_time_does_not_run(self, fetches: Fetches) -> None:
        reader = fetches.ask()
        assert reader.reading is not None
        reader.act = reader.reading.pause
        backend = fetches.begin(20)
        backend.says(b"0123456789")
        assert not backend.transport.reading
        fetches.house.pass_time(1000)
        assert fetches.answers == []
        reader.act = None
        reader.reading.resume()
        assert backend.transport.reading
        backend.says(b"0123456789")
        assert fetches.answers == [(b"http://example/link", b"0123456789" * 2)]
        assert backend.free

    def test_an_answer_that_is_complete_waits_for_the_client_without_the_backend(self, fetches: Fetches) -> None:
        reader = fetches.ask()
        assert reader.reading is not None
        reader.reading.pause()
        backend = fetches.begin(5)
        backend.says(b"hello")
        assert backend.free
        assert backend.transport.reading
        assert fetches.answers == []
        reader.reading.resume()
        assert fetches.answers == [(b"http://example/link", b"hello")]

    def test_a_client_that_leaves_has_it_stopped(self, fetches: Fetches) -> None:
        reader = fetches.ask()
        assert reader.reading is not None
        backend = fetches.begin(10)
        reader.reading.leave()
        assert backend.transport.aborted
        fetches.house.pass_time(1000)
        assert fetches.answers == []


class TestContentCoding:
    """Backends may compress unasked; the client knows nothing of it (docs/grip.md §2.5)."""

    PAGE = bytes(range(256)) * 2000

    def begin(self, fetches: Fetches, data: bytes) -> Backend:
        backend = fetches.house.pool.connect()
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data))
        return backend

    def test_is_taken_off(self, fetches: Fetches) -> None:
        fetches.ask()
        data = gzip.compress(self.PAGE)
        backend = self.begin(fetches, data)
        backend.says(data[:100])
        backend.says(data[100:])
        assert fetches.answers == [(b"http://example/link", self.PAGE)]
        assert backend.free

    @pytest.mark.parametrize("leaves", [True, False])
    def test_at_the_clients_pace(self, fetches: Fetches, leaves: bool) -> None:
        reader = fetches.ask()
        assert reader.reading is not None
        reader.act = reader.reading.pause
        data = gzip.compress(self.PAGE)
        backend = self.begin(fetches, data)
        backend.says(data)
        sizes = [len(reader.body)]
        if leaves:
            # It has said all.
            backend.leaves()
        while not fetches.answers:
            reader.reading.resume()
            sizes.append(len(reader.body))
        assert sizes[0] == PIECE
        assert max(after - before for before, after in pairwise(sizes)) <= PIECE
        assert fetches.answers == [(b"http://example/link", self.PAGE)]
        assert backend.free != leaves

    @pytest.mark.parametrize("data", [gzip.compress(PAGE)[:-9], b"nonsense"])
    def test_that_is_none_is_a_failure(self, fetches: Fetches, data: bytes) -> None:
        fetches.ask()
        backend = self.begin(fetches, data)
        backend.says(data)
        assert fetches.answers == [(b"http://example/link", None)]
        assert backend.transport.aborted


class TestTime:
    def test_silence_in_the_body_is_a_failure(self) -> None:
        fetches = Fetches(backend_body_timeout=5, connect_timeout=1, response_timeout=5)
        fetches.ask()
        backend = fetches.begin(100)
        for _ in range(5):
            fetches.house.pass_time(4)
            backend.says(b"x")
        assert fetches.answers == []
        fetches.house.pass_time(10)
        assert fetches.answers == [(b"http://example/link", None)]
        assert backend.transport.aborted

    def test_a_connection_that_ends_in_the_middle_is_a_failure(self, fetches: Fetches) -> None:
        reader = fetches.ask()
        backend = fetches.begin(100)
        backend.says(b"x")
        backend.leaves()
        assert reader.body == b"x"
        assert fetches.answers == [(b"http://example/link", None)]


def test_a_link_that_leads_nowhere_fails_in_a_later_turn(fetches: Fetches) -> None:
    fetches.ask(b"ftp://example/")
    assert fetches.answers == []
    fetches.house.pass_time(0)
    assert fetches.answers == [(BASE, None)]


def test_no_answer_in_time_is_none(fetches: Fetches) -> None:
    fetches.ask()
    proxy = fetches.house.worker.config.proxy
    fetches.house.pass_time(proxy.connect_timeout + proxy.response_timeout)
    assert fetches.answers == [(b"http://example/link", None)]


def test_the_route_is_the_newest_of_that_id(fetches: Fetches) -> None:
    table, _ = parse_routes("*,id=r new:81", "routes")
    fetches.house.worker.router.routes = table
    fetches.ask()
    [(_, target)] = fetches.house.pool.wanted
    assert (target.host, target.port) == ("new", 81)


class TestUnderWay:
    """What the worker counts as under way (gripproxy.sessions.recovery_scheduler)."""

    def asking(self, fetches: Fetches) -> int:
        return fetches.house.worker.scheduler.asking

    def test_a_request_counts_until_it_is_answered(self, fetches: Fetches) -> None:
        fetches.ask()
        fetches.ask()
        fetches.ask(b"http://other/")
        assert self.asking(fetches) == 2
        fetches.answer(b"x")
        fetches.house.pool.refuse()
        assert self.asking(fetches) == 0

    def test_a_page_counts_but_for_the_total(self, fetches: Fetches) -> None:
        fetches.ask(b"/1")
        fetches.ask(b"/page", more=True)
        assert (fetches.asked, self.asking(fetches)) == (2, 2)
        assert fetches.fetches.asked == 1, "a page is what the client itself has asked for"

    def test_one_that_is_not_wanted_any_more_does_not(self, fetches: Fetches) -> None:
        reader = fetches.ask(b"/1")
        assert reader.reading is not None
        reader.reading.leave()
        assert self.asking(fetches) == 0

    def test_an_answer_at_the_pace_of_its_client_does_not(self, fetches: Fetches) -> None:
        reader = fetches.ask()
        assert reader.reading is not None
        fetches.begin(10)
        assert self.asking(fetches) == 1
        reader.reading.pause()
        assert self.asking(fetches) == 0

    def test_an_answer_without_end_does_not_for_ever(self) -> None:
        fetches = Fetches(connect_timeout=1, response_timeout=5)
        fetches.ask()
        backend = fetches.begin(1000)
        for _ in range(3):
            fetches.house.pass_time(2)
            backend.says(b"x")
        assert self.asking(fetches) == 0
        assert fetches.answers == []

    @pytest.mark.parametrize("code", [500, 404])
    def test_an_error_does_not(self, fetches: Fetches, code: int) -> None:
        fetches.ask()
        fetches.house.pool.connect().says(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % code)
        assert fetches.answers == [(b"http://example/link", None)]
        assert self.asking(fetches) == 0

    def test_a_link_that_leads_nowhere_does_not(self, fetches: Fetches) -> None:
        fetches.ask(b"ftp://example/")
        assert self.asking(fetches) == 0


class TestBreakingOff:
    """An answer that ends too early, as the client sees it."""

    def half(self, version: bytes) -> tuple[House, Browser]:
        house = House("* one:80")
        browser = house.browser().says(b"GET / %b\r\nHost: h\r\n\r\n" % version)
        page = b"HTTP/1.1 200 OK\r\nGrip-Link: </2>; rel=next\r\nContent-Length: 4\r\n\r\npage"
        backend = house.pool.connect()
        backend.says(page)
        backend.says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        backend.leaves()
        return house, browser

    def test_lacks_the_last_chunk(self) -> None:
        house, browser = self.half(b"HTTP/1.1")
        assert unchunk_all(browser.take()) == b"pagehalf"
        assert browser.transport.closing
        assert not browser.transport.aborted
        # A client that does not take even that is not waited for without end.
        house.pass_time(house.worker.config.proxy.client_body_timeout + 2)
        assert browser.transport.aborted

    def test_is_a_reset_where_there_are_no_chunks(self) -> None:
        _, browser = self.half(b"HTTP/1.0")
        assert browser.transport.aborted


def unchunk_all(data: bytes) -> bytes:
    """The content of the chunks behind a head, of which the last must not be there."""
    content, complete = unchunk(Parsed(data).rest)
    assert not complete
    return content


@pytest.mark.parametrize(("route", "problem"), [("*,id=r", True), ("*,id=r,reserved", False)])
def test_a_reserved_channel_in_an_answer(route: str, problem: bool) -> None:
    fetches = Fetches(route=f"{route} one:80", reserved_prefix="hub/")
    reader = fetches.ask()
    backend = fetches.house.pool.connect()
    backend.says(b"HTTP/1.1 200 OK\r\nGrip-Hold: stream\r\nGrip-Channel: hub/1\r\nContent-Length: 2\r\n\r\nhi")
    assert fetches.answers == [(b"http://example/link", b"hi")]
    assert reader.problem.startswith("channel 'hub/1' is reserved") is problem
    assert (reader.problem == "") is not problem
