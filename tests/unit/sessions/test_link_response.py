"""The answer of a link on its way to its readers: judged, filtered, shared, at the pace of the fastest of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gripproxy.grip.headers import Headers
from gripproxy.grip.instruct import Instruct
from gripproxy.sessions.link_response import ERROR_MAX, INSTRUCT_MAX, JOIN_MAX, PIECE, STEP, Reading, SharedResponse
from tests.support.session_doubles import Turns

HOLD: Headers = [(b"Grip-Hold", b"stream"), (b"Grip-Channel", b"ch; prev-id=5"), (b"Grip-Link", b"</n>; rel=next")]
FILTERED: Headers = [
    (b"Grip-Hold", b"stream"),
    (b"Grip-Channel", b"ch; filter=build-id"),
    (b"Grip-Set-Meta", b'id_format="<%(a)s>"'),
]
JSON: Headers = [(b"Content-Type", b"application/grip-instruct; charset=utf-8")]


class Client:
    """A reader: notes what it gets."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.reading: Reading | None = None
        self.on_body: Callable[[], None] | None = None

    def on_link_body(self, data: bytes, framed: bytes) -> None:
        assert framed == b"%x\r\n%b\r\n" % (len(data), data)
        self.log.append(data)
        if self.on_body is not None:
            self.on_body()

    def on_link_end(self, uri: bytes, instruct: Instruct | None, problem: str) -> None:
        self.log.append((uri, instruct.mode if instruct is not None else None, problem))

    def on_link_failed(self) -> None:
        self.log.append("failed")

    @property
    def body(self) -> bytes:
        return b"".join(entry for entry in self.log if isinstance(entry, bytes))


