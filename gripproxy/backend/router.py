"""The router: routes in use, and a writer of requests for each of their targets."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from gripproxy.backend.forwarder import Forwarder
from gripproxy.config import Config
from gripproxy.grip.signature import KeyProblem, Signer, load_key
from gripproxy.process.log import log
from gripproxy.routing.forward_settings import ForwardSettings
from gripproxy.routing.route import Route
from gripproxy.routing.table import RouteTable

__all__ = ["Router", "Signers", "load_signers"]

Signers = dict[tuple[str, str], Signer | None]
"""Signers by key and issuer, both as the configuration and routes write them."""


def load_signers(table: RouteTable, config: Config) -> Signers:
    """Return the signers of all routes. A key that cannot be read is left out: it is read again at its first use.

    Args:
        table: The routes.
        config: The configuration; key files are relative to its directory.
    """
    signers: Signers = {}
    base = Path(config.directory)
    for route in table.routes:
        if route.sig_key is None and route.sig_iss is None:
            continue
        key = route.sig_key if route.sig_key is not None else config.proxy.sig_key
        issuer = route.sig_iss if route.sig_iss is not None else config.proxy.sig_iss
        if (key, issuer) not in signers:
            with contextlib.suppress(KeyProblem):
                loaded = load_key(key, base)
                signers[key, issuer] = Signer(loaded, issuer) if loaded is not None else None
    return signers


class _Forwarders:
    """Forwarders of one route by the index of their target: those that sign, and those that do not."""

    __slots__ = ("signed", "unsigned")

    def __init__(self) -> None:
        self.signed: dict[int, Forwarder] = {}
        self.unsigned: dict[int, Forwarder] = {}


class Router:
    """Routes of one worker.

    Args:
        config: The configuration.

    Raises:
        KeyProblem: ``sig_key`` or ``upstream_key`` cannot be read.
    """

    __slots__ = ("_base", "_proxy", "_signers", "generation", "routes", "settings")

    def __init__(self, config: Config) -> None:
        self._proxy = config.proxy
        self._base = Path(config.directory)
        self._signers: Signers = {}
        self.settings = ForwardSettings.of(config)
        self.routes = RouteTable()
        self.generation = 0
        """Generation of the routes in use, equal in all workers of a runner."""
        self.signer(config.proxy.sig_key, config.proxy.sig_iss)

    def use(self, table: RouteTable, generation: int, signers: Signers) -> None:
        """Use new routes from now on; requests under way keep the Route they found.

        Args:
            table: The routes.
            generation: Their generation.
            signers: The signers that they name.
        """
        self.routes, self.generation = table, generation
        usual = (self._proxy.sig_key, self._proxy.sig_iss)
        self._signers = {usual: self._signers[usual], **signers}

    def signer(self, key: str, issuer: str) -> Signer | None:
        """Return the signer of a key; made at the first call.

        Args:
            key: The key as the configuration writes it; empty for none.
            issuer: Value of the token's ``iss``.

        Returns:
            The signer; None for an empty key.

        Raises:
            KeyProblem: The key cannot be read.
        """
        name = (key, issuer)
        if name not in self._signers:
            loaded = load_key(key, self._base)
            self._signers[name] = Signer(loaded, issuer) if loaded is not None else None
        return self._signers[name]

    def forwarder(self, route: Route, index: int, signed: bool = True) -> Forwarder:
        """Return the writer of requests for one target of a route; made at the first call.

        Args:
            route: The route.
            index: Index of the target.
            signed: Whether requests get Grip-Sig, if there is a key.
        """
        forwarders = route.states[_Forwarders]
        made = forwarders.signed if signed else forwarders.unsigned
        forwarder = made.get(index)
        if forwarder is None:
            signer = self._signer_of(route) if signed else None
            forwarder = made[index] = Forwarder(route, route.targets[index], self.settings, signer, time.time)
        return forwarder

    def _signer_of(self, route: Route) -> Signer | None:
        """Return the signer of a route; None, and a line in the log, if its key cannot be read."""
        proxy = self._proxy
        key = route.sig_key if route.sig_key is not None else proxy.sig_key
        issuer = route.sig_iss if route.sig_iss is not None else proxy.sig_iss
        try:
            return self.signer(key, issuer)
        except KeyProblem as error:
            name = route.id.decode("utf-8", "replace")
            log.error("sig_key not usable", "requests of the route go out unsigned", route=name, reason=error)
            return None

    def debug(self, route: Route) -> bool:
        """Return whether responses on the route describe errors in full."""
        return route.debug or self._proxy.debug

    def cors(self, route: Route) -> bool:
        """Return whether responses on the route get CORS headers."""
        return route.aco or self._proxy.auto_cross_origin
