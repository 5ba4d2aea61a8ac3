"""Answers to what a WebSocket with ids asks: what comes meanwhile, what they name, and those that do not help."""

from __future__ import annotations

import pytest

from gripproxy.grip.close_frame import close_payload
from gripproxy.grip.frames import CLOSE, TEXT
from gripproxy.sessions.websocket_over_http import RETRIES
from tests.unit.sessions.test_reliable_websocket import QUESTION, Talk, action, event, item, messages, subscribe, texts


@pytest.fixture
def talk() -> Talk:
    return Talk().open(subscribe(1))


class TestItemsDuringAQuestion:
    @pytest.fixture
    def asking(self, talk: Talk) -> Talk:
        talk.publish(action("hint"))
        talk.posted()
        return talk

    def test_wait_and_follow_the_answer(self, asking: Talk) -> None:
        asking.publish(item(2), item(3), item(4))
        assert asking.heard() == []
        asking.answer(messages(2, 3), subscribe(3))
        assert asking.heard() == texts(2, 3, 4)

    def test_follow_also_if_the_answer_subscribes_first(self, asking: Talk) -> None:
        asking.publish(item(4))
        asking.answer(subscribe(3), messages(2, 3))
        assert asking.heard() == texts(2, 3, 4)

    def test_that_come_behind_the_answer_are_checked_against_it(self, asking: Talk) -> None:
        asking.answer(messages(2, 3), subscribe(3))
        asking.publish(item(2), item(3), item(4))
        asking.updates()
        assert asking.heard() == texts(2, 3, 4)

    def test_that_fit_nothing_are_asked_for(self, asking: Talk) -> None:
        asking.publish(item(9))
        asking.answer(subscribe(1))
        assert asking.heard() == []
        asking.updates()
        assert asking.posted() == [(QUESTION, ((b"ch", b"1"),))]

    def test_only_so_many_wait_and_the_rest_is_asked_for(self, asking: Talk) -> None:
        asking.publish(*[item(number) for number in range(2, 110)])
        asking.answer(subscribe(1))
        assert asking.heard() == texts(*range(2, 102))
        asking.updates()
        assert asking.posted() == [(QUESTION, ((b"ch", b"101"),))]
        asking.answer(messages(*range(102, 110)), subscribe(109))
        asking.updates()
        assert asking.heard() == texts(*range(102, 110))
        assert asking.posted() == []

    def test_of_a_channel_the_answer_leaves_are_dropped(self, asking: Talk) -> None:
        asking.publish(item(2))
        asking.answer(event(b'c:{"type":"unsubscribe","channel":"ch"}'))
        asking.publish(item(3))
        assert asking.heard() == []
        assert asking.house.table.get(b"ch") is None

    def test_a_close_comes_behind_them(self, asking: Talk) -> None:
        asking.publish(item(2), action("close"), item(3))
        asking.answer(subscribe(1))
        assert asking.heard() == [*texts(2), (CLOSE, close_payload(1000, b""))]

    def test_a_new_channel_of_the_answer_holds_everything_back_until_it_is_confirmed(self, asking: Talk) -> None:
        asking.publish(item(3))
        asking.answer(messages(2), subscribe(2), subscribe(5, b"new"))
        assert asking.heard() == texts(2)
        asking.house.confirm(recent=b"6")
        assert asking.heard() == texts(3)
        asking.updates()
        assert asking.posted() == [(QUESTION, ((b"ch", b"3"), (b"new", b"5")))]


class TestAnswersWithoutIds:
    """What the answer does not name keeps the id it had."""

    def test_with_nothing_missing_are_answers(self, talk: Talk) -> None:
        talk.publish(action("hint"), item(2))
        talk.posted()
        talk.answer()
        assert talk.heard() == texts(2)
        talk.house.pass_time(40)
        talk.updates()
        assert talk.posted() == []

    def test_with_something_missing_are_none(self, talk: Talk) -> None:
        talk.publish(item(3))
        talk.updates()
        for pause in RETRIES:
            assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
            talk.answer()
            talk.publish(item(5))
            talk.updates()
            talk.house.pass_time(pause - 0.2)
            talk.updates()
            assert talk.posted() == []
            talk.house.pass_time(1)
            talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer()
        assert talk.heard() == [("drop", "the backend does not say what the client missed")]
        assert len(talk.house.table) == len(talk.house.wheel) == len(talk.house.scheduler) == 0

    def test_are_believed_about_an_item_that_has_not_come(self) -> None:
        talk = Talk().open(subscribe(7), confirm=False)
        talk.house.confirm(recent=b"5")
        talk.updates()
        assert len(talk.posted()) == 1
        talk.answer()
        talk.house.pass_time(60)
        talk.updates()
        assert talk.posted() == []
        talk.publish(item(8))
        assert talk.heard() == texts(8)

    def test_do_not_keep_the_named_channels_from_going_on(self) -> None:
        talk = Talk().open(subscribe(1), subscribe(7, b"other"))
        talk.publish(item(3), action("hint"), item(9, None, b"other"))
        talk.answer(event(b"m:8"), subscribe(8, b"other"))
        assert talk.heard() == texts(8, 9)
        talk.posted()
        talk.publish(item(10, None, b"other"))
        assert talk.heard() == texts(10)
        talk.house.pass_time(2)
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"), (b"other", b"10")))]

    def test_that_insist_on_an_older_id_are_believed_the_second_time(self, talk: Talk) -> None:
        talk.publish(item(9))
        for _ in range(2):
            talk.updates()
            assert len(talk.posted()) == 1
            talk.answer(subscribe(1))
        talk.updates()
        assert talk.posted() == []
        talk.publish(item(2))
        assert talk.heard() == texts(2)


