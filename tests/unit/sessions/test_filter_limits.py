"""Work on an item that sessions share, and items that exceed its bounds, in every kind of session."""

from __future__ import annotations

from typing import Any

import pytest

from gripproxy.delivery import turns as turns_module
from gripproxy.grip import filters, json_patch
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.item_cache import OUTPUT_MAX
from gripproxy.grip.response import Response
from gripproxy.grip.template import Template
from gripproxy.sessions.response import ResponseHold, ResponseTerms
from gripproxy.sessions.stream import StreamHold, StreamTerms
from tests.support.session_doubles import Client, House, Socket, Want, chunks, text, want
from tests.unit.sessions.test_reliable_stream import Stream, held
from tests.unit.sessions.test_reliable_websocket import QUESTION, Talk, event, item, messages, subscribe, texts


@pytest.fixture
def house() -> House:
    return House()


class Counted:
    """Counts the calls of a function that it stands in for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.count = 0
        original = getattr(owner, name)

        def counting(*args: Any, **more: Any) -> Any:
            self.count += 1
            return original(*args, **more)

        monkeypatch.setattr(owner, name, counting)


def stream(house: House, meta: dict[bytes, bytes], *wanted: Want, debug: bool = False) -> Client:
    client = Client()
    terms = StreamTerms(None, meta, None, b"http://h/x", None, b"", debug)
    StreamHold(client, house.context, terms, Response(200, b"OK"), 1).start(
        wanted or (want(b"ch", None, "var-subst"),), 8
    )
    house.confirm()
    client.take()
    return client


def poll(house: House, body: bytes, *wanted: Want, meta: dict[bytes, bytes] | None = None) -> Client:
    client = Client()
    terms = ResponseTerms(Response(200, b"OK", [], body), 55, meta or {}, None, b"", False)
    ResponseHold(client, house.context, terms, 1).start(wanted or (want(b"ch"),), 8)
    house.confirm()
    return client


def patching(*ops: dict[str, Any], **ids: bytes) -> Item:
    return Item(b"ch", ids.get("id"), ids.get("prev"), response=ResponseFormat(patch=list(ops)))


def body(client: Client) -> bytes:
    ((what, response),) = client.take()
    assert what == "respond"
    return bytes(response.body)


TOO_MUCH = [{"op": "copy", "path": "/b", "from": "/a"}] * 30
HELD = b'{"a":"' + b"x" * 50_000 + b'"}'
LONG = b"%(m)s" * 200
"""With META more than may be made of one item."""
META = {b"m": b"x" * (OUTPUT_MAX // 100)}


FOR_OTHERS = {b"sender": b"me"}
"""Meta of an item that skip-self keeps from the user ``me``."""


class TestShared:
    def test_a_template_is_parsed_once_and_rendered_once_for_equal_meta(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clients = [stream(house, {b"m": name, b"other": b"%d" % n}) for n, name in enumerate([b"a", b"a", b"b"] * 20)]
        rendered = Counted(monkeypatch, Template, "render")
        parsed = Counted(monkeypatch, filters, "Template")
        for content in (b"for %(m)s", b"again %(m)s"):
            house.publish(text(content))
            house.turns.run_all()
        assert (parsed.count, rendered.count) == (2, 4)
        wanted = [chunks(b"for " + name, b"again " + name) for name in (b"a", b"a", b"b")] * 20
        assert [b"".join(client.take()) for client in clients] == wanted

    def test_it_is_parsed_once_though_the_fan_out_takes_many_turns(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(turns_module, "TURN_TIME", 0.0)
        clients = [stream(house, {b"m": b"a"}) for _ in range(20)]
        parsed = Counted(monkeypatch, filters, "Template")
        house.publish(text(b"for %(m)s"))
        turns = 0
        while house.turns.run():
            turns += 1
        assert turns > 10
        assert parsed.count == 1
        assert [client.take() for client in clients] == [[chunks(b"for a")]] * 20
        assert not house.context.sharing.entries

    def test_equal_bodies_are_patched_once(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        clients = [poll(house, b'{"n":%d}' % (n % 2)) for n in range(40)]
        applied = Counted(monkeypatch, json_patch.Patch, "apply")
        house.publish(patching({"op": "add", "path": "/b", "value": []}))
        house.turns.run_all()
        assert applied.count == 2
        assert [body(client) for client in clients] == [b'{"n":0,"b":[]}', b'{"n":1,"b":[]}'] * 20


class TestRefused:
    def test_a_stream_goes_without_it(self, house: House) -> None:
        first, second = stream(house, META), stream(house, {b"m": b"short"})
        house.publish(text(LONG), text(b"%(m)s"))
        house.turns.run_all()
        assert first.take() == [chunks(META[b"m"])]
        assert second.take() == [chunks(b"short" * 200), chunks(b"short")]
        assert house.table.ledger.unsent == {"filter-limit": 1}
        assert house.reports == [
            (b"ch", "var-subst: result of 2000000 bytes; filter_output_max is 1000000", 1),
        ]

    def test_a_stream_in_debug_mode_ends(self, house: House) -> None:
        client = stream(house, META, debug=True)
        house.publish(text(LONG))
        told, end = client.take()
        assert b"filter error: var-subst: result of 2000000 bytes" in told
        assert end == ("end", True)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"%(m)s" * 10_001, "var-subst: content with more than 10000 directives"),
            (b"%%" * (OUTPUT_MAX // 2) + b"%", "var-subst: content of 1000001 bytes; filter_output_max is 1000000"),
        ],
    )
    def test_what_is_too_much_to_parse(self, house: House, content: bytes, reason: str) -> None:
        clients = [stream(house, {b"m": b"x"}) for _ in range(3)]
        house.publish(text(content))
        house.turns.run_all()
        assert [client.take() for client in clients] == [[]] * 3
        assert house.reports == [(b"ch", reason, 3)]

    def test_a_reliable_stream_asks_its_backend_once(self, house: House) -> None:
        """The backend does not have the item: it is believed, and not asked again."""
        talk = Stream(house, want(b"ch", b"1", "var-subst"), meta=META)
        house.publish(text(LONG, b"2", b"1"))
        assert talk.updates()
        assert talk.question()[2] == ((b"ch", b"1"),)
        talk.answer(held(b"1"))
        assert not talk.updates()
        assert talk.waiting == 0
        assert talk.take() == []

    def test_a_reliable_stream_has_it_from_its_backend(self, house: House) -> None:
        talk = Stream(house, want(b"ch", b"1", "var-subst"), meta=META)
        house.publish(text(LONG, b"2", b"1"))
        talk.updates()
        house.publish(text(b"three", b"3", b"2"))
        talk.answer(held(b"2", body=b"two"))
        assert not talk.updates()
        assert talk.take() == [chunks(b"two"), chunks(b"three")]

    def test_what_waits_behind_it_waits_for_the_backend_too(self, house: House) -> None:
        """A filter that asks has let later items in before the refusal is known."""
        talk = Stream(house, want(b"ch", b"1", "http-check", "var-subst"), meta={**META, b"url": b"/check"})
        house.publish(text(LONG, b"2", b"1"), text(b"three", b"3", b"2"))
        [(_, reply)] = house.asks
        house.asks.clear()
        reply(filters.AskAnswer(204, [], b""))
        assert house.asks == []
        assert talk.updates()
        assert talk.question()[2] == ((b"ch", b"1"),)
        talk.answer(held(b"3", body=b"two, three"))
        assert talk.take() == [chunks(b"two, three")]

    def test_a_long_poll_is_asked_again_once(self, house: House) -> None:
        clients = [poll(house, HELD) for _ in range(3)]
        house.publish(patching(*TOO_MUCH))
        house.pass_time(1)
        house.scheduler.run()
        assert [client.take() for client in clients] == [[("retry", ())]] * 3
        assert house.reports == [(b"ch", "body-patch: patch of more than 500000 units of work", 3)]

    def test_a_long_poll_with_ids_lacks_the_item(self, house: House) -> None:
        client = poll(house, HELD, want(b"ch", b"1"))
        house.publish(patching(*TOO_MUCH, id=b"2", prev=b"1"))
        house.scheduler.run()
        assert client.take() == [("retry", ((b"ch", b"1"),))]
        assert client.because == ((b"ch", b"2"),)
        assert house.table.ledger.gaps == 1

    def test_the_next_hold_believes_its_backend(self, house: House) -> None:
        """It still names the old id: one more question about the same item would be one for ever."""
        client = poll(house, HELD, want(b"ch", b"1"))
        house.publish(patching(*TOO_MUCH, id=b"2", prev=b"1"))
        house.scheduler.run()
        again = Client()
        terms = ResponseTerms(Response(200, b"OK", [], HELD), 55, {}, None, b"", False)
        hold = ResponseHold(again, house.context, terms, 2, client.because)
        hold.start((want(b"ch", b"1"),), 8)
        house.confirm(b"2")
        assert again.take() == []
        assert not hold.over

    def test_a_websocket_goes_without_it(self) -> None:
        socket = Socket()
        socket.session.meta = META
        socket.subscribed(b"ch", "var-subst")
        for content in (LONG, b"%(m)s"):
            socket.publish(Item(b"ch", message=MessageFormat("send", "text", content)))
        (what, _), (_, payload) = socket.heard()
        assert (what, payload) == ("note", META[b"m"])
        assert socket.house.table.ledger.unsent == {"filter-limit": 1}


class TestRefusedByAReliableWebSocket:
    """The client has item 1; item 2 is refused."""

    @pytest.fixture
    def talk(self) -> Talk:
        talk = Talk().open(subscribe(1, b"ch", "var-subst"))
        talk.session.meta = META
        talk.heard()
        return talk

    def notes(self, talk: Talk) -> tuple[list[Any], list[Any]]:
        """What the client got since the last time, and what was noted about it."""
        log = talk.heard()
        return [entry for entry in log if entry[0] != "note"], [entry for entry in log if entry[0] == "note"]

    def test_has_the_item_from_its_backend_and_is_asked_once(self, talk: Talk) -> None:
        talk.publish(item(2, content=LONG))
        frames, notes = self.notes(talk)
        assert frames == []
        assert notes == [
            ("note", "filter error: var-subst: result of 2000000 bytes; filter_output_max is 1000000"),
        ]
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(messages(2), subscribe(2, b"ch", "var-subst"))
        talk.updates()
        # After an answer that brought something there may be more, unless it ends with the newest that has arrived.
        assert talk.posted() == []
        assert self.notes(talk) == (texts(2), [])
        talk.publish(item(2, content=LONG), item(3))
        talk.updates()
        assert self.notes(talk) == (texts(3), [])
        assert talk.posted() == []
        assert talk.house.table.ledger.unsent == {"filter-limit": 1}

    def test_believes_a_backend_that_does_not_have_the_item(self, talk: Talk) -> None:
        talk.publish(item(2, content=LONG))
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(subscribe(1, b"ch", "var-subst"))
        talk.updates()
        assert talk.posted() == []
        # It goes on from where the backend says it is.
        talk.publish(item(3, 1))
        assert self.notes(talk)[0] == texts(3)
        talk.updates()
        assert talk.posted() == []
        assert not talk.session.over

    def test_what_follows_it_waits_for_the_answer(self, talk: Talk) -> None:
        talk.publish(item(2, content=LONG), item(3))
        talk.updates()
        talk.publish(item(4))
        assert self.notes(talk)[0] == []
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(messages(2, 3), subscribe(3, b"ch", "var-subst"))
        assert self.notes(talk)[0] == texts(2, 3, 4)
        talk.updates()
        assert talk.posted() == []

    def test_what_waits_behind_it_in_a_filter_is_had_with_it(self) -> None:
        """A filter that asks has let later items in before the refusal is known."""
        talk = Talk().open(subscribe(1, b"ch", "http-check", "var-subst"))
        talk.session.meta = {**META, b"url": b"/check"}
        talk.publish(item(2, content=LONG), item(3))
        [(_, reply)] = talk.house.asks
        talk.house.asks.clear()
        reply(filters.AskAnswer(204, [], b""))
        assert talk.house.asks == []
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(messages(2, 3), subscribe(3, b"ch", "http-check", "var-subst"))
        assert self.notes(talk)[0] == texts(2, 3)
        talk.updates()
        assert talk.posted() == []

    def test_a_refusal_during_a_question_is_had_with_its_answer_or_asked_for_then(self, talk: Talk) -> None:
        talk.publish(item(3))
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.publish(item(4, content=LONG))
        talk.answer(messages(2, 3), subscribe(3, b"ch", "var-subst"))
        assert self.notes(talk)[0] == texts(2, 3)
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"3"),))]
        talk.answer(event(b"m:4"), subscribe(4, b"ch", "var-subst"))
        talk.updates()
        assert self.notes(talk)[0] == texts(4)
        assert talk.posted() == []


class TestActions:
    def act(self, action: Any, **ids: bytes) -> Item:
        form = StreamFormat(action)
        return Item(b"ch", ids.get("id"), ids.get("prev"), stream=form, meta=FOR_OTHERS)

    def test_a_dropped_close_advances_the_last_id(self, house: House) -> None:
        talk = Stream(house, want(b"ch", b"1", "skip-self"), meta={b"user": b"me"})
        house.publish(self.act("close", id=b"2", prev=b"1"), text(b"three", b"3", b"2"))
        assert talk.take() == [chunks(b"three")]
        assert not talk.updates()
        assert house.table.ledger.unsent == {"filter": 1}

    def test_a_dropped_close_behind_a_gap_hides_nothing(self, house: House) -> None:
        talk = Stream(house, want(b"ch", b"1", "skip-self"), meta={b"user": b"me"})
        house.publish(self.act("close", id=b"3", prev=b"2"), text(b"four", b"4", b"3"))
        assert talk.take() == []
        assert talk.updates()
        assert talk.question()[2] == ((b"ch", b"1"),)

    def test_a_hint_for_others(self, house: House) -> None:
        mine = poll(house, HELD, want(b"ch", None, "skip-self"), meta={b"user": b"me"})
        free = poll(house, HELD)
        house.publish(Item(b"ch", response=ResponseFormat("hint"), meta=FOR_OTHERS))
        assert (mine.take(), free.take()) == ([], [("retry", ())])

    @pytest.mark.parametrize("action", ["close", "refresh"])
    def test_of_websockets(self, action: Any) -> None:
        socket = Socket()
        socket.session.meta = {b"user": b"me"}
        socket.subscribed(b"ch", "skip-self")
        socket.publish(Item(b"ch", message=MessageFormat(action), meta=FOR_OTHERS))
        assert (socket.heard(), socket.told()) == ([], [])
        socket.publish(Item(b"ch", message=MessageFormat(action), meta={b"sender": b"you"}))
        assert socket.told() == ["end" if action == "close" else "refresh"]

    def test_a_refresh_does_not_overtake_what_waits_for_a_filter(self) -> None:
        socket = Socket()
        socket.session.meta = {b"url": b"/check"}
        socket.subscribed(b"ch", "http-check")
        refresh = Item(b"ch", message=MessageFormat("refresh"))
        socket.publish(Item(b"ch", message=MessageFormat("send", "text", b"a")), refresh, refresh)
        assert socket.told() == []
        [(_, reply)] = socket.house.asks
        reply(filters.AskAnswer(204, [], b""))
        assert [payload for _, payload in socket.heard()] == [b"a"]
        assert socket.told() == ["refresh"]
