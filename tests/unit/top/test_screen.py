"""gripproxy.top.screen: what is drawn, on screens of known size."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from gripproxy.grip.stats_format import encode
from gripproxy.live.model import LiveModel
from gripproxy.live.snapshot import Snapshot
from gripproxy.top.screen import MEANINGS, MIN_HEIGHT, MIN_WIDTH, plain, screen, text_of
from gripproxy.top.view import TABLES, View

A = "ipc:///run/gripproxy/pushpin-stats"


def picture(channels: int = 3, endpoints: tuple[str, ...] = (A,)) -> LiveModel:
    """Seen for ten seconds, the last two of them since the snapshot before."""
    picture = LiveModel(endpoints, 90)
    picture.connected(A, 90)
    picture.snapshot(98)

    def say(kind: str, **fields: bytes | int | bool) -> None:
        values = {name.replace("_", "-"): value for name, value in fields.items()}
        picture.take(A, encode(kind, {"from": b"gripproxy-handler_7", **values}, False), 99)

    for number in range(1234):
        say("conn", id=b"%d" % number, type=b"ws" if number < 34 else b"http", ssl=number < 4, ttl=120)
    for number in range(channels):
        say("sub", mode=b"stream", channel=b"room-%d" % number, subscribers=100 + number, ttl=60)
        say("message", channel=b"room-%d" % number, transport=b"http-stream", count=100 + number)
    say("report", duration=2000, connections=1300, received=40, sent=100, client_content_bytes_sent=30_000)
    say("delivery", written=303, dropped_filter=2)
    say("recovery", transport=b"http-stream", gaps=0, recoveries=0, requests=0, slow_clients=1)
    say("counts", requests_received=90)
    return picture


def lines(shot: Snapshot, view: View, width: int = 80, height: int = 24) -> list[str]:
    """Draw, and check that it has the size of the screen."""
    console = Console(width=width, height=height, color_system=None, _environ={})
    with console.capture() as capture:
        console.print(screen(shot, view, width, height), end="")
    drawn = capture.get().removesuffix("\n").split("\n")
    assert len(drawn) <= height
    assert max(map(len, drawn)) <= width
    return [line.rstrip() for line in drawn]


def press(view: View, *keys: str) -> View:
    for key in keys:
        view.press(key)
    return view


def test_a_usual_terminal() -> None:
    assert lines(picture().snapshot(100), View()) == [
        " gripproxy top  1 channels  2 routes  3 instances  4 drops  5 events   for 10 s",
        " ● live  ipc:///run/gripproxy/pushpin-stats",
        "",
        " connections   1,234 http 1,200  ws 34          requests       45.0 ·█",
        "                     tls 4  peak 1,300          new             617 gone 0",
        " subscribers     303 stream 303  ws 0           items           1.5 taken 20.0",
        "                     response 0  channels 3     deliveries      152 ·█",
        " drops             2 slow clients 1  filter 2   to clients          15.0 kB/s",
        "",
        " CHANNEL          RESPONSE  STREAM     WS  ITEMS/s  DELIV/s  DELIVERIES    LAST",
        " room-2                  ·     102      ·      0.5     51.0         102     1 s",
        " room-1                  ·     101      ·      0.5     50.5         101     1 s",
        " room-0                  ·     100      ·      0.5     50.0         100     1 s",
        *[""] * 10,
        " q quit  ? help  p pause  / filter  s sort: deliveries                 1-3 of 3",
    ]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("size", [(80, 24), (MIN_WIDTH, MIN_HEIGHT), (60, 15), (132, 43), (200, 60)])
def test_any_size_is_filled_and_not_more(table: str, size: tuple[int, int]) -> None:
    view = View()
    view.table = table
    drawn = lines(picture(100).snapshot(100), view, *size)
    assert len(drawn) == size[1]
    assert "q quit" in drawn[-1]


def test_a_screen_that_is_too_small_says_so() -> None:
    shot = picture().snapshot(100)
    assert lines(shot, View(), 39, 24) == ["needs 40 columns and 8 lines"]
    assert lines(shot, View(), 10, 3) == ["needs 40 c"]


def test_warnings_of_the_log() -> None:
    model = picture()
    for at, level, text in ((30, "error", "old"), (97, "warning", "item skipped: way=PULL"), (98, "error", "x" * 300)):
        fields: dict[str, bytes | int | bool] = {
            "from": b"gripproxy-handler_7", "process": b"handler", "level": level.encode(), "text": text.encode()
        }  # fmt: skip
        model.take(A, encode("log", fields, False), at)
    drawn = lines(model.snapshot(100), View())
    assert next(line for line in drawn if "!" in line).startswith(" ! handler: xxxx")
    assert " ! handler: item skipped: way=PULL (3 s ago)" in drawn
    assert not [line for line in drawn if "old" in line]


def test_large_screens_show_more() -> None:
    drawn = lines(picture(100).snapshot(100), View(), 132, 43)
    assert any("FROM BACKENDS" in line and "FROM CLIENTS" in line for line in drawn)
    assert drawn[-2].startswith(" (without id)")
    assert drawn[-1].endswith("1-29 of 100")


def test_scrolling_and_filter() -> None:
    shot = picture(100).snapshot(100)
    view = View("name")
    lines(shot, view)
    drawn = lines(shot, press(view, "page down"))
    assert drawn[-1].endswith("14-26 of 100")
    assert [line.split()[0] for line in drawn[10:13]] == ["room-20", "room-21", "room-22"]
    drawn = lines(shot, press(view, "/", *"m-7"))
    assert drawn[-1] == " filter: m-7▏  Enter keeps, Esc leaves it"
    assert {line.split()[0] for line in drawn[10:21]} == {"room-7", *(f"room-7{n}" for n in range(10))}
    drawn = lines(shot, press(view, *"xyz", "enter"))
    assert drawn[9] == " nothing has 'm-7xyz' in its name"
    assert "filter: m-7xyz" in drawn[-1]


def test_paused_and_help() -> None:
    shot = picture().snapshot(100)
    assert lines(shot, press(View(), "p"))[0].endswith("PAUSED")
    drawn = lines(shot, press(View(), "?"))
    assert any("q Ctrl-C" in line for line in drawn)
    assert "any key goes back" in drawn[-1] or any("any key goes back" in line for line in drawn)


def test_sockets_and_their_troubles() -> None:
    endpoints = (A, "tcp://b:1", "tcp://c:1")
    seen = picture(endpoints=endpoints)
    seen.hindered("tcp://b:1", "no ZeroMQ publisher answers there")
    drawn = lines(seen.snapshot(100), View(), 100, 40)
    assert drawn[1:4] == [
        " ○ not there, waiting for 10 s (no ZeroMQ publisher answers there)  tcp://b:1",
        " ○ not there, waiting for 10 s  tcp://c:1",
        " ● live  ipc:///run/gripproxy/pushpin-stats",
    ]
    drawn = lines(seen.snapshot(100), View(), 80, 24)
    assert drawn[2] == "  and 2 more sockets; all: 1 live, 2 waiting"
    seen.disconnected(A, 100)
    drawn = lines(seen.snapshot(103), View(), 100, 40)
    assert drawn[1] == " ○ lost for 3 s, waiting; figures are from before  ipc:///run/gripproxy/pushpin-stats"
    alone = LiveModel([A], 0)
    alone.connected(A, 0)
    assert lines(alone.snapshot(5), View())[1].startswith(" ● connected for 5 s, nothing has come yet")
    alone.take(A, b"x", 5)
    drawn = lines(alone.snapshot(125), View())
    assert drawn[1].startswith(" ● silent for 2 min  ipc://")
    assert drawn[8] == " ! 1 malformed message, the last one: no type and a space at its beginning"


def test_what_limits_the_truth() -> None:
    seen = LiveModel([A], 0, channels=10, present=2)
    seen.connected(A, 0)
    for number in range(30):
        event = {"from": b"pushpin-handler_1", "id": b"%d" % number, "type": b"ws", "ttl": 120}
        seen.take(A, encode("conn", event, False), 1)
        event = {"from": b"i", "channel": b"%d" % number, "mode": b"ws", "subscribers": 1, "ttl": 60}
        seen.take(A, encode("sub", event, False), 1)
    seen.take(A, encode("news", {"from": b"i"}, False), 1)
    for events, now in ((5, 2), (50, 3)):
        report = {"from": b"i", "duration": 1000, "events-sent": events}
        seen.take(A, encode("report", report, False), now)
    seen.overrun(A)
    drawn = "\n".join(lines(seen.snapshot(5), View(), 100, 40))
    assert re.search(r"connections +≥2 ", drawn)
    assert re.search(r"subscribers +≥2 ", drawn)
    for warning in (
        "1 events of types that are not known here",
        "44 events were sent and did not arrive",
        "this view did not keep up",
        "there is more than is kept in mind",
        "what was there before is told within 1 min; connections count as new then",
    ):
        assert f" ! {warning}" in drawn


def test_nothing() -> None:
    shot = LiveModel([A], 0).snapshot(1)
    for table in TABLES:
        view = View()
        view.table = table
        assert "no" in lines(shot, view)[9]


def test_names_from_outside_are_harmless() -> None:
    seen = LiveModel([A], 0)
    for channel in (b"\x1b[2J\x07\r\n", b"[bold]x[/bold]", "日本".encode() * 80):
        event = {"from": b"i\x1b", "channel": channel, "transport": b"ws-message", "count": 1}
        seen.take(A, encode("message", event, False), 0)
    shot = seen.snapshot(1)
    for table in TABLES:
        view = View()
        view.table = table
        drawn = "\n".join(lines(shot, view)) + text_of(plain(shot, View(), 10), 400)
        assert "\x1b" not in drawn
        assert "\x07" not in drawn
    drawn = text_of(plain(shot, View(), 10), 400)
    assert "\\x1b[2J\\x07\\r\\n" in drawn
    assert "[bold]x[/bold]" in drawn


def table(text: str, head: str) -> dict[str, list[str]]:
    """Return the rows of a table of plain text by their first word."""
    part = text[text.index(head) :].split("\n\n")[0]
    rows = [re.split(r" {2,}", line.strip()) for line in part.splitlines()[1:]]
    return {row[0]: row[1:] for row in rows}


def test_plain_text() -> None:
    text = text_of(plain(picture(30).snapshot(100), View(), 2), 400)
    assert text.startswith(f" ● live  {A}\n\nPER SECOND")
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    rates = table(text, "PER SECOND")
    assert rates["requests"] == ["45.0", "90"]
    assert rates["new connections"] == ["617", "1,234"]
    assert rates["deliveries"] == ["1,718", "3,435"]
    assert rates["http-stream"] == ["1,718", "3,435"]
    assert rates["items taken in (reports)"] == ["20.0", "40"]
    now = text[text.index("NOW ") :].split("\n\n")[0].splitlines()[1:]
    assert [line.replace(" ", "") for line in now] == [
        *("connections1,234", "http1,200", "ws34", "withtls4", "peak(reports)1,300"),
        *("subscribers3,435", "response0", "stream3,435", "ws0", "channelswithsubscribers30"),
    ]
    channels = table(text, "CHANNEL ")
    assert channels["room-29"] == ["·", "129", "·", "0.5", "64.5", "129", "1 s"]
    assert list(channels) == ["room-29", "room-28", "and 28 more"]
    assert table(text, "INSTANCE ")["gripproxy-handler_7"][-1] == A
    assert table(text, "WHAT ")["slow-clients"] == ["1", "+1", "1 s", MEANINGS["slow-clients"]]
    nothing = text_of(plain(LiveModel([A], 0).snapshot(1), View(), 2), 400)
    assert "channels: no channel has subscribers, or items" in nothing


def test_plain_text_is_not_cut() -> None:
    seen = LiveModel([A], 0)
    event = {"from": b"i", "channel": b"c" * 250, "transport": b"ws-message", "count": 1}
    seen.take(A, encode("message", event, False), 0)
    assert "c" * 250 in text_of(plain(seen.snapshot(1), View(), 2), 400)
