"""gripproxy.cli.hub: the commands against a hub in memory."""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gripproxy.cli import main as cli
from tests.support.ports import free_ports
from tests.support.small_hub import Fault, SmallHub, hub_of_commands, wait_until


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallHub]:
    with hub_of_commands(monkeypatch) as hub:
        yield hub


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Replace the standard input by a pipe with the given content."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as file, os.fdopen(writing, "wb", 0) as sink:
        monkeypatch.setattr(sys, "stdin", file)

        def write(content: bytes) -> None:
            sink.write(content)
            sink.close()

        yield write


class Out:
    """Runs commands; looks at their output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def ok(self, *argv: str) -> str:
        status = cli.main(["hub", *argv])
        out, err = self._capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    def bad(self, *argv: str, status: int = 1) -> str:
        """Return the standard error of a command that fails."""
        try:
            found = cli.main(["hub", *argv])
        except SystemExit as stop:
            found = int(str(stop.code))
        out, err = self._capsys.readouterr()
        assert (found, out) == (status, ""), err
        return err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Out:
    return Out(capsys)


def data(hub: SmallHub, topic: str = "t") -> list[Any]:
    return [event.get("data") for event in hub.topics[topic].events]


class TestTopics:
    def test_a_topic_is_made_shown_listed_and_deleted(self, hub: SmallHub, run: Out) -> None:
        options = ["--age=7d", "--events=100", "--bytes=2G", "--compact", "--progress=5", "--label", "team=a=b"]
        assert run.ok("topics", "make", "news", *options) == "made news\n"
        assert hub.topics["news"].settings == {
            "retention": {"age": 604800, "events": 100, "bytes": 2**31, "compact": True},
            "progress": 5,
            "labels": {"team": "a=b"},
        }
        assert run.ok("topics", "make", "news") == "changed news\n"
        assert hub.topics["news"].settings == {}
        assert "retention.compact  no\n" in run.ok("topics", "show", "news")
        assert [line.split()[0] for line in run.ok("topics").splitlines()] == ["NAME", "news", "t"]
        assert run.ok("topics", "delete", "news") == "deleted news\n"
        assert list(hub.topics) == ["t"]

    def test_a_soft_topic_is_made(self, hub: SmallHub, run: Out) -> None:
        url = "https://shop.example/shelf?at=now"
        run.ok("topics", "make", "shelf", "--store=none", f"--snapshot-url={url}", "--progress=1")
        assert hub.topics["shelf"].settings == {"store": "none", "snapshot_url": url, "progress": 1}
        run.ok("topics", "make", "stored", "--store", "disk")
        assert hub.topics["stored"].settings == {"store": "disk"}

    def test_json(self, hub: SmallHub, run: Out) -> None:
        made = json.loads(run.ok("topics", "make", "P/T", "--json"))
        assert made == json.loads(run.ok("topics", "show", "P/T", "--json"))
        assert [json.loads(line)["name"] for line in run.ok("topics", "list", "--json").splitlines()] == ["P/T", "t"]

    def test_a_long_list_is_asked_for_in_pages(self, hub: SmallHub, run: Out, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gripproxy.cli.hub.PAGE", 2)
        for name in "abcd":
            run.ok("topics", "make", name)
        hub.requests.clear()
        assert len(run.ok("topics").splitlines()) == 6
        assert len(hub.requests) == 3

    def test_misuse(self, hub: SmallHub, run: Out) -> None:
        assert "topics list has no TOPIC" in run.bad("topics", "list", "t", status=2)
        assert "topics delete needs a TOPIC" in run.bad("topics", "delete", status=2)
        assert "invalid choice: 'remove'" in run.bad("topics", "remove", "t", status=2)
        assert "must be NAME=VALUE" in run.bad("topics", "make", "t", "--label=x", status=2)
        assert "whole number above 0, not '0'" in run.bad("topics", "make", "t", "--events=0", status=2)
        assert "invalid choice: 'memory'" in run.bad("topics", "make", "t", "--store=memory", status=2)
        assert hub.requests == []

    def test_a_topic_that_does_not_exist(self, hub: SmallHub, run: Out) -> None:
        assert run.bad("topics", "show", "x") == (
            "gripproxy hub topics: error: there is no topic 'x' (404 not-found)\n"
        )


class TestMailboxes:
    def test_they_are_listed(self, hub: SmallHub, run: Out) -> None:
        assert run.ok("mailboxes") == "SUBSCRIBER  SUBSCRIPTIONS  MESSAGES  BYTES  POLL HELD  IDLE\n"
        numbers = {"subscriptions": 2, "messages": 13, "bytes": 4096, "held": True, "idle": 0.4, "sequence": 1}
        hub.mailboxes = [{"subscriber": "kitchen", **numbers}, {"subscriber": "\x1b[2J", **numbers, "held": False}]
        assert run.ok("mailboxes").splitlines()[1:] == [
            "kitchen                 2        13   4096  yes        0 s",
            r"\x1b[2J                 2        13   4096  no         0 s",
        ]
        assert [json.loads(line) for line in run.ok("mailboxes", "--json").splitlines()] == hub.mailboxes

    def test_a_token_that_is_missing(self, hub: SmallHub, run: Out) -> None:
        hub.token = "secret"
        assert "no token that the hub knows (401 unauthorized)" in run.bad("mailboxes")


class TestSubscriptions:
    def test_they_are_listed(self, hub: SmallHub, run: Out) -> None:
        head = "TOPIC  SUBSCRIPTION  STATE  POSITION  NEWEST  LAG  DELIVERED  FAILURES  IN FLIGHT\n"
        assert run.ok("subscriptions") == head
        places = {"position": "e1.7", "newest": "e1.9", "delivered": 7}
        hub.subscriptions = [
            {"topic": "t", "subscription_id": "a", "state": "live", "lag": 1.25, "failures": {}, "in_flight": True}
            | places,
            {"topic": "u", "subscription_id": "\x1b[2J", "state": "resting", "reason": "callback"}
            | {"lag": 60.0, "failures": {"timeout": 10, "tls": 1}, "in_flight": False, **places},
        ]
        hub.page = 1
        assert run.ok("subscriptions").splitlines()[1:] == [
            "t      a             live                e1.7      e1.9    1 s           7  -                  yes",
            r"u      \x1b[2J       resting (callback)  e1.7      e1.9    60 s          7  timeout 10, tls 1  no",
        ]
        assert [json.loads(line) for line in run.ok("subscriptions", "t", "--json").splitlines()] == [
            hub.subscriptions[0]
        ]

    def test_those_of_the_push_api(self, hub: SmallHub, run: Out) -> None:
        figures = {"backlog": 1200, "oldest_age": 61.4, "leased": 3, "reason": None}
        hub.subscriptions = [
            {"name": "projects/p/subscriptions/a", "topic": "p/t", "state": "pushing", "window": 24, "pause": 0.5}
            | {"answers": {"ack": 7, "unreachable": 2}, "latency": 0.0125, **figures},
            {"name": "projects/p/subscriptions/b", "topic": None, "state": "pulled", "window": None, "pause": None}
            | {"answers": {}, "latency": None, **figures},
            {"name": "projects/p/subscriptions/c", "topic": "p/t", "state": "stopped", "window": 3, "pause": 0.0}
            | {"answers": {}, "latency": None, **figures, "reason": "no consent \x1b[2J"},
        ]
        hub.page = 2
        shown = run.ok("subscriptions", "--push").splitlines()
        assert [re.split("  +", line) for line in shown] == [
            ["SUBSCRIPTION", "TOPIC", "STATE", "BACKLOG", "OLDEST", "LEASED", "WINDOW", "PAUSE", "ANSWERS", "LATENCY"],
            ["p/a", "p/t", "pushing", "1200", "61 s", "3", "24", "0.5 s", "ack 7, unreachable 2", "12.5 ms"],
            ["p/b", "-", "pulled", "1200", "61 s", "3", "-", "-", "-", "-"],
            ["p/c", "p/t", r"stopped (no consent \x1b[2J)", "1200", "61 s", "3", "3", "0.0 s", "-", "-"],
        ]
        lines = run.ok("subscriptions", "p/t", "--push", "--json").splitlines()
        assert [json.loads(line) for line in lines] == [hub.subscriptions[0], hub.subscriptions[2]]


class TestPublish:
    def test_text(self, hub: SmallHub, run: Out) -> None:
        assert run.ok("publish", "t", "héllo") == "published 1 event, the last one is e1.1\n"
        (event,) = hub.topics["t"].events
        assert (event["data"], event["content_type"]) == ("héllo", "text/plain; charset=utf-8")

    def test_json_with_everything(self, hub: SmallHub, run: Out) -> None:
        run.ok("publish", "t", '{"a": 1}', "--json", "--key=k", "--attribute=n=v", "--attribute=m=")
        (event,) = hub.topics["t"].events
        assert event["data_base64"] == "eyJhIjogMX0="
        assert (event["content_type"], event["key"], event["attributes"]) == (
            "application/json",
            "k",
            {"n": "v", "m": ""},
        )

    def test_a_deletion(self, hub: SmallHub, run: Out) -> None:
        run.ok("publish", "t", "--key=k", "--delete")
        (event,) = hub.topics["t"].events
        assert (event["op"], event["key"], "data" in event) == ("delete", "k", False)

    def test_a_file(self, hub: SmallHub, run: Out, tmp_path: pathlib.Path) -> None:
        (tmp_path / "x").write_bytes(b"\xff\x00")
        run.ok("publish", "t", f"@{tmp_path}/x", "--content-type=image/x")
        run.ok("publish", "t", f"@{tmp_path}/x")
        kinds = [(event["data_base64"], event["content_type"]) for event in hub.topics["t"].events]
        assert kinds == [("/wA=", "image/x"), ("/wA=", "application/octet-stream")]

    def test_several(self, hub: SmallHub, run: Out) -> None:
        assert run.ok("publish", "t", "a", "b", "c") == "published 3 events, the last one is e1.3\n"
        run.ok("publish", "t", "d", "e", "--atomic", "--if-match=e1.3")
        assert data(hub) == list("abcde")
        assert [event["version"] for event in hub.topics["t"].events][3:] == ["5", "5"]

    def test_lines_of_the_input(self, hub: SmallHub, run: Out, feed: Callable[[bytes], None]) -> None:
        threading.Thread(target=feed, args=(b"a\nb\r\n\nno end",)).start()
        assert run.ok("publish", "t") == "published 4 events, the last one is e1.4\n"
        assert data(hub) == ["a", "b", "", "no end"]

    def test_an_empty_input(self, hub: SmallHub, run: Out, feed: Callable[[bytes], None]) -> None:
        feed(b"")
        assert run.ok("publish", "t") == "published no event\n"

    def test_a_file_as_input(
        self, hub: SmallHub, run: Out, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "x").write_text("".join(f"{number}\n" for number in range(5000)))
        with open(tmp_path / "x") as file:
            monkeypatch.setattr(sys, "stdin", file)
            assert run.ok("publish", "t", "--json").startswith("published 5000 events")
        assert len(hub.topics["t"].events) == 5000

    def test_a_line_that_is_no_json(self, hub: SmallHub, run: Out, feed: Callable[[bytes], None]) -> None:
        feed(b"1\n{\n3\n")
        assert "error: line 2: no JSON" in run.bad("publish", "t", "--json", status=2)

    def test_a_line_beyond_the_bound(
        self, hub: SmallHub, run: Out, feed: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gripproxy.cli.hub.MAX_LINE", 10)
        feed(b"short\n" + b"x" * 11)
        assert "a line has more than 10 bytes" in run.bad("publish", "t", status=2)

    def test_events_before_a_failure_are_counted(self, hub: SmallHub, run: Out) -> None:
        error = run.bad("publish", "t", "a", "bad", "c")
        assert error == (
            "published 2 events, the last one is e1.2\ngripproxy hub publish: error: bad data (400 bad-request)\n"
        )

    def test_a_repetition_with_a_name(self, hub: SmallHub, run: Out) -> None:
        assert run.ok("publish", "t", "a", "--idempotency-key=n").endswith("e1.1\n")
        assert run.ok("publish", "t", "a", "--idempotency-key=n").endswith("e1.1, stored by an earlier attempt\n")
        assert data(hub) == ["a"]

    def test_a_condition_that_is_not_met(self, hub: SmallHub, run: Out) -> None:
        assert "(412 condition)" in run.bad("publish", "t", "a", "--if-match=e1.9")

    @pytest.mark.parametrize(
        ("argv", "text"),
        [
            (["a", "--json", "--content-type=x/y"], "exclude each other"),
            (["--if-match=0"], "need DATA"),
            (["--atomic"], "need DATA"),
            (["a", "b", "--idempotency-key=x"], "are for one event"),
            (["--delete"], "--delete needs --key"),
            (["{", "--json"], "no JSON"),
            (["@/nowhere/at/all"], "cannot read '/nowhere/at/all'"),
            (["a", "--retry-for=soon"], "number of seconds"),
            (["a", "--idempotency-key=a b"], "visible ASCII"),
            (["a", "--url=localhost"], "url must be"),
            (["a", "--token=a b"], "visible ASCII characters"),
            (["a", "--token=@/nowhere"], "cannot read the token"),
        ],
    )
    def test_misuse(self, hub: SmallHub, run: Out, argv: list[str], text: str) -> None:
        assert text in run.bad("publish", "t", *argv, status=2)
        assert hub.requests == []

    def test_no_hub(self, run: Out) -> None:
        (port,) = free_ports(1)
        error = run.bad("publish", "t", "a", f"--url=http://127.0.0.1:{port}", "--retry-for=1")
        assert error.startswith(f"gripproxy hub publish: error: 127.0.0.1:{port}: ")


class TestAccess:
    def test_a_token(self, hub: SmallHub, run: Out, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.token = "secret"
        assert "(a token is given with --token or GRIPPROXY_HUB_TOKEN)" in run.bad("topics")
        assert "a token is given" not in run.bad("topics", "--token=wrong")
        run.ok("topics", "--token=secret")
        (tmp_path / "token").write_text("secret\n")
        run.ok("topics", f"--token=@{tmp_path}/token")
        monkeypatch.setenv("GRIPPROXY_HUB_TOKEN", "secret")
        run.ok("topics")

    def test_an_unknown_command_names_the_known_ones(self, run: Out) -> None:
        error = run.bad("look", status=2)
        assert all(name in error for name in ("topics", "publish", "read", "follow", "watch"))


class TestRead:
    def test_all(self, hub: SmallHub, run: Out) -> None:
        hub.page = 2
        hub.add(*range(5))
        lines = run.ok("read", "t").splitlines()
        assert lines[0] == "2026-01-01T00:00:00.000001Z  e1.1  0"
        assert len(lines) == 5

    def test_a_part_as_json(self, hub: SmallHub, run: Out) -> None:
        for key in "abc":
            hub.add(key, key=key)
        lines = run.ok("read", "t", "--json", "--low=b", "--high=c").splitlines()
        assert [json.loads(line)["data"] for line in lines] == ["b"]
        assert run.ok("read", "t", "--after=e1.1", "--limit=1").endswith('  e1.2  [b]  "b"\n')
        times = ["--since=2026-01-01T00:00:00.000001Z", "--until=2026-01-01T00:00:00.000002Z"]
        assert run.ok("read", "t", *times).count("\n") == 1

    def test_json_is_safe_on_a_terminal(self, hub: SmallHub, run: Out) -> None:
        hub.add("\x9b31m")
        assert run.ok("read", "t", "--json").isascii()

    def test_events_that_are_not_retained(self, hub: SmallHub, run: Out) -> None:
        hub.add("a", "b", "c")
        hub.forget(2)
        error = run.bad("read", "t")
        assert "go on with --after e1.2, or with --truncated" in error
        assert error.endswith("error: events up to the floor are not retained (410 gone)\n")

    def test_truncated(self, hub: SmallHub, capsys: pytest.CaptureFixture[str]) -> None:
        hub.add("a", "b", "c")
        hub.forget(2)
        assert cli.main(["hub", "read", "t", "--truncated"]) == 0
        out, err = capsys.readouterr()
        assert out.count("\n") == 1
        assert err == "gripproxy hub read: truncated: events up to e1.2 are not retained\n"

    def test_two_beginnings(self, run: Out) -> None:
        assert "not allowed with argument" in run.bad("read", "t", "--after=0", "--since=T", status=2)


class TestSnapshot:
    def test_the_last_event_of_each_key(self, hub: SmallHub, run: Out) -> None:
        for number, key in enumerate("cabab"):
            hub.add(number, key=key)
        hub.add("without a key")
        lines = [json.loads(line) for line in run.ok("snapshot", "t").splitlines()]
        assert lines[0] == {"type": "snapshot", "version": "6", "cursor": "e1.6"}
        assert [(line["key"], line["data"]) for line in lines[1:-1]] == [("a", 3), ("b", 4), ("c", 0)]
        assert lines[-1] == {"complete": "6", "cursor": "e1.6"}

    def test_a_range_at_a_version(self, hub: SmallHub, run: Out) -> None:
        for number, key in enumerate("cabab"):
            hub.add(number, key=key)
        lines = run.ok("snapshot", "t", "--low=b", "--high=c", "--version=e1.3").splitlines()
        assert [json.loads(line).get("data") for line in lines] == [None, 2, None]
        assert hub.requests[-1][1].endswith("/topics/t/snapshot?low=b&high=c&version=e1.3")

    def test_one_that_breaks_off_is_a_failure(self, hub: SmallHub, capsys: pytest.CaptureFixture[str]) -> None:
        hub.add(1, key="k")
        hub.whole = False
        assert cli.main(["hub", "snapshot", "t"]) == 1
        out, err = capsys.readouterr()
        assert "complete" not in out
        assert err == (
            "gripproxy hub snapshot: error: the snapshot broke off before its last line and is void: take it again\n"
        )

    def test_a_version_that_is_not_retained(self, hub: SmallHub, run: Out) -> None:
        hub.add("a", "b", key="k")
        hub.forget(2)
        assert "the version 1 is not retained (410 gone)" in run.bad("snapshot", "t", "--version=e1.1")

    def test_json_is_safe_on_a_terminal(self, hub: SmallHub, run: Out) -> None:
        hub.add("\x9b31m", key="k")
        assert run.ok("snapshot", "t").isascii()


class TestFollow:
    def test_from_a_place_on(self, hub: SmallHub, run: Out) -> None:
        hub.add("a", "b", "c")
        assert [line.split()[-1] for line in run.ok("follow", "t", "--after=e1.1", "--limit=2").splitlines()] == [
            '"b"',
            '"c"',
        ]
        since = "--since=2026-01-01T00:00:00.000002Z"
        assert json.loads(run.ok("follow", "t", since, "--limit=1", "--json"))["data"] == "c"

    def test_a_lost_stream_is_reported_and_opened_again(
        self, hub: SmallHub, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hub.add("a")

        def later() -> None:
            wait_until(lambda: hub.followers == 1)
            hub.cut()
            hub.add("b")

        thread = threading.Thread(target=later)
        thread.start()
        assert cli.main(["hub", "follow", "t", "--after=0", "--limit=2"]) == 0
        thread.join()
        out, err = capsys.readouterr()
        assert out.count("\n") == 2
        assert "trying again in 0." in err

    def test_a_resync_is_explained(self, hub: SmallHub, run: Out) -> None:
        hub.add("a", "b")
        hub.forget(2)
        error = run.bad("follow", "t", "--after=e1.1")
        assert error == (
            "gripproxy hub follow: resync: the topic retains only the events behind e1.2 (from "
            "2026-01-01T00:00:00.000000Z on): go on with --after e1.2, or with --truncated, and take what was before "
            "from a snapshot\ngripproxy hub follow: error: not retained (410 gone)\n"
        )

    def test_the_first_connection_has_one_attempt(self, hub: SmallHub, run: Out) -> None:
        hub.faults.append(Fault(503))
        assert "(503)" in run.bad("follow", "t", "--after=0")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["hub", "--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in ("topics", "publish", "read", "follow", "watch", "snapshot"))
