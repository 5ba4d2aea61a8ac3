"""Statistics of the hub on a socket."""

from __future__ import annotations

import json
import pathlib
import time

import pytest
import zmq

from griphub.notify.stats_publisher import StatsPublisher
from gripproxy.grip import tnetstring
from gripproxy.process.endpoints import BindError


@pytest.mark.parametrize("as_json", [True, False])
def test_events_arrive(tmp_path: pathlib.Path, as_json: bool) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = StatsPublisher(context, json=as_json)
    sock = context.socket(zmq.SUB)
    try:
        address = publisher.open(f"ipc://{tmp_path}/stats", None)
        sock.connect(address)
        sock.subscribe(b"push ")
        deadline = time.monotonic() + 10
        # Until the subscription has arrived, events are for others.
        while not sock.poll(20) and time.monotonic() < deadline:
            publisher.send("push", {"channel": b"p/s", "ack": 3})
        kind, _, body = sock.recv(zmq.NOBLOCK).partition(b" ")
        assert kind == b"push"
        fields = json.loads(body[1:]) if as_json else tnetstring.loads(body[1:])
        assert fields == ({"channel": "p/s", "ack": 3} if as_json else {b"channel": b"p/s", b"ack": 3})
    finally:
        sock.close(0)
        publisher.close()
        context.term()


def test_an_address_that_cannot_be_used() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = StatsPublisher(context, json=False)
    try:
        with pytest.raises(BindError, match="stats_spec"):
            publisher.open("tcp://192.0.2.1:1", None)
    finally:
        publisher.close()
        context.term()
