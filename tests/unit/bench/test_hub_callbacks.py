"""The receiver of callbacks: its reports, and the requests of the sender."""

from __future__ import annotations

import pathlib
import sys
import textwrap
from collections.abc import Iterator

import pytest

from bench.hub_callbacks import Received, Receiver
from bench.latencies import Latencies

PROGRAM = textwrap.dedent("""
    import json, sys
    for line in sys.stdin:
        count = 0 if line.startswith("zero") else int(line.split()[1])
        print(json.dumps({"events": count, "challenges": 3, "first": 10, "last": 10**9 + 10, "histogram": [[5, 1]]}),
              flush=True)
""")


@pytest.fixture
def receiver(tmp_path: pathlib.Path) -> Iterator[Receiver]:
    program = tmp_path / "receiver.py"
    program.write_text(PROGRAM)
    receiver = Receiver([sys.executable, str(program)], [1, 2])
    yield receiver
    receiver.close()


def test_it_has_a_url_for_each_port(receiver: Receiver) -> None:
    assert receiver.urls == ["http://127.0.0.1:1/callback", "http://127.0.0.1:2/callback"]


def test_its_reports_have_rates(receiver: Receiver) -> None:
    assert receiver.zero().events == 0
    found = receiver.wait(5000, 1)
    assert (found.events, found.challenges, found.rate, len(found.latencies)) == (5000, 3, 5000.0, 1)


def test_nothing_received_has_the_rate_zero() -> None:
    assert Received(0, 0, 0, 0, Latencies()).rate == 0
