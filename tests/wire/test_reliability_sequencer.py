"""The order of items (docs/grip.md §6.2, §5.4)."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.wire.wirekit import Setup, Site, covers, hold
from tests.wire.wirekit.holding import stream

# What waits for its turn must not go out because the machine was busy for a second; but in one case that is the point.
SETUP = Setup(config={"handler.message_wait": 60_000})
SHORT = Setup(config={"handler.message_wait": 1000})


def item(channel: str, content: str, id: str | None, prev: str | None, **fields: object) -> dict[str, object]:
    """Return an item for the streams of a channel."""
    made: dict[str, object] = {"channel": channel, "formats": {"http-stream": {"content": content}}}
    if id is not None:
        made["id"] = id
    if prev is not None:
        made["prev-id"] = prev
    return {**made, **{name.replace("_", "-"): value for name, value in fields.items()}}


@covers("6.2 in order", "5.4 2 sequencing", "5.1 prev-id", "5.1 id", "6.1 state")
def test_items_wait_for_the_one_before(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.publish(item(case, "1", "1", "0"))
        site.publisher.publish(*[item(case, id, id, prev) for id, prev in (("4", "3"), ("3", "2"), ("5", "4"))])
        assert client.data(1) == b"1"
        assert client.silent(0.1)
        site.publisher.publish(item(case, "2", "2", "1"))
        assert client.data(4) == b"2345"


@covers("6.2 in order")
def test_without_prev_id_an_item_is_next_in_any_case(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.publish(item(case, "a", "1", None), item(case, "b", "7", None), item(case, "c", "8", "7"))
        assert client.data(3) == b"abc"
        # An item without id: the last id is forgotten, so any prev-id is right.
        site.publisher.publish(item(case, "d", None, None), item(case, "e", "20", "19"))
        assert client.data(2) == b"de"


@covers("6.2 same prev-id")
def test_a_second_item_with_the_same_prev_id_is_dropped(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.publish(item(case, "1", "1", None), item(case, "3", "3", "2"), item(case, "x", "x", "2"))
        site.publisher.publish(item(case, "2", "2", "1"))
        assert client.data(3) == b"123"
        assert client.silent(0.1)


@covers("6.2 not sequenced", "5.1 no-seq", "15 7 no-seq")
def test_no_seq_skips_the_order_but_not_the_duplicate_check(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.publish(item(case, "1", "1", None))
        site.publisher.publish(item(case, "9", "9", "8", no_seq=True), item(case, "9", "9", "8", no_seq=True))
        site.publisher.publish(item(case, "1", "1", None, no_seq=True))
        # The last id is still 1.
        site.publisher.publish(item(case, "2", "2", "1"))
        assert client.data(3) == b"192"


@covers("5.4 1 duplicate", "6.2 not sequenced", "15 7 no-seq")
def test_ids_are_remembered_without_subscribers(site: Site, case: str) -> None:
    site.publisher.publish(item(case, "early", "1", None), item(case, "early", "3", "2"))
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.publish(
            item(case, "again", "1", None), item(case, "again", "3", "2"), item(case, "new", "4", "x")
        )
        assert client.data(3) == b"new"


@covers("6.2 wait over", "10 sequencer")
def test_after_message_wait_an_item_goes_out_anyway(start: Callable[[Setup], Site], case: str) -> None:
    site = start(SHORT)
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        site.publisher.publish(item(case, "1", "1", None))
        assert client.data(1) == b"1"
        begin = time.monotonic()
        site.publisher.publish(item(case, "3", "3", "2"))
        assert client.data(1) == b"3"
        # It is looked at once a second.
        assert time.monotonic() - begin > 0.9
        # It went out as if it had been in order.
        site.publisher.publish(item(case, "4", "4", "3"))
        assert client.data(1) == b"4"
