"""The resolver: names to judged addresses in threads, which no owner holds alone."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from griphub.callbacks import resolver as resolver_module
from griphub.callbacks.request_limits import RequestLimits
from griphub.callbacks.resolutions import OURS, Resolution
from griphub.callbacks.resolver import Resolver, system_addresses
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import parse_callback
from griphub.sender.failure_class import FailureClass
from tests.support.callbacks import PATIENCE, until

PUBLIC = "8.8.8.8"


class Request:
    """Request whose host is resolved."""

    def __init__(self) -> None:
        self.begun = 0
        self.got: list[Resolution] = []

    def on_lookup(self) -> None:
        self.begun += 1

    def on_resolved(self, resolution: Resolution) -> None:
        self.got.append(resolution)


class House:
    """Resolver, and a table of names, some of which wait for the test."""

    def __init__(self, **limits: Any) -> None:
        self.names: dict[str, Sequence[str] | Exception] = {}
        self.gates: dict[str, threading.Event] = {}
        self.asked: list[str] = []
        self.resolver = Resolver(AddressPolicy(), RequestLimits(**limits), asyncio.get_running_loop(), self._addresses)

    def _addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if (gate := self.gates.get(host)) is not None:
            assert gate.wait(PATIENCE)
        found = self.names.get(host, [PUBLIC])
        if isinstance(found, Exception):
            raise found
        return found

    def slow(self, *hosts: str) -> None:
        """Have these names wait for ``open``."""
        self.gates |= {host: threading.Event() for host in hosts}

    def open(self, host: str) -> None:
        """Resolve a name that waits."""
        self.gates[host].set()

    def ask(self, host: str, owner: str = "o") -> Request:
        """Begin to resolve a name."""
        request = Request()
        self.resolver.ask(request, owner, host)
        return request

    async def resolution(self, request: Request) -> Resolution:
        """Return the only resolution that a request gets."""
        await until(lambda: request.got, "the request has its resolution")
        (found,) = request.got
        return found


async def test_a_name_is_resolved_in_a_thread_and_judged() -> None:
    house = House()
    house.names["inside.example"] = ["10.0.0.1", "fe80::1"]
    request = house.ask("app.example")
    assert not request.got
    assert request.begun == 1
    assert await house.resolution(request) == Resolution(PUBLIC)
    found = await house.resolution(house.ask("inside.example"))
    assert (found.address, found.failure) == ("", FailureClass.REFUSED_ADDRESS)
    assert (house.resolver.resolving, house.resolver.waiting) == (0, 0)


async def test_known_names_and_addresses_need_no_thread() -> None:
    house = House()
    policy = AddressPolicy(("127.0.0.1", "::1"))
    url = parse_callback("http://app.example/", policy)
    assert house.resolver.known(url) is None
    await house.resolution(house.ask("app.example"))
    assert house.resolver.known(url) == Resolution(PUBLIC)
    # A further request that was asked for it meanwhile is answered now.
    request = house.ask("app.example")
    assert request.got == [Resolution(PUBLIC)]
    assert request.begun == 0
    address = house.resolver.known(parse_callback("http://1.1.1.1/", policy))
    assert address == Resolution("1.1.1.1")
    # Allowed when the subscription was made, refused now.
    private = house.resolver.known(parse_callback("http://[::1]/", policy))
    assert private is not None
    assert private.failure is FailureClass.REFUSED_ADDRESS
    assert house.asked == ["app.example"]


async def test_a_name_that_fails_is_not_asked_for_again_soon() -> None:
    house = House()
    house.names |= {
        "none.example": socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        "odd.example": UnicodeError("label too long"),
    }
    for host in ("none.example", "odd.example", "none.example"):
        found = await house.resolution(house.ask(host))
        assert found.failure is FailureClass.UNRESOLVED
    assert house.asked == ["none.example", "odd.example"]


async def test_a_lack_of_descriptors_is_this_machines_fault_and_not_kept() -> None:
    house = House()
    house.names["app.example"] = OSError(errno.EMFILE, "Too many open files")
    assert await house.resolution(house.ask("app.example")) is OURS
    house.names["app.example"] = [PUBLIC]
    assert await house.resolution(house.ask("app.example")) == Resolution(PUBLIC)


async def test_an_unexpected_error_is_no_fault_of_the_callback_and_frees_its_thread() -> None:
    house = House(resolving=1, resolving_per_owner=1)
    house.names["odd.example"] = LookupError("of the resolver")
    odd, waiting = house.ask("odd.example"), house.ask("app.example")
    assert house.resolver.waiting == 1
    assert await house.resolution(odd) is OURS
    assert await house.resolution(waiting) == Resolution(PUBLIC)


async def test_an_error_of_one_request_frees_the_thread_for_the_next() -> None:
    house = House(resolving=1, resolving_per_owner=1)
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    class Broken(Request):
        def on_resolved(self, resolution: Resolution) -> None:
            raise LookupError("of the request")

    house.resolver.ask(Broken(), "o", "odd.example")
    waiting = house.ask("app.example")
    assert await house.resolution(waiting) == Resolution(PUBLIC)
    assert [type(error) for error in errors] == [LookupError]


async def test_a_lack_of_threads_is_this_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()

    def short(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(resolver_module, "Call", short)
    request = house.ask("app.example")
    assert request.got == [OURS]
    monkeypatch.undo()
    assert await house.resolution(house.ask("app.example")) == Resolution(PUBLIC)


async def test_one_name_has_one_thread_and_all_that_wait_get_its_result() -> None:
    house = House()
    house.slow("app.example")
    requests = [house.ask("app.example", owner=f"o{number}") for number in range(5)]
    assert (house.resolver.resolving, house.resolver.waiting) == (1, 4)
    house.open("app.example")
    for request in requests:
        assert await house.resolution(request) == Resolution(PUBLIC)
    assert house.asked == ["app.example"]
    assert [request.begun for request in requests] == [1, 0, 0, 0, 0]


async def test_slow_names_hold_up_their_owner_only() -> None:
    house = House(resolving=3, resolving_per_owner=2)
    slow = [f"slow{number}.example" for number in range(4)]
    house.slow(*slow)
    hostile = [house.ask(host, "hostile") for host in slow]
    assert await house.resolution(house.ask("app.example", "other")) == Resolution(PUBLIC)
    assert (house.resolver.resolving, house.resolver.waiting) == (2, 2)
    assert [request.begun for request in hostile] == [1, 1, 0, 0]
    for host in slow:
        house.open(host)
    for request in hostile:
        assert await house.resolution(request) == Resolution(PUBLIC)


async def test_a_forgotten_request_is_not_called_but_its_thread_keeps_its_place() -> None:
    house = House(resolving_per_owner=1)
    house.slow("a.example")
    first, second, third = house.ask("a.example"), house.ask("b.example"), house.ask("c.example")
    house.resolver.forget(first)
    house.resolver.forget(second)
    house.resolver.forget(second)
    assert (house.resolver.resolving, house.resolver.waiting) == (1, 1)
    house.open("a.example")
    assert await house.resolution(third) == Resolution(PUBLIC)
    assert not first.got
    assert not second.got
    # The result of its thread is kept for others.
    assert house.ask("a.example").got == [Resolution(PUBLIC)]
    assert house.asked == ["a.example", "c.example"]


async def test_a_thread_that_ends_after_the_loop_is_no_fault() -> None:
    house = House()
    loop = asyncio.new_event_loop()
    late = Resolver(AddressPolicy(), RequestLimits(), loop, lambda host: house._addresses(host))
    house.slow("app.example")
    late.ask(Request(), "o", "app.example")
    loop.close()
    house.open("app.example")
    await until(
        lambda: all(thread.name != "resolve a callback" for thread in threading.enumerate()), "the thread has ended"
    )


def test_the_systems_resolver_returns_addresses_and_raises_for_the_lack_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "127.0.0.1" in system_addresses("localhost")

    def fails(code: int) -> Callable[..., Any]:
        def getaddrinfo(*_: object, **__: object) -> Any:
            raise socket.gaierror(code, "failed")

        return getaddrinfo

    monkeypatch.setattr(socket, "getaddrinfo", fails(socket.EAI_MEMORY))
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)):
        system_addresses("app.example")
    monkeypatch.setattr(socket, "getaddrinfo", fails(socket.EAI_NONAME))
    with pytest.raises(socket.gaierror):
        system_addresses("app.example")
    # Without descriptors it reports that the name has no address.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            system_addresses("app.example")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
