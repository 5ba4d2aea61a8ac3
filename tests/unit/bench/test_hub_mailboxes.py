"""The subscribers of the benchmark: their reports, their replies, and the batches that they get."""

from __future__ import annotations

import json
import pathlib
import sys
import textwrap
import time
from datetime import UTC, datetime

import pytest

from bench import hub_mailboxes
from bench.hub_load import KEY, SIZE
from bench.hub_mailboxes import Pollers, batch, topic_of
from bench.latencies import Latencies, middle
from bench.mailbox_poller import Tally, bucket

PROGRAM = textwrap.dedent("""
    import json, sys
    for line in sys.stdin:
        count = int(line.split()[2]) if line.startswith("open") else 0
        print(json.dumps({"replies": count, "messages": 5, "failures": 1, "lost": 0, "most": 2 * 10**6,
                          "histogram": [[70, 3]]}), flush=True)
""")


def test_reports_of_the_subscribers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "poller.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(hub_mailboxes, "POLLER", program)
    pollers = Pollers(1)
    try:
        found = pollers.open("s", 7)
        assert (found.replies, found.messages, found.failures, found.lost, found.most) == (7, 5, 1, 0, 2.0)
        assert len(found.latencies) == 3
        assert (pollers.zero().replies, pollers.report().replies) == (0, 0)
    finally:
        pollers.close()
    assert sys.executable


@pytest.mark.parametrize("nanoseconds", [0, 5, 63, 64, 1000, 123_456, 10**9, 7 * 10**10])
def test_a_time_is_in_the_bucket_that_stands_for_it(nanoseconds: int) -> None:
    assert middle(bucket(nanoseconds)) == pytest.approx(nanoseconds, rel=0.02)


def test_a_reply_counts_from_its_first_message() -> None:
    tally = Tally()
    stored = datetime.fromtimestamp(time.time() - 1, UTC).isoformat().replace("+00:00", "Z")
    event = b'{"time":"%b"}' % stored.encode()
    body = b'{"messages":[{"sequence_id":"1","event":%b},{"sequence_id":"2","event":{}}],"lost":[],"ended":[]}' % event
    tally.reply(body)
    tally.reply(b'{"messages":[{"sequence_id":"3"}],"lost":[{"topic":"t"}],"ended":[]}')
    tally.fail()
    report = tally.report()
    assert (report["replies"], report["messages"], report["lost"], report["failures"]) == (2, 3, 1, 1)
    assert 1e9 <= tally.most < 60e9
    assert len(Latencies(tally.times.items())) == 1
    tally.zero()
    assert tally.report()["messages"] == 0


def test_a_batch_has_a_key_in_each_event() -> None:
    body = batch(3)
    events = json.loads(body)["events"]
    assert {len(event["data"]) for event in events} == {SIZE}
    assert body.count(KEY.encode()) == 3
    assert topic_of("/topics/loaded-1/events") == "loaded-1"