class TestAnswersInParts:
    def test_are_asked_for_until_nothing_is_missing(self, talk: Talk) -> None:
        talk.publish(item(9))
        for last in (3, 5, 7):
            talk.updates()
            assert talk.posted() == [(QUESTION, ((b"ch", b"%d" % (last - 2)),))]
            talk.answer(messages(last - 1, last), subscribe(last))
        talk.updates()
        talk.answer(messages(8, 9), subscribe(9))
        talk.posted()
        talk.updates()
        assert talk.posted() == []
        talk.publish(item(10))
        assert talk.heard() == texts(*range(2, 11))

    def test_that_come_to_no_end_are_believed_some_day(self, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gripproxy.sessions.recovery.PARTS_MAX", 5)
        talk.publish(item(9))
        for count in range(7):
            talk.updates()
            assert len(talk.posted()) == 1
            talk.answer(event(b"m:hello"), subscribe(100 + count))
        talk.updates()
        assert talk.posted() == []


class TestFailures:
    @pytest.mark.parametrize("code", [500, 404])
    def test_are_tried_again_and_events_go_on(self, talk: Talk, code: int) -> None:
        talk.publish(item(3))
        talk.updates()
        for pause in RETRIES:
            assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
            talk.answer(code=code)
            talk.say(b"x")
            assert talk.posted() == [(event(b"x"), ())]
            talk.answer(event(b"m:y"))
            assert talk.heard() == [(TEXT, b"y")]
            talk.publish(action("hint"), item(3))
            talk.updates()
            talk.house.pass_time(pause - 0.2)
            talk.updates()
            assert talk.posted() == []
            talk.house.pass_time(1)
            talk.house.pass_time(3)  # as long as requests to a backend that fails may be held back
            talk.updates()
        talk.posted()
        talk.answer(code=code)
        assert talk.heard() == [("drop", f"the backend answered events with {code}")]
        assert talk.house.scheduler.asking == 0

    @pytest.mark.parametrize("retry", [True, False])
    def test_of_the_connection_are_the_same(self, talk: Talk, retry: bool) -> None:
        talk.publish(item(3))
        talk.updates()
        talk.posted()
        talk.fail(retry)
        talk.house.pass_time(5)
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"1"),))]
        talk.answer(messages(2, 3), subscribe(3))
        assert talk.heard() == texts(2, 3)

    @pytest.mark.parametrize("body", [b"TEXT x\r\n", b"TEXT 5\r\nhel"], ids=["wrong", "ends inside an event"])
    def test_malformed_events_are_the_same(self, talk: Talk, body: bytes) -> None:
        talk.publish(item(3))
        talk.updates()
        talk.posted()
        talk.answer(body)
        assert talk.heard() == []
        talk.house.pass_time(5)
        talk.updates()
        assert len(talk.posted()) == 1

    def test_what_follows_does_not_wait_for_the_next_try(self, talk: Talk) -> None:
        talk.publish(action("hint"), item(2))
        talk.answer(code=500)
        talk.publish(item(3))
        assert talk.heard() == texts(2, 3)

    def test_do_not_forget_that_there_may_be_more_than_any_item_tells(self, talk: Talk) -> None:
        """The answer to a hint that has something is followed by one more question, also if it took two tries."""
        talk.publish(action("hint"), item(2))
        talk.answer(code=500)
        talk.posted()
        assert talk.heard() == texts(2)
        talk.house.pass_time(5)
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"2"),))]
        talk.publish(item(4))
        talk.answer(messages(3, 4), subscribe(4))
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"4"),))]

    def test_with_nothing_missing_do_not_cost_the_connection(self, talk: Talk) -> None:
        talk.house.pass_time(121)
        talk.updates()
        for pause in RETRIES:
            assert len(talk.posted()) == 1
            talk.answer(code=503)
            talk.house.pass_time(pause + 4)
            talk.updates()
        talk.posted()
        talk.answer(code=503)
        talk.publish(item(2))
        assert talk.heard() == texts(2)
        talk.house.pass_time(122)
        talk.updates()
        assert talk.posted() == [(QUESTION, ((b"ch", b"2"),))]

    def test_events_that_fail_still_cost_the_connection(self, talk: Talk) -> None:
        talk.say(b"x")
        talk.answer(code=500)
        assert talk.heard() == [("drop", "the backend answered events with 500")]
