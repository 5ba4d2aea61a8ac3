"""Resolver: addresses of names, by the system's resolver in threads.

A thread is held by one name for as long as its servers take, which the owner of the name may control. So an owner has
a share of the threads, one name has one thread at a time, and waiting names have turns by owner.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from griphub.callbacks.outcome import is_shortage
from griphub.callbacks.request_limits import RequestLimits
from griphub.callbacks.resolutions import OURS, Resolution, Resolutions
from griphub.sender.address_policy import ADDRESSES_MAX, AddressPolicy
from griphub.sender.callback import CallbackUrl
from griphub.sender.host_shares import HostShares
from gripproxy.process.background import Call
from gripproxy.process.log import log

__all__ = ["Inquirer", "Resolver", "system_addresses"]


class Inquirer(Protocol):
    """Request whose host is to be resolved."""

    def on_lookup(self) -> None:
        """Note that the resolution has begun: a thread was free."""

    def on_resolved(self, resolution: Resolution) -> None:
        """Go on with a ``resolution``."""


def system_addresses(host: str) -> list[str]:
    """Return the addresses of a name, in the order of preference (RFC 6724). It may take many seconds.

    Args:
        host: name.

    Raises:
        OSError: it has none; with ``errno`` EMFILE, ENFILE or ENOMEM, this machine cannot resolve it now.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_MEMORY:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
        # Without descriptors the resolver reports that the name has no address.
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        raise
    return [str(address[0]) for *_, address in found[:ADDRESSES_MAX]]


class Resolver:
    """Resolves the hosts of callbacks.

    Args:
        policy: judges the addresses.
        limits: threads, shares of owners, and seconds for which addresses are kept.
        loop: the event loop.
        resolve: returns the addresses of a name, or raises ``OSError``; called in threads.
    """

    def __init__(
        self,
        policy: AddressPolicy,
        limits: RequestLimits,
        loop: asyncio.AbstractEventLoop,
        resolve: Callable[[str], Sequence[str]] = system_addresses,
    ) -> None:
        self._loop = loop
        self._resolve = resolve
        self._resolutions = Resolutions(policy, limits)
        self._shares: HostShares[Inquirer] = HostShares(limits.resolving, 1, limits.resolving_per_owner)
        """Inquirers that wait, and those for which a thread works; the latter stay until it has ended."""
        self._hosts: dict[Inquirer, str] = {}
        """Inquirers to be answered, and their hosts."""
        self._lookups: dict[Inquirer, tuple[str, Call[Sequence[str]]]] = {}
        """Hosts that threads work for, also those of forgotten inquirers: others may ask for them."""

    @property
    def resolving(self) -> int:
        """Number of names that are being resolved."""
        return self._shares.running

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a thread, or for the resolution of another request."""
        return len(self._shares)

    def known(self, url: CallbackUrl) -> Resolution | None:
        """Return the resolution of the host of a ``url``; None if it is to be resolved."""
        now = self._loop.time()
        found = self._resolutions.get(url.host, now)
        if found is None and url.is_address:
            return self._judged(url.host, [url.host])
        return found

    def ask(self, inquirer: Inquirer, owner: str, host: str) -> None:
        """Resolve a name; ``inquirer`` is called with the resolution, now or later, unless it is forgotten.

        Args:
            inquirer: the request.
            owner: key of its owner.
            host: the name.
        """
        self._hosts[inquirer] = host
        self._shares.add(inquirer, owner, host)
        self._go_on()

    def forget(self, inquirer: Inquirer) -> None:
        """Call ``inquirer`` no more. A thread that works for it goes on, and keeps its place."""
        if self._hosts.pop(inquirer, None) is not None:
            self._shares.remove(inquirer)

    def _go_on(self) -> None:
        """Begin with as many names as there are places for."""
        while (inquirer := self._shares.take()) is not None:
            host = self._hosts[inquirer]
            found: Resolution | None = self._resolutions.get(host, self._loop.time())
            if found is None:
                try:
                    call = Call(partial(self._resolve, host), partial(self._over, inquirer), "resolve a callback")
                except RuntimeError as error:
                    log.warning("no thread to resolve a callback", reason=error)
                    found = OURS
                else:
                    self._lookups[inquirer] = (host, call)
            if found is None:
                inquirer.on_lookup()
            else:
                self._shares.finished(inquirer)
                self._answer(inquirer, found)

    def _over(self, inquirer: Inquirer) -> None:
        """Return to the loop; called in a thread."""
        try:
            self._loop.call_soon_threadsafe(self._looked_up, inquirer)
        except RuntimeError:
            # The loop is closed: the process ends.
            pass

    def _looked_up(self, inquirer: Inquirer) -> None:
        host, call = self._lookups.pop(inquirer)
        self._shares.finished(inquirer)
        try:
            found = self._judged(host, call.result())
        except (OSError, UnicodeError) as error:
            found = OURS if is_shortage(error) else self._resolutions.unresolved(host, str(error), self._loop.time())
        except Exception:  # noqa: BLE001 - it is logged, and no fault of the callback
            log.exception("unexpected error of a resolution", host=host)
            found = OURS
        try:
            self._answer(inquirer, found)
        finally:
            # Others wait for the thread.
            self._go_on()

    def _judged(self, host: str, addresses: Sequence[str]) -> Resolution:
        return self._resolutions.resolved(host, addresses, self._loop.time())

    def _answer(self, inquirer: Inquirer, resolution: Resolution) -> None:
        if self._hosts.pop(inquirer, None) is not None:
            inquirer.on_resolved(resolution)
