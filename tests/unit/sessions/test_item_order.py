"""The check of every item at a long-poll with an id (docs/grip.md §6.3), whatever comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip.item import Item, ResponseFormat, StreamFormat
from gripproxy.grip.response import Response
from gripproxy.sessions.response import ResponseHold, ResponseTerms
from tests.support.session_doubles import Client, House, want

ids = st.none() | st.sampled_from([b"1", b"2", b"3", b"4"])
kinds = st.sampled_from(["answer", "answer", "answer", "mine", "stream"])
items = st.lists(st.tuples(kinds, ids, ids), max_size=12)

ME = {b"user": b"me"}


def published(place: int, kind: str, item_id: bytes | None, prev_id: bytes | None) -> Item:
    """``mine`` comes from the client itself, whose filter drops it; ``stream`` is nothing for long-polls."""
    if kind == "stream":
        return Item(b"ch", item_id, prev_id, stream=StreamFormat("send", b"x"))
    meta = {b"sender": b"me"} if kind == "mine" else {}
    return Item(b"ch", item_id, prev_id, response=ResponseFormat(body=b"%d" % place), meta=meta)


class Model:
    """What a poll that began at ``last`` has after each item: ``behind`` once one of them did not follow."""

    def __init__(self, last: bytes | None) -> None:
        self.last = last
        self.behind = False
        self.body: bytes | None = None

    def take(self, place: int, kind: str, item_id: bytes | None, prev_id: bytes | None) -> None:
        follows = self.last is None or prev_id == self.last
        contained = self.last is not None and item_id == self.last
        if self.body is not None or contained:
            return
        if kind == "stream":
            if self.last is not None and follows and item_id is not None:
                self.last = item_id
            return
        if not follows:
            self.behind = True
            return
        if self.last is not None:
            self.last = item_id
        if kind == "answer":
            self.body = b"%d" % place


@given(ids, items)
def test_an_item_answers_if_it_follows_and_else_the_backend_is_asked_with_the_last_that_did(
    prev_id: bytes | None, arriving: list[tuple[str, bytes | None, bytes | None]]
) -> None:
    house, client, model = House(), Client(), Model(prev_id)
    terms = ResponseTerms(Response(200, b"OK", [], b"held"), 55, ME, None, b"", False)
    hold = ResponseHold(client, house.context, terms, 1)
    hold.start([want(b"ch", prev_id, "skip-self")], 8)
    house.confirm()
    for place, (kind, item_id, before) in enumerate(arriving):
        house.publish(published(place, kind, item_id, before))
        model.take(place, kind, item_id, before)
        assert hold.over == (model.body is not None)
        if not hold.over:
            assert hold.subscriptions[0].prev_id == model.last
            assert (len(house.scheduler) == 1) == model.behind
    if model.body is not None:
        ((what, response),) = client.take()
        assert (what, response.body) == ("respond", model.body)
        assert len(house.scheduler) == len(house.table) == len(house.wheel) == 0
        return
    assert client.take() == []
    hold.update()
    assert client.take() == [("retry", ((b"ch", model.last),) if model.last is not None else ())]
