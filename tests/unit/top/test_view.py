"""gripproxy.top.view: keys in, what is looked at out."""

from __future__ import annotations

from gripproxy.grip.stats_format import encode
from gripproxy.live.model import LiveModel
from gripproxy.live.snapshot import Snapshot
from gripproxy.top.view import SORTS, TABLES, View


def snapshot() -> Snapshot:
    """Three channels: a has most subscribers, b most deliveries, C most items; d only subscribers."""
    picture = LiveModel(["ipc:///a"], 0)
    picture.connected("ipc:///a", 0)

    def say(kind: str, now: float, **fields: bytes | int) -> None:
        picture.take("ipc:///a", encode(kind, {"from": b"i", **fields}, False), now)

    for channel, subscribers, items, deliveries in (
        (b"a", 9, 1, 10),
        (b"b", 5, 2, 30),
        (b"C", 2, 5, 1),
        (b"d", 1, 0, 0),
    ):
        say("sub", 0, mode=b"ws", channel=channel, subscribers=subscribers, ttl=60)
        for number in range(items):
            say("message", 2.0 + number, channel=channel, transport=b"ws-message", count=deliveries)
    say("report", 5, duration=1000)
    say("conn", 5, id=b"1", type=b"http", route=b"r", ttl=60)
    say("delivery", 6, written=5)
    return picture.snapshot(10)


SHOT = snapshot()


def press(view: View, *keys: str) -> View:
    for key in keys:
        view.press(key)
    return view


def names(view: View) -> list[str]:
    return [row.name for row in view.rows(SHOT)]


def test_each_order_of_channels() -> None:
    view = View()
    found = {}
    for _ in SORTS["channels"]:
        found[view.sort] = names(view)
        view.press("s")
    assert found == {
        "deliveries": ["b", "a", "C", "d"],
        "items": ["C", "b", "a", "d"],
        "subscribers": ["a", "b", "C", "d"],
        "total": ["b", "a", "C", "d"],
        "last": ["C", "b", "a", "d"],
        "name": ["C", "a", "b", "d"],
    }
    assert view.sort == "deliveries"
    assert press(view, "S").sort == "name"
    assert View("items").sort == "items"


def test_every_order_of_every_table_sorts() -> None:
    view = View()
    for table in TABLES:
        view.table = table
        for _ in range(max(1, len(SORTS[table]))):
            assert view.rows(SHOT)
            view.press("s")


def test_tables() -> None:
    view = View()
    seen = []
    for _ in TABLES:
        seen.append(view.table)
        view.press("tab")
    assert seen == list(TABLES)
    assert view.table == TABLES[0]
    assert press(view, "left").table == TABLES[-1]
    assert press(view, "3").table == "instances"
    assert press(view, "9", "0", "²").table == "instances"


def test_filter() -> None:
    view = press(View(), "/", "c")
    assert view.editing
    assert names(view) == ["C"]
    press(view, "q", "backspace", "enter", "j")
    assert (view.filter, view.editing, view.over) == ("c", False, False)
    # Escape leaves the text as it was before; and without the editing, none.
    press(view, "/", "clear", "x", "escape")
    assert view.filter == "c"
    assert press(view, "tab").filter == ""
    assert press(view, "backtab").filter == "c"
    assert press(view, "escape").filter == ""
    assert names(View(filter="B")) == ["b"]
    press(view, "/", *("x" * 200))
    assert len(view.filter) == 60


def test_filter_of_drops_and_events() -> None:
    view = press(View(), "4", "/", "r", "i", "t")
    assert view.rows(SHOT) == [("written", 5, 5, 4)]
    press(view, "enter", "5", "/", *"channel=d")
    assert [row.kind for row in view.rows(SHOT)] == ["sub"]


def test_scrolling_stays_within_the_rows() -> None:
    view = View()
    assert view.window(100, 10) == range(10)
    assert press(view, "down", "j", "k").first == 1
    press(view, "page down")
    assert view.window(100, 10) == range(11, 21)
    press(view, "G")
    assert view.window(100, 10) == range(90, 100)
    press(view, "page up", "up")
    assert view.window(100, 10) == range(79, 89)
    assert view.window(5, 10) == range(5)
    press(view, "down")
    assert view.window(5, 10) == range(5)
    press(view, "end", "home")
    assert view.window(0, 10) == range(0)
    press(view, "page down", "s")
    assert view.first == 0


def test_pause_help_and_the_end() -> None:
    view = press(View(), "p")
    assert view.paused
    assert not press(view, " ").paused
    assert press(view, "?").help
    press(view, "p")
    assert (view.help, view.paused, view.over) == (False, False, False)
    assert press(view, "?", "q").over
    assert press(View(), "q").over
    assert press(View(), "/", "quit").over
    assert not press(View(), "x", "redraw", "page").over