class Fetch:
    """One answer with its source, which notes what is asked of it."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.log: list[str] = []
        self.answer = SharedResponse(self.turns, lambda: self.log.append("closed"))
        self.answer.source = self

    def pause(self) -> None:
        self.log.append("pause")

    def resume(self) -> None:
        self.log.append("resume")

    def abandon(self) -> None:
        self.log.append("abandon")

    def client(self, uri: bytes = b"u") -> Client:
        assert self.answer.open
        client = Client()
        client.reading = self.answer.join(client, uri)
        assert client.log == [], "called before join has returned"
        return client

    def head(self, headers: Headers = HOLD, code: int = 200) -> None:
        self.answer.head(code, b"", headers)


@pytest.fixture
def fetch() -> Fetch:
    return Fetch()


class TestHead:
    @pytest.mark.parametrize("code", [302, 404, 500])
    def test_that_is_no_success_fails_and_nothing_of_it_is_handed_on(self, fetch: Fetch, code: int) -> None:
        client = fetch.client()
        fetch.head(code=code)
        fetch.answer.body(b"sorry")
        # The connection can be used again behind it.
        assert client.log == []
        fetch.answer.end()
        assert client.log == ["failed"]
        assert fetch.log == ["closed"]

    def test_that_is_no_success_is_read_whether_the_client_reads_or_not(self, fetch: Fetch) -> None:
        client = fetch.client()
        assert client.reading is not None
        fetch.head(code=500)
        client.reading.pause()
        fetch.answer.body(b"sorry")
        fetch.answer.end()
        assert client.log == ["failed"]
        assert fetch.log == ["closed"]

    def test_that_is_no_success_and_too_much_behind_it(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head(code=500)
        fetch.answer.body(b"x" * ERROR_MAX)
        assert fetch.log == []
        fetch.answer.body(b"x")
        assert client.log == ["failed"]
        assert fetch.log == ["closed", "abandon"]

    def test_with_an_instruct(self, fetch: Fetch) -> None:
        client = fetch.client(b"http://h/link")
        fetch.head()
        fetch.answer.body(b"a")
        fetch.answer.body(b"b")
        assert client.log == [b"a", b"b"]
        fetch.answer.end()
        assert client.log[2:] == [(b"http://h/link", "stream", "")]
        assert fetch.log == ["closed"]

    def test_with_an_instruct_that_makes_no_sense(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head([(b"Grip-Hold", b"sideways")])
        fetch.answer.body(b"a")
        fetch.answer.end()
        body, (_, mode, problem) = client.log
        assert (body, mode) == (b"a", None)
        assert "Grip-Hold" in problem

    def test_that_holds_a_response(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head([(b"Grip-Hold", b"response"), (b"Grip-Channel", b"ch")])
        fetch.answer.end()
        assert client.log == [(b"u", "response", "Next link returned non-stream hold.")]


class TestInstructInTheBody:
    BODY = b'{"hold": {"mode": "stream", "channels": [{"name": "ch"}]}, "response": {"body": "from json"}}'

    def test_is_read_first(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head(JSON)
        fetch.answer.body(self.BODY[:10])
        fetch.answer.body(self.BODY[10:])
        assert client.log == []
        fetch.answer.end()
        assert client.log == [b"from json", (b"u", "stream", "")]

    def test_that_is_none_does_not_go_to_the_client(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head(JSON)
        fetch.answer.body(b'{"hold')
        fetch.answer.end()
        [(_, mode, problem)] = client.log
        assert mode is None
        assert problem

    def test_has_a_bound(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head(JSON)
        fetch.answer.body(b" " * INSTRUCT_MAX)
        assert client.log == []
        fetch.answer.body(b" ")
        assert client.log == ["failed"]
        assert fetch.log == ["closed", "abandon"]

    def test_for_a_client_that_does_not_read(self, fetch: Fetch) -> None:
        client = fetch.client()
        assert client.reading is not None
        fetch.head(JSON)
        fetch.answer.body(self.BODY[:10])
        # It is read all the same, and nothing of it is handed on when the client reads again.
        client.reading.pause()
        assert fetch.log == []
        client.reading.resume()
        client.reading.pause()
        fetch.answer.body(self.BODY[10:])
        fetch.answer.end()
        assert client.log == []
        client.reading.resume()
        assert client.log == [b"from json", (b"u", "stream", "")]


class TestFilters:
    def test_see_the_whole_body(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head(FILTERED)
        for piece in (b"id: %", b"(ab", b")I", b" 100%%"):
            fetch.answer.body(piece)
        fetch.answer.end()
        assert client.body == b"id: ab 100%"

    @pytest.mark.parametrize("body", [b"good %(x", b"good %(x)q bad"])
    def test_that_fail_let_nothing_raw_through(self, fetch: Fetch, body: bytes) -> None:
        client = fetch.client()
        fetch.head(FILTERED)
        fetch.answer.body(b"first ")
        fetch.answer.body(body)
        fetch.answer.body(b"more")
        fetch.answer.end()
        assert b"%" not in client.body
        assert b"bad" not in client.body
        assert client.log[-1][2].startswith("filter error: ")

    def test_that_cannot_work_let_nothing_through(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head([(b"Grip-Hold", b"stream"), (b"Grip-Channel", b"ch; filter=build-id")])
        fetch.answer.body(b"raw")
        fetch.answer.end()
        [(_, _, problem)] = client.log
        assert problem.startswith("filter error: ")


class TestFailure:
    def test_before_the_head_and_behind_it(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head()
        fetch.answer.body(b"a")
        assert client.reading is not None
        assert client.reading.begun
        fetch.answer.failed()
        assert client.log == [b"a", "failed"]
        fetch.answer.end()
        assert client.log == [b"a", "failed"]

    def test_is_everybodys(self, fetch: Fetch) -> None:
        first, second = fetch.client(), fetch.client()
        fetch.head()
        fetch.answer.body(b"a")
        late = fetch.client()
        fetch.answer.failed()
        fetch.turns.run_all()
        assert [client.log for client in (first, second, late)] == [[b"a", "failed"], [b"a", "failed"], ["failed"]]

    def test_throws_away_what_waits(self, fetch: Fetch) -> None:
        client = fetch.client()
        assert client.reading is not None
        client.reading.pause()
        fetch.head()
        fetch.answer.body(b"a")
        fetch.answer.failed()
        client.reading.resume()
        assert client.log == ["failed"]
        assert not client.reading.begun


class TestPace:
    def test_of_one_reader_is_the_answers(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head()
        assert client.reading is not None
        client.reading.pause()
        assert fetch.log == ["closed", "pause"]
        fetch.answer.body(b"a")
        fetch.answer.body(b"b")
        assert client.log == []
        client.reading.resume()
        assert client.log == [b"a", b"b"]
        assert fetch.log == ["closed", "pause", "resume"]

    def test_a_pause_that_is_one_already_changes_nothing(self, fetch: Fetch) -> None:
        client = fetch.client()
        fetch.head()
        assert client.reading is not None
        client.reading.resume()
        client.reading.pause()
        client.reading.pause()
        assert fetch.log == ["closed", "pause"]
        client.reading.resume()
        client.reading.resume()
        assert fetch.log == ["closed", "pause", "resume"]

    def test_a_client_that_blocks_in_the_middle_gets_no_more(self, fetch: Fetch) -> None:
        client = fetch.client()
        assert client.reading is not None
        client.on_body = client.reading.pause
        fetch.head()
        fetch.answer.body(b"x" * (2 * PIECE + 1))
        assert [len(piece) for piece in client.log] == [PIECE]
        assert fetch.log == ["closed", "pause"]
        client.reading.resume()
        assert [len(piece) for piece in client.log] == [PIECE, PIECE]
        client.on_body = None
        client.reading.resume()
        fetch.answer.end()
        assert client.log[2:] == [b"x", (b"u", "stream", "")]

    def test_a_slow_one_holds_up_nobody(self, fetch: Fetch) -> None:
        slow, fast = fetch.client(), fetch.client()
        assert slow.reading is not None
        assert fast.reading is not None
        fetch.head()
        slow.reading.pause()
        fetch.answer.body(b"a")
        # It gets it all the same, and has to keep it itself.
        assert slow.log == fast.log == [b"a"]
        assert fetch.log == []
        fast.reading.pause()
        fetch.answer.body(b"b")
        assert slow.log == fast.log == [b"a"]
        assert fetch.log == ["closed", "pause"]
        fast.reading.resume()
        assert slow.log == fast.log == [b"a", b"b"]

    def test_when_the_fast_one_has_left_is_that_of_the_slow_one(self, fetch: Fetch) -> None:
        slow, fast = fetch.client(), fetch.client()
        assert slow.reading is not None
        assert fast.reading is not None
        fetch.head()
        slow.reading.pause()
        fast.reading.leave()
        assert fetch.log == ["closed", "pause"]


class TestSharing:
    def test_before_the_head(self, fetch: Fetch) -> None:
        clients = [fetch.client(b"%d" % n) for n in range(3)]
        fetch.head()
        fetch.answer.body(b"a")
        fetch.answer.end()
        assert [client.log for client in clients] == [[b"a", (b"%d" % n, "stream", "")] for n in range(3)]

    def test_while_little_has_passed(self, fetch: Fetch) -> None:
        first = fetch.client()
        fetch.head()
        fetch.answer.body(b"a" * (JOIN_MAX - 1))
        fetch.answer.body(b"b")
        second = fetch.client()
        fetch.answer.body(b"c")
        fetch.turns.run_all()
        third_can = fetch.answer.open
        fetch.answer.body(b"d")
        fetch.answer.end()
        assert first.body == second.body == b"a" * (JOIN_MAX - 1) + b"bcd"
        assert second.log[-1] == (b"u", "stream", "")
        assert not third_can
        assert fetch.log == ["closed"]

    def test_with_an_answer_that_is_complete_before_ones_turn(self, fetch: Fetch) -> None:
        first = fetch.client()
        fetch.head()
        fetch.answer.body(b"a")
        late = fetch.client()
        fetch.answer.body(b"b")
        fetch.answer.end()
        assert first.log == [b"a", b"b"]
        fetch.turns.run_all()
        assert first.log == late.log == [b"a", b"b", (b"u", "stream", "")]

    def test_not_with_one_that_waits_for_a_slow_client(self, fetch: Fetch) -> None:
        slow = fetch.client()
        assert slow.reading is not None
        fetch.head()
        fetch.answer.body(b"a")
        slow.reading.pause()
        assert not fetch.answer.open
        assert fetch.answer._record == []

    def test_one_joins_while_the_only_other_one_blocks(self, fetch: Fetch) -> None:
        slow = fetch.client()
        assert slow.reading is not None
        fetch.head()
        fetch.answer.body(b"a")
        late = fetch.client()
        slow.reading.pause()
        fetch.answer.body(b"b")
        fetch.turns.run_all()
        assert slow.log == late.log == [b"a", b"b"]
        assert fetch.log[-1] == "resume"

    def test_nothing_is_kept_of_a_long_answer(self, fetch: Fetch) -> None:
        fetch.client()
        fetch.head()
        for _ in range(100):
            fetch.answer.body(b"x" * 10_000)
        assert fetch.answer._record == []
        assert not fetch.answer._waiting

    def test_one_that_leaves_before_its_turn(self, fetch: Fetch) -> None:
        first = fetch.client()
        fetch.head()
        fetch.answer.body(b"a")
        late = fetch.client()
        assert late.reading is not None
        late.reading.leave()
        fetch.turns.run_all()
        fetch.answer.end()
        assert late.log == []
        assert first.log == [b"a", (b"u", "stream", "")]

    def test_one_may_end_another(self, fetch: Fetch) -> None:
        first, second = fetch.client(), fetch.client()
        assert second.reading is not None
        first.on_body = second.reading.leave
        fetch.head()
        fetch.answer.body(b"a")
        assert second.log == []


class TestLeaving:
    def test_of_the_last_one_ends_it(self, fetch: Fetch) -> None:
        first, second = fetch.client(), fetch.client()
        assert first.reading is not None
        assert second.reading is not None
        fetch.head()
        first.reading.leave()
        assert fetch.log == []
        second.reading.leave()
        assert fetch.log == ["closed", "abandon"]
        fetch.answer.body(b"a")
        fetch.answer.end()
        assert first.log == second.log == []

    def test_in_the_middle_of_a_piece(self, fetch: Fetch) -> None:
        client = fetch.client()
        assert client.reading is not None
        client.on_body = client.reading.leave
        fetch.head()
        fetch.answer.body(b"x" * 3 * PIECE)
        assert len(client.log) == 1
        assert fetch.log == ["closed", "abandon"]


class TestManyReaders:
    """Each turn of the loop serves some of them; the backend is not read meanwhile."""

    COUNT = 2 * STEP + 10

    @pytest.fixture
    def many(self, fetch: Fetch) -> list[Client]:
        clients = [fetch.client() for _ in range(self.COUNT)]
        fetch.head()
        return clients

    def got(self, clients: list[Client]) -> list[int]:
        """How many entries each client has, in runs."""
        counts = [len(client.log) for client in clients]
        return [count for place, count in enumerate(counts) if place == 0 or counts[place - 1] != count]

    def test_get_a_piece_in_several_turns(self, fetch: Fetch, many: list[Client]) -> None:
        fetch.answer.body(b"a")
        assert [len(client.log) for client in many] == [1] * STEP + [0] * (STEP + 10)
        assert fetch.log == ["pause"]
        fetch.answer.body(b"b")
        fetch.turns.run_all()
        assert [client.log for client in many] == [[b"a", b"b"]] * self.COUNT
        assert fetch.log == ["pause", "resume"]

    def test_get_the_end_in_several_turns_and_behind_every_piece(self, fetch: Fetch, many: list[Client]) -> None:
        fetch.answer.body(b"a")
        fetch.answer.end()
        assert many[0].log == [b"a"]
        while fetch.turns.run():
            counts = [len(client.log) for client in many]
            assert max(counts) == 1 or min(counts) == 1 or self.got(many) == [2]
        assert [client.log for client in many] == [[b"a", (b"u", "stream", "")]] * self.COUNT

    def test_fail_in_several_turns(self, fetch: Fetch, many: list[Client]) -> None:
        fetch.answer.failed()
        assert self.got(many) == [1, 0]
        fetch.turns.run_all()
        assert [client.log for client in many] == [["failed"]] * self.COUNT

    def test_one_that_leaves_meanwhile_gets_no_more(self, fetch: Fetch, many: list[Client]) -> None:
        last, other = many[-1].reading, many[-2].reading
        assert last is not None
        assert other is not None
        fetch.answer.body(b"a")
        last.leave()
        fetch.answer.end()
        for _ in range(3):
            fetch.turns.run()
        other.leave()
        fetch.turns.run_all()
        assert many[-1].log == []
        assert many[-2].log == [b"a"]
        assert many[-3].log == [b"a", (b"u", "stream", "")]

    def test_one_that_joins_meanwhile_gets_all_once(self, fetch: Fetch, many: list[Client]) -> None:
        fetch.answer.body(b"a")
        joined = fetch.client()
        fetch.answer.body(b"b")
        fetch.answer.end()
        fetch.turns.run_all()
        assert joined.log == many[0].log == many[-1].log == [b"a", b"b", (b"u", "stream", "")]

    def test_the_failure_of_one_is_its_own(self, fetch: Fetch, many: list[Client]) -> None:
        def fail(*_: object) -> None:
            raise ArithmeticError

        many[1].on_link_end = fail  # type: ignore[assignment,method-assign]
        with pytest.raises(ArithmeticError):
            fetch.answer.end()
        fetch.turns.run_all()
        assert [len(client.log) for client in many] == [1, 0] + [1] * (self.COUNT - 2)
