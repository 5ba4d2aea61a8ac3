"""Whom an item's action concerns when its subscriptions have filters (docs/grip.md §7): streams and long-polls."""

from __future__ import annotations

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect, hold, response
from tests.wire.wirekit.holding import long_poll, stream

SETUP = Setup(routes="* {backend}\n")

FOR_OTHERS = {
    "skip-self": {"sender": "alice"},
    "skip-users": {"skip_users": "carl, alice"},
    "require-sub": {"require_sub": "elsewhere"},
}
"""Item meta by the filter that keeps such an item from alice."""

FOR_ALL = {
    "skip-self": {"sender": "bob"},
    "skip-users": {"skip_users": "bob"},
    "require-sub": {"require_sub": ""},
}


def hints_reach_all() -> bool:
    """Tell whether a hint is carried out for long-polls whose filters would drop the item's content."""
    return expect(
        pushpin=True,
        ours=False,
        pushpin_does="Carries out a hint for every long-poll of the channel, also for those whose filters drop the "
        "item.",
        ours_does="Carries out a hint only for long-polls whose delivery filters pass the item.",
        because="A close concerns streams by the same rule.",
    )


@covers("7 actions")
@pytest.mark.parametrize("name", FOR_OTHERS)
def test_close_of_streams(site: Site, case: str, name: str) -> None:
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter={name}", "Grip-Set-Meta: user=alice"))
    site.backend.on(f"/{case}-free", hold("stream", case, "Grip-Set-Meta: user=alice"))
    with stream(site, f"/{case}") as filtered, stream(site, f"/{case}-free") as free:
        site.publisher.stream(case, "first\n")
        assert filtered.data_until(b"\n") == free.data_until(b"\n") == b"first\n"
        closing = {"channel": case, "formats": {"http-stream": {"action": "close"}}}
        site.publisher.publish({**closing, "meta": FOR_OTHERS[name]})
        assert free.rest() == b""
        site.publisher.stream(case, "second\n")
        assert filtered.data_until(b"\n") == b"second\n"
        site.publisher.publish({**closing, "meta": FOR_ALL[name]})
        assert filtered.rest() == b""


@covers("7 actions")
@pytest.mark.parametrize("name", FOR_OTHERS)
def test_hint_for_long_polls(site: Site, case: str, name: str) -> None:
    held = hold("response", f"{case}; filter={name}", "Grip-Set-Meta: user=alice")
    site.backend.on(f"/{case}", [held, response("200 OK", body="again\n")])
    held = hold("response", f"{case}-all; filter={name}", "Grip-Set-Meta: user=alice")
    site.backend.on(f"/{case}-all", [held, response("200 OK", body="again\n")])
    with long_poll(site, f"/{case}", case) as client:
        hint = {"channel": case, "formats": {"http-response": {"action": "hint"}}}
        site.publisher.publish({**hint, "meta": FOR_OTHERS[name]})
        if hints_reach_all():
            assert client.response().body == b"again\n"
            return
        # An item behind the hint is the answer: the hint had none.
        site.publisher.answer(case, "published\n")
        assert client.response().body == b"published\n"
        assert site.backend.count(f"/{case}") == 1
    with long_poll(site, f"/{case}-all", f"{case}-all") as client:
        site.publisher.publish({**hint, "channel": f"{case}-all", "meta": FOR_ALL[name]})
        assert client.response().body == b"again\n"


@covers("7 actions", "7 drop prev-id")
def test_a_dropped_close_advances_the_last_id(site: Site, case: str) -> None:
    link = f"Grip-Link: </{case}-next>; rel=next; timeout=60"
    site.backend.on(f"/{case}-next", hold("stream", f"{case}; prev-id=9", link, body="from the link\n"))
    site.backend.on(
        f"/{case}", hold("stream", f"{case}; prev-id=1; filter=skip-self", link, "Grip-Set-Meta: user=alice")
    )
    with stream(site, f"/{case}") as client:
        closing = {"channel": case, "formats": {"http-stream": {"action": "close"}}, "meta": {"sender": "alice"}}
        site.publisher.publish({**closing, "id": "2", "prev-id": "1"})
        site.publisher.stream(case, "third\n", id="3", prev_id="2")
        assert client.data_until(b"\n") == b"third\n"
        assert site.backend.count(f"/{case}-next") == 0


@covers("7 actions")
def test_content_filters_do_not_look_at_an_action(site: Site, case: str) -> None:
    """What cannot be rendered for want of a variable has no part in a close."""
    site.backend.on(f"/{case}", hold("stream", f"{case}; filter=var-subst"))
    with stream(site, f"/{case}") as client:
        site.publisher.end(case)
        assert client.rest() == b""
