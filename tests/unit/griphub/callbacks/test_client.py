"""The client: requests in, bytes out; the loop opens connections of memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest

from griphub.callbacks.client import CallbackClient
from griphub.callbacks.connections import CallbackConnection
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.request import CallbackRequest
from griphub.callbacks.request_limits import RequestLimits
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import parse_callback
from griphub.sender.failure_class import FailureClass
from tests.support.doubles import Transport

URL = parse_callback("http://8.8.8.8:8080/hook?a=b", AddressPolicy())
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


async def client(**limits: Any) -> tuple[CallbackClient, list[Transport], list[float]]:
    """Return a client, its transports, and the time of its loop."""
    loop, now = asyncio.get_running_loop(), [100.0]
    transports: list[Transport] = []

    class Loop:
        create_task = loop.create_task
        call_soon = loop.call_soon
        call_soon_threadsafe = loop.call_soon_threadsafe

        @staticmethod
        def time() -> float:
            return now[0]

        @staticmethod
        async def create_connection(
            factory: Callable[[], CallbackConnection], host: str, port: int, **_: object
        ) -> tuple[Transport, CallbackConnection]:
            protocol = factory()
            transports.append(Transport(protocol))
            protocol.connection_made(cast(asyncio.BaseTransport, transports[-1]))
            return transports[-1], protocol

    limited = RequestLimits(**limits)
    return (
        CallbackClient(
            *(AddressPolicy(), limited, ssl.create_default_context()), cast(asyncio.AbstractEventLoop, Loop())
        ),
        transports,
        now,
    )


async def turns_of_the_loop() -> None:
    """Let tasks run that wait for nothing."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_is_one_write_of_head_and_content() -> None:
    sender, transports, _ = await client()
    outcomes: list[Outcome] = []
    sender.send(URL, "o", [("webhook-id", "7-e-3"), ("webhook-timestamp", "1")], b'{"id":"3"}', 100, outcomes.append)
    assert (sender.requests, sender.connections) == (1, 1)
    await turns_of_the_loop()
    assert transports[0].out == [
        b"POST /hook?a=b HTTP/1.1\r\n"
        b"Host: 8.8.8.8:8080\r\n"
        b"User-Agent: gripproxy-hub\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 10\r\n"
        b"webhook-id: 7-e-3\r\n"
        b"webhook-timestamp: 1\r\n"
        b"\r\n"
        b'{"id":"3"}'
    ]
    transports[0].protocol.data_received(NO_CONTENT)
    assert [outcome.status for outcome in outcomes] == [204]
    assert (sender.requests, sender.connections) == (0, 1)
    # The next one uses the same connection.
    sender.send(URL, "o", [], b"{}", 100, outcomes.append)
    assert len(transports[0].out) == 2


async def test_requests_beyond_the_bound_end_by_the_fault_of_this_machine() -> None:
    sender, _, _ = await client(requests_max=1)
    outcomes: list[Outcome] = []
    sender.send(URL, "o", [], b"{}", 100, outcomes.append)
    sender.send(URL, "o", [], b"{}", 100, outcomes.append)
    assert not outcomes
    await turns_of_the_loop()
    assert [outcome.ours for outcome in outcomes] == [True]
    assert sender.requests == 1


async def test_a_sweep_ends_late_requests_and_closes_idle_connections() -> None:
    sender, transports, now = await client(deadline=10.0, idle=30.0)
    outcomes: list[Outcome] = []
    for _ in range(2):
        sender.send(URL, "o", [], b"{}", 100, outcomes.append)
    await turns_of_the_loop()
    transports[0].protocol.data_received(NO_CONTENT)
    now[0] += 10.0
    sender.sweep(now[0])
    assert outcomes[-1].failure is FailureClass.TIMEOUT
    assert [transport.aborted for transport in transports] == [False, True]
    now[0] += 20.0
    sender.sweep(now[0])
    assert transports[0].aborted
    assert sender.requests == 0


async def test_all_requests_end_with_the_client_without_a_report() -> None:
    sender, transports, _ = await client()
    outcomes: list[Outcome] = []
    for _ in range(2):
        sender.send(URL, "o", [], b"{}", 100, outcomes.append)
    await turns_of_the_loop()
    transports[0].protocol.data_received(NO_CONTENT)
    sender.close()
    assert [transport.aborted for transport in transports] == [True, True]
    assert len(outcomes) == 1
    assert (sender.requests, sender.resolving) == (0, 0)


async def test_a_request_that_cannot_begin_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, _, _ = await client()
    outcomes: list[Outcome] = []

    def fails(request: CallbackRequest) -> None:
        raise LookupError("of a beginning")

    monkeypatch.setattr(CallbackRequest, "begin", fails)
    with pytest.raises(LookupError):
        sender.send(URL, "o", [], b"{}", 100, outcomes.append)
    monkeypatch.undo()
    assert sender.requests == 0
    sender.sweep(1000.0)
    assert outcomes == []


async def test_a_request_may_have_another_method_and_keep_headers() -> None:
    sender, transports, _ = await client()
    outcomes: list[Outcome] = []
    keep = frozenset((b"webhook-allowed-origin",))
    sender.send(URL, "o", [], b"", 100, outcomes.append, content_type=None, method="OPTIONS", keep=keep)
    await turns_of_the_loop()
    assert transports[0].out[0].startswith(b"OPTIONS /hook?a=b HTTP/1.1\r\n")
    transports[0].protocol.data_received(
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAllow: POST\r\nWebHook-Allowed-Origin: *\r\n\r\n"
    )
    assert [outcome.headers for outcome in outcomes] == [{b"webhook-allowed-origin": "*"}]


async def test_a_request_may_have_a_type_and_a_deadline_of_its_own() -> None:
    sender, transports, now = await client()
    outcomes: list[Outcome] = []
    own = [("Content-Type", "text/x"), ("k", "v")]
    sender.send(URL, "o", own, b"x", 100, outcomes.append, deadline=60.0, content_type=None)
    await turns_of_the_loop()
    assert transports[0].out == [
        b"POST /hook?a=b HTTP/1.1\r\nHost: 8.8.8.8:8080\r\nUser-Agent: gripproxy-hub\r\nContent-Length: 1\r\n"
        b"Content-Type: text/x\r\nk: v\r\n\r\nx"
    ]
    now[0] += 59.9
    sender.sweep(now[0])
    assert outcomes == []
    now[0] += 0.2
    sender.sweep(now[0])
    assert [outcome.failure for outcome in outcomes] == [FailureClass.TIMEOUT]
