"""Requests to callbacks over real sockets: their bytes, their outcomes, and receivers that are hostile."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import uvloop

from griphub.callbacks.client import CallbackClient
from griphub.callbacks.courier import Abortable
from griphub.callbacks.outcome import Outcome
from griphub.callbacks.request_limits import RequestLimits
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import parse_callback
from griphub.sender.failure_class import FailureClass
from tests.support.callbacks import NO_CONTENT, PATIENCE, Received, Receiver, answered, receiver, until
from tests.support.certificates import make_certificate

pytestmark = pytest.mark.filterwarnings('ignore:Overriding the "event_loop_policy" fixture is deprecated')

OPEN = AddressPolicy(("0.0.0.0/0", "::/0"))
LOOPBACK = ("127.0.0.0/8",)


@pytest.fixture(params=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Run each test on both loops: their transports differ when a peer misbehaves."""
    return uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()


class Caller:
    """Client with the outcomes of its requests, swept as in the sender."""

    def __init__(self, limits: RequestLimits, policy: AddressPolicy, tls: ssl.SSLContext) -> None:
        self.names: dict[str, list[str]] = {}
        """Addresses of names."""
        self.asked: list[str] = []
        """Names that were resolved."""
        self.hold: dict[str, threading.Event] = {}
        """Names whose resolution waits."""
        self._loop = asyncio.get_running_loop()
        self.client = CallbackClient(policy, limits, tls, self._loop, self._resolve)
        self._sweeper = self._loop.create_task(self._sweep())

    def _resolve(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host in self.hold:
            assert self.hold[host].wait(PATIENCE)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[host]

    async def _sweep(self) -> None:
        while True:
            self.client.sweep(self._loop.time())
            await asyncio.sleep(0.02)

    def begin(
        self, url: str, body: bytes = b"{}", owner: str = "o", answer_max: int = 1000, **headers: str
    ) -> tuple[Abortable, list[Outcome]]:
        """Begin a request; its outcome appears in the list."""
        outcomes: list[Outcome] = []
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        request = self.client.send(parse_callback(url, OPEN), owner, pairs, body, answer_max, outcomes.append)
        assert not outcomes
        return request, outcomes

    async def call(self, url: str, *arguments: Any, **options: Any) -> Outcome:
        """Return the outcome of a request."""
        _, outcomes = self.begin(url, *arguments, **options)
        await until(lambda: outcomes, "the request has an outcome")
        (outcome,) = outcomes
        return outcome

    async def close(self) -> None:
        """Close all connections."""
        self._sweeper.cancel()
        for event in self.hold.values():
            event.set()
        self.client.close()
        await until(lambda: not self.client.connections and not self.client.resolving, "all is closed")


Start = Callable[..., Caller]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Return a function that makes a client, which is closed with the test."""
    callers: list[Caller] = []

    def start(policy: AddressPolicy | None = None, authority: pathlib.Path | None = None, **limits: Any) -> Caller:
        tls = ssl.create_default_context(cafile=authority)
        callers.append(Caller(RequestLimits(**limits), policy or AddressPolicy(LOOPBACK), tls))
        return callers[-1]

    yield start
    for caller in callers:
        await caller.close()


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    """Return a receiver without TLS."""
    async with receiver() as found:
        yield found


# --- requests and answers


async def test_a_request_is_a_post_with_its_headers_and_content(start: Start, hook: Receiver) -> None:
    caller = start()
    outcome = await caller.call(hook.url("/hook?a=%20b"), b'{"id":"3"}', webhook_id="7-e-3")
    assert (outcome.status, outcome.body, outcome.failure, outcome.interim) == (204, b"", None, ())
    assert 0 <= outcome.seconds < PATIENCE
    (request,) = hook.requests
    assert request.line == "POST /hook?a=%20b HTTP/1.1"
    assert request.headers == {
        "host": f"127.0.0.1:{hook.port}",
        "user-agent": "gripproxy-hub",
        "content-type": "application/json",
        "content-length": "10",
        "webhook-id": "7-e-3",
    }
    assert request.body == b'{"id":"3"}'


async def test_connections_are_used_again(start: Start, hook: Receiver) -> None:
    caller = start()
    hook.answers(
        NO_CONTENT, answered(200, b"ok"), b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    )
    for number in range(5):
        assert (await caller.call(hook.url(f"/{number}"))).status in (200, 204)
    assert [request.number for request in hook.requests] == [1] * 5
    assert caller.client.connections == 1


async def test_a_large_content_arrives_whole(start: Start, hook: Receiver) -> None:
    caller = start()
    body = bytes(range(256)) * 20_000
    assert (await caller.call(hook.url(), body)).status == 204
    assert hook.requests[0].body == body


async def test_an_answer_is_collected_up_to_its_bound(start: Start, hook: Receiver) -> None:
    caller = start()
    hook.answers(answered(200, b"token"), answered(200, b"x" * 11))
    assert (await caller.call(hook.url(), answer_max=10)).body == b"token"
    # One byte more shows that it is too long.
    outcome = await caller.call(hook.url(), answer_max=10)
    assert (outcome.status, len(outcome.body)) == (200, 11)


async def test_no_redirect_is_followed(start: Start, hook: Receiver) -> None:
    caller = start()
    hook.answers(answered(302, b"", b"Location: /elsewhere"), answered(503, b"", b"Retry-After: 7"))
    assert (await caller.call(hook.url())).status == 302
    assert (await caller.call(hook.url())).retry_after == "7"
    assert [request.line for request in hook.requests] == ["POST /hook HTTP/1.1"] * 2


async def test_interim_answers_are_seen(start: Start, hook: Receiver) -> None:
    caller = start(interim_max=3)
    processing = b"HTTP/1.1 102 Processing\r\n\r\n"
    hook.answers(processing + b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + NO_CONTENT, processing * 4)
    outcome = await caller.call(hook.url())
    assert (outcome.status, outcome.interim) == (204, (102, 103))
    outcome = await caller.call(hook.url())
    assert (outcome.status, outcome.failure) == (0, FailureClass.MALFORMED)


async def test_a_connection_that_its_receiver_closes_is_not_used_again(start: Start, hook: Receiver) -> None:
    caller = start()

    def close(request: Received) -> None:
        request.write(answered(204, b"", b"Connection: close"))

    hook.answer = close
    for _ in range(2):
        assert (await caller.call(hook.url())).status == 204
    assert [request.number for request in hook.requests] == [1, 2]
    await until(lambda: not caller.client.connections, "both connections are closed")


async def test_an_answer_without_a_length_ends_with_its_connection(start: Start, hook: Receiver) -> None:
    caller = start()

    def close(request: Received) -> None:
        request.write(b"HTTP/1.0 200 OK\r\n\r\ntoken")
        request.close()

    hook.answer = close
    for _ in range(2):
        outcome = await caller.call(hook.url())
        assert (outcome.status, outcome.body, outcome.failure) == (200, b"token", None)
    await until(lambda: not caller.client.connections, "both connections are closed")


async def test_a_request_on_a_stale_connection_is_sent_once_more(start: Start, hook: Receiver) -> None:
    caller = start()
    assert (await caller.call(hook.url())).status == 204

    def stale(request: Received) -> None:
        request.close()
        hook.answers(NO_CONTENT)

    hook.answer = stale
    outcome = await caller.call(hook.url(), b'{"n":1}')
    assert (outcome.status, outcome.failure) == (204, None)
    assert [(request.number, request.body) for request in hook.requests] == [
        (1, b"{}"),
        (1, b'{"n":1}'),
        (2, b'{"n":1}'),
    ]


async def test_a_request_on_a_new_connection_is_not_repeated(start: Start, hook: Receiver) -> None:
    caller = start()
    hook.answer = Received.close
    assert (await caller.call(hook.url())).failure is FailureClass.UNREACHABLE
    assert len(hook.requests) == 1


async def test_idle_connections_are_closed_in_time(start: Start, hook: Receiver) -> None:
    caller = start(idle=0.1)
    assert (await caller.call(hook.url())).status == 204
    await until(lambda: not hook.open, "the connection is closed")
    assert not caller.client.connections


# --- receivers that fail, or are hostile


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"SSH-2.0-OpenSSH\r\n", FailureClass.MALFORMED),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", FailureClass.MALFORMED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", FailureClass.MALFORMED),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Y: %b\r\n" % (b"z" * 60_000), FailureClass.TOO_LARGE),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Y: %b\r\n\r\n" % (b"z" * 60_000), FailureClass.TOO_LARGE),
    ],
    ids=["no HTTP", "another protocol", "two lengths", "endless head", "large head"],
)
async def test_an_answer_that_cannot_be_used(
    start: Start, hook: Receiver, answer: bytes, failure: FailureClass
) -> None:
    caller = start(deadline=PATIENCE)
    hook.answers(answer)
    outcome = await caller.call(hook.url())
    assert (outcome.status, outcome.failure, outcome.ours) == (0, failure, False)
    await until(lambda: not hook.open, "the connection is closed")


async def test_of_an_endless_answer_the_status_decides(start: Start, hook: Receiver) -> None:
    caller = start(deadline=PATIENCE)
    for head in (b"Content-Length: 1000000000000\r\n", b"Transfer-Encoding: chunked\r\n", b""):
        body = b"8000\r\n" + b"x" * 0x8000 + b"\r\n" if b"chunked" in head else b"x" * 0x8000
        hook.answers(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)
        outcome = await caller.call(hook.url(), answer_max=4096)
        assert (outcome.status, len(outcome.body)) == (200, 4097)
        await until(lambda: not hook.open, "the connection is closed")


async def test_a_slow_answer_ends_at_the_deadline(start: Start, hook: Receiver) -> None:
    caller = start(deadline=0.3)
    loop = asyncio.get_running_loop()

    def drip(request: Received) -> None:
        request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")

        def more() -> None:
            request.write(b"x")
            if hook.open:
                loop.call_later(0.01, more)

        more()

    for answer in (drip, lambda request: None):
        hook.answer = answer
        began = loop.time()
        outcome = await caller.call(hook.url())
        assert loop.time() - began >= 0.3
        assert (outcome.status, outcome.failure) == (0, FailureClass.TIMEOUT)
        await until(lambda: not hook.open, "the connection is closed")


async def test_a_receiver_that_does_not_read_ends_at_the_deadline(start: Start, hook: Receiver) -> None:
    caller = start(deadline=0.3)
    hook.deaf = True
    assert (await caller.call(hook.url(), b"x" * 20_000_000)).failure is FailureClass.TIMEOUT
    await until(lambda: not caller.client.connections, "the connection is closed, with all that it has not sent")


async def test_an_answer_before_the_content_was_read_closes_the_connection(start: Start) -> None:
    """Else the next request would wait behind bytes that are never read."""
    caller = start()

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answered(413))
        await writer.drain()
        await end.wait()
        writer.close()

    end = asyncio.Event()
    server = await asyncio.start_server(early, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        assert (await caller.call(f"http://127.0.0.1:{port}/", b"x" * 20_000_000)).status == 413
        await until(lambda: not caller.client.connections, "the connection is closed")
    finally:
        end.set()
        server.close()
        await server.wait_closed()


async def test_a_port_without_a_server(start: Start, hook: Receiver) -> None:
    caller = start()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
        assert (await caller.call(url)).failure is FailureClass.UNREACHABLE


# --- addresses


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "10.0.0.1", "169.254.169.254"]
)
async def test_a_name_with_a_private_address_is_refused(start: Start, hook: Receiver, address: str) -> None:
    caller = start(AddressPolicy())
    caller.names["inside.example"] = [address]
    assert (await caller.call(hook.url(host="inside.example"))).failure is FailureClass.REFUSED_ADDRESS
    assert (await caller.call(hook.url())).failure is FailureClass.REFUSED_ADDRESS
    assert not hook.connections


async def test_the_host_of_the_request_is_the_name_and_the_connection_is_to_its_address(
    start: Start, hook: Receiver
) -> None:
    caller = start(AddressPolicy(LOOPBACK))
    caller.names["app.example"] = ["10.0.0.1", "127.0.0.1"]
    assert (await caller.call(hook.url(host="app.example"))).status == 204
    assert hook.requests[0].headers["host"] == f"app.example:{hook.port}"
    assert caller.asked == ["app.example"]


async def test_a_name_that_resolves_differently_the_second_time_is_refused(start: Start, hook: Receiver) -> None:
    caller = start(resolved=0.0)
    caller.names["app.example"] = ["127.0.0.1"]
    assert (await caller.call(hook.url(host="app.example"))).status == 204
    caller.names["app.example"] = ["10.0.0.1"]
    assert (await caller.call(hook.url(host="app.example"))).failure is FailureClass.REFUSED_ADDRESS
    assert len(hook.requests) == 1


async def test_addresses_are_kept_for_some_seconds(start: Start, hook: Receiver) -> None:
    caller = start()
    caller.names["app.example"] = ["127.0.0.1"]
    for _ in range(3):
        assert (await caller.call(hook.url(host="app.example"))).status == 204
        assert (await caller.call(hook.url(host="none.example"))).failure is FailureClass.UNRESOLVED
    assert caller.asked == ["app.example", "none.example"]


async def test_a_slow_resolver_ends_at_the_deadline_and_holds_up_its_owner_only(start: Start, hook: Receiver) -> None:
    caller = start(deadline=0.3, resolving_per_owner=2)
    slow = [f"slow{number}.example" for number in range(4)]
    caller.hold = {name: threading.Event() for name in slow}
    caller.names |= {name: ["127.0.0.1"] for name in [*slow, "app.example"]}
    calls = [caller.begin(hook.url(host=name), owner="hostile") for name in slow]
    assert (await caller.call(hook.url(host="app.example"), owner="other")).status == 204
    await until(lambda: calls[1][1], "the second is over")
    assert calls[0][1][0].failure is FailureClass.TIMEOUT
    # The others wait for the threads; this time does not count.
    assert caller.client.resolving == 2
    assert not calls[2][1]
    for event in caller.hold.values():
        event.set()
    await until(lambda: calls[2][1] and calls[3][1], "the others are over")
    assert [calls[number][1][0].status for number in (2, 3)] == [204, 204]


async def test_an_address_has_a_bounded_number_of_requests_under_way(start: Start, hook: Receiver) -> None:
    caller = start(per_address=2, share=1.0)
    names = [f"{number}.example" for number in range(6)]
    caller.names = {name: ["127.0.0.1"] for name in names}
    hook.answer = lambda request: None
    calls = [caller.begin(hook.url(host=name), owner=name) for name in names]

    async def progress(arrived: int, ended: int) -> None:
        await until(lambda: len(hook.requests) >= arrived, "two requests are under way")
        assert len(hook.requests) == arrived
        await until(lambda: sum(len(one) for _, one in calls) >= ended, "those before them have ended")

    for number in range(6):
        await progress(min(number + 2, 6), number)
        hook.requests[number].write(NO_CONTENT)
    await progress(6, 6)
    assert all(outcomes[0].status == 204 for _, outcomes in calls)


# --- TLS


@pytest.fixture
def certificates(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with the certificate of ``app.example``."""
    make_certificate(tmp_path, "app", "app.example")
    return tmp_path


def server_side(folder: pathlib.Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "app.crt", folder / "app.key")
    return context


async def test_the_certificate_is_that_of_the_name(start: Start, certificates: pathlib.Path) -> None:
    caller = start(authority=certificates / "app.crt")
    caller.names = {"app.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    async with receiver(server_side(certificates)) as hook:
        for _ in range(2):
            assert (await caller.call(hook.url(host="app.example", scheme="https"))).status == 204
        assert hook.names == ["app.example"]
        assert [request.number for request in hook.requests] == [1, 1]
        # Another host at the same address has connections of its own.
        for host in ("other.example", "127.0.0.1"):
            assert (await caller.call(hook.url(host=host, scheme="https"))).failure is FailureClass.TLS
        assert len(hook.requests) == 2
        await until(lambda: len(hook.open) == 1, "those without a certificate are closed")


async def test_an_unknown_authority_and_a_server_without_tls_are_refused(
    start: Start, certificates: pathlib.Path
) -> None:
    caller = start()
    caller.names["app.example"] = ["127.0.0.1"]
    async with receiver(server_side(certificates)) as secure:
        assert (await caller.call(secure.url(host="app.example", scheme="https"))).failure is FailureClass.TLS
        assert not secure.requests

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answered(400))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    try:
        url = f"https://app.example:{server.sockets[0].getsockname()[1]}/"
        assert (await caller.call(url)).failure is FailureClass.TLS
    finally:
        server.close()
        await server.wait_closed()


async def test_a_handshake_without_end_is_over_in_time(start: Start, hook: Receiver) -> None:
    caller = start(connect=0.3)
    caller.names["app.example"] = ["127.0.0.1"]
    hook.deaf = True
    assert (await caller.call(hook.url(host="app.example", scheme="https"))).failure is FailureClass.TIMEOUT
    await until(lambda: not caller.client.connections, "the connection is closed")


# --- ends


async def test_an_aborted_request_reports_nothing_and_closes_its_connection(start: Start, hook: Receiver) -> None:
    caller = start(per_address=1)
    caller.names = {"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]}
    caller.hold["b.example"] = threading.Event()
    hook.answer = lambda request: None
    sent, sent_outcomes = caller.begin(hook.url())
    connecting, _ = caller.begin(hook.url())
    resolving, _ = caller.begin(hook.url(host="b.example"))
    await until(lambda: hook.requests, "the first request has arrived")
    for request in (sent, connecting, resolving, sent):
        request.abort()
    await until(lambda: not hook.open, "its connection is closed")
    caller.hold["b.example"].set()
    await until(lambda: not caller.client.resolving, "the thread has ended")
    assert not sent_outcomes
    assert (caller.client.requests, caller.client.connections) == (0, 0)
    hook.answers(NO_CONTENT)
    assert (await caller.call(hook.url(host="b.example"))).status == 204


async def test_a_request_that_is_aborted_while_it_connects(start: Start, hook: Receiver) -> None:
    caller = start()
    request, outcomes = caller.begin(hook.url())
    request.abort()
    assert caller.client.connections == 0
    assert (await caller.call(hook.url())).status == 204
    assert not outcomes
    assert len(hook.requests) == 1


async def test_too_many_requests_are_this_machines_fault(start: Start, hook: Receiver) -> None:
    caller = start(requests_max=1)
    hook.answer = lambda request: None
    first, _ = caller.begin(hook.url())
    outcome = await caller.call(hook.url())
    assert (outcome.ours, outcome.failure) == (True, None)
    first.abort()
    hook.answers(NO_CONTENT)
    assert (await caller.call(hook.url())).status == 204


async def test_requests_end_with_the_client(start: Start, hook: Receiver) -> None:
    caller = start()
    hook.answer = lambda request: None
    _, outcomes = caller.begin(hook.url())
    await until(lambda: hook.requests, "the request has arrived")
    caller.client.close()
    await until(lambda: not hook.open, "its connection is closed")
    assert not outcomes
