"""Forwarding rules: the head of a request to a backend, from that of a client (docs/grip.md §2.1 to §2.4).

Sans-I/O. All parts that do not depend on the request are compiled once per route and target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gripproxy.grip.signature import Signer, verify
from gripproxy.grip.x_forwarded_for import ForwardedFor, cdn_loop
from gripproxy.http1.header_classes import HeaderClasses, folded
from gripproxy.http1.request_parser import Request
from gripproxy.process.log_event import quoted
from gripproxy.routing.forward_settings import ForwardSettings
from gripproxy.routing.route import Route, Target

__all__ = ["FEATURES", "FORWARD_METHODS_IDEMPOTENT", "Forwarder", "grip_last"]

FEATURES: Final = (
    b"status, link:next, link:gone, filter:skip-self, filter:skip-users, filter:require-sub, "
    b"filter:build-id, filter:var-subst, filter:http-check, filter:http-modify, ws:prev-id, ws:more-events"
)
"""Value of Grip-Feature: that of the newest Pushpin (docs/grip.md §2.2) without ``session``, which is not implemented,
and with ``ws:prev-id``: a WebSocket's ``subscribe`` may have a prev-id (docs/websocket-reliability.md), and
``ws:more-events``: a response with events may ask for the next request (docs/grip.md §8.3)."""

FORWARD_METHODS_IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"))
"""Methods that may be sent twice (RFC 9110 §9.2.2)."""

_DROPPED: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"accept-encoding",
        b"content-encoding",
        b"transfer-encoding",
        b"expect",
    )
)
_HANDSHAKE_DROPPED: Final = frozenset(
    (b"upgrade", b"sec-websocket-extensions", b"sec-websocket-key", b"sec-websocket-version", b"content-length")
)
_OVER_HTTP_DROPPED: Final = frozenset(
    (
        b"upgrade",
        b"sec-websocket-extensions",
        b"accept",
        b"connection-id",
        b"content-length",
        b"content-type",
        b"content-bytes-replayed",
    )
)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_MARK: Final = b"eb9bf0f5-"


DROP, HOST, GRIP, LENGTH, FORWARDED, MARKED, LOOP, FORWARDED_ALIKE = range(1, 9)


_WRITTEN: Final = {b"host": HOST, b"content-length": LENGTH, b"x-forwarded-for": FORWARDED}
"""Kinds of the headers that the proxy may rewrite."""


def _kind(drops: frozenset[bytes], over_http: bool, name: bytes) -> int:
    """Return the kind of a client's header, which decides its treatment; 0: passed on.

    A name that looks like another (``folded``) is dropped wherever the other is dropped or rewritten, and passes where
    the other passes: a backend could not distinguish a header of the client from one of the proxy.

    Args:
        drops: Folded names that are dropped.
        over_http: True for a request with events of a WebSocket.
        name: Name of the header in lower case.
    """
    plain = folded(name)
    if plain in drops:
        return LOOP if name == b"cdn-loop" else DROP
    if plain[:5] == b"grip-":
        return GRIP
    if plain[:9] == _MARK:
        return MARKED
    if plain[:5] == b"meta-" and over_http:
        return DROP
    if name == plain:
        return _WRITTEN.get(name, 0)
    if plain == b"content-length":
        return DROP
    return FORWARDED_ALIKE if plain == b"x-forwarded-for" else 0


def grip_last(last_ids: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the Grip-Last lines for (channel, last id) pairs (docs/grip.md §6.5).

    Published ids are any text, and one with a line break would inject a header. A pair with a control character that
    no header may have (all but HTAB, RFC 9110 §5.5) is omitted.

    Args:
        last_ids: Pairs of channel and last id.
    """
    return b"".join(
        [
            b"Grip-Last: %b; last-id=%b\r\n" % pair
            for pair in last_ids
            if not _CONTROL.search(pair[0]) and not _CONTROL.search(pair[1])
        ]
    )


def _forwarded_for(rule: ForwardedFor, values: Sequence[bytes], peer: Callable[[], bytes]) -> bytes:
    """Return the X-Forwarded-For line, empty if ``rule`` leaves no address."""
    addresses = rule.apply(list(values), peer())
    return b"X-Forwarded-For: %b\r\n" % addresses if addresses else b""


class Forwarder:
    """Writer of request heads for one route and one of its targets.

    Args:
        route: The route.
        target: Target of the route.
        settings: Forwarding settings of the worker.
        signer: Maker of Grip-Sig tokens; None: requests are not signed.
        clock: Returns the time of day in seconds.
    """

    def __init__(
        self, route: Route, target: Target, settings: ForwardSettings, signer: Signer | None, clock: Callable[[], float]
    ) -> None:
        self.route = route
        self.target = target
        self._settings = settings
        self._signer = signer
        self._clock = clock
        self._second = -1
        self._grip = b""
        self._host = target.host_header or route.as_host
        self._rewrites = bool(route.path_rem or route.replace_beg is not None)
        self._sets = route.set_headers
        drops = set(_DROPPED) | {folded(name) for name, _ in self._sets}
        if settings.accept_proto or settings.set_proto != "false":
            drops |= {b"x-forwarded-proto", b"x-forwarded-protocol"}
        if settings.accept_route:
            drops.add(b"pushpin-route")
        if settings.cdn_token:
            drops.add(b"cdn-loop")
        self._kinds = {
            way: HeaderClasses(partial(_kind, frozenset(drops | (way or frozenset())), way is _OVER_HTTP_DROPPED))
            for way in (None, _HANDSHAKE_DROPPED, _OVER_HTTP_DROPPED)
        }
        """Kinds of a client's headers: for plain requests (None), WebSocket handshakes, and events of WebSockets."""
        self._default_port = b":443" if target.ssl else b":80"
        self._https = self._proto(b"https")
        self._rule = settings.forwarded_for or None
        self._rule_trusted = settings.forwarded_for_trusted or None
        shown = f"route={quoted(route.name)} target={quoted(str(target))}"
        plain = shown.isascii() and shown.isprintable()
        self.loggable = shown.encode() if plain else None
        """Route and target as fields of log lines; None if a character of them has to be escaped."""

    def trusted(self, request: Request) -> bool:
        """Return whether the client is a GRIP proxy that signed with ``upstream_key`` (docs/grip.md §2.4).

        Args:
            request: Request of the client; its first Grip-Sig counts.
        """
        key = self._settings.upstream_key
        if key is None:
            return False
        for name, value in request.headers:
            if len(name) == 8 and name.lower() == b"grip-sig":
                return verify(value, key, int(self._clock()))
        return False

    def grip_headers(self) -> bytes:
        """Return the Grip-Sig and Grip-Feature lines, signed at most once per second (docs/grip.md §2.3)."""
        if self.route.no_grip:
            return b""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            sig = b"Grip-Sig: %b\r\n" % self._signer.token(second) if self._signer is not None else b""
            self._grip = b"%bGrip-Feature: %b\r\n" % (sig, FEATURES)
        return self._grip

    def host(self, request_host: bytes | None) -> bytes:
        """Return the Host to send, without a default port: that of the target, else of the route, else of the client.

        Args:
            request_host: Host of the client's request; None without one.
        """
        host = self._host or request_host or b"localhost"
        if host.endswith(self._default_port) and not host.endswith(b"]" + self._default_port[1:]):
            host = host[: -len(self._default_port)]
        return host

    def path(self, target: bytes) -> bytes:
        """Return the request ``target`` of a client as rewritten by the route."""
        return self.route.rewrite_path(target) if self._rewrites else target

    def head(
        self,
        request: Request,
        length: int | None,
        peer: Callable[[], bytes],
        secure: bool,
        trusted: bool,
        last_ids: Sequence[tuple[bytes, bytes]] = (),
        trace: bytes = b"",
    ) -> bytes:
        """Return the head to send, blank line included.

        Args:
            request: Request of the client.
            length: Length of the body in bytes; None if it is sent chunked.
            peer: Returns the client's address; called if a rule for X-Forwarded-For applies.
            secure: True if the client is connected by TLS.
            trusted: True if the client is a trusted GRIP proxy: its GRIP lines are passed on.
            last_ids: Pairs of channel and last id, for Grip-Last lines (docs/grip.md §6.5).
            trace: Lines of the ids that the client's request lacks.
        """
        known = request.head if not trusted else None
        written = known.forwarded.get(self) if known is not None else None
        if written is None:
            written = self._lines(request, length, trusted)
            if known is not None:
                known.keep_forwarded(self, written)
        lines, forwarded = written
        grip = b"" if trusted else self.grip_headers()
        if last_ids:
            grip += grip_last(last_ids)
        after = self._https if secure else b""
        rule = self._rule_trusted if trusted else self._rule
        if rule is not None:
            after += _forwarded_for(rule, forwarded, peer)
        return b"%b %b HTTP/1.1\r\n%b%b%b%b\r\n" % (
            request.method,
            self.path(request.target),
            lines,
            grip,
            after,
            trace,
        )

    def socket_parts(
        self, request: Request, over_http: bool, peer: Callable[[], bytes], secure: bool, trusted: bool
    ) -> tuple[bytes, bytes]:
        """Return the head of a WebSocket's request in two parts, without the proxy's GRIP lines and the blank line.

        Args:
            request: Handshake of the client.
            over_http: True for a request with events (docs/grip.md §8.3), false for a handshake (§8.2).
            peer: Returns the client's address; called if a rule for X-Forwarded-For applies.
            secure: True if the client is connected by TLS.
            trusted: True if the client is a trusted GRIP proxy: its GRIP lines are passed on.

        Returns:
            Request line with the header lines that precede the GRIP lines; header lines that follow them.
        """
        method = b"POST" if over_http else b"GET"
        drops = _OVER_HTTP_DROPPED if over_http else _HANDSHAKE_DROPPED
        lines, forwarded = self._lines(request, None, trusted, drops)
        before = b"%b %b HTTP/1.1\r\n%b" % (method, self.path(request.target), lines)
        if not self.route.no_grip:
            before += b"Sec-WebSocket-Extensions: grip\r\n"
        after = self._proto(b"wss") if secure else b""
        rule = self._rule_trusted if trusted else self._rule
        if rule is not None:
            after += _forwarded_for(rule, forwarded, peer)
        return before, after

    def _proto(self, proto: bytes) -> bytes:
        """Return the X-Forwarded-Proto lines with the scheme ``proto``, empty if the setting disables them."""
        say = self._settings.set_proto
        if say == "false":
            return b""
        line = b"X-Forwarded-Proto: %b\r\n" % proto
        return line + b"X-Forwarded-Protocol: %b\r\n" % proto if say == "true" else line

    def _lines(
        self, request: Request, length: int | None, trusted: bool, socket_drops: frozenset[bytes] | None = None
    ) -> tuple[bytes, tuple[bytes, ...]]:
        """Return the header lines that precede the GRIP lines, and the client's values of X-Forwarded-For.

        Args:
            request: Request of the client.
            length: Length of the body in bytes; None if it is sent chunked. Without effect for a WebSocket.
            trusted: True if the client is a trusted GRIP proxy.
            socket_drops: Key of ``_kinds`` for a WebSocket: names dropped in addition; None for a plain request.

        Returns:
            Lines passed on and lines added by the route and the settings; values that the rule for
            X-Forwarded-For takes, empty without one.
        """
        settings, kinds = self._settings, self._kinds[socket_drops]
        host = self.host(request.host)
        line = b": ".join
        out: list[bytes] = []
        if request.host is None:
            out.append(b"Host: %b" % host)
        has_length = False
        forwarded: list[bytes] = []
        loops: list[bytes] = []
        marked: list[bytes] = []
        collect_forwarded = (self._rule_trusted if trusted else self._rule) is not None
        for header in request.headers:
            kind = kinds[header[0]]
            if kind:
                if kind == DROP:
                    continue
                if kind == HOST:
                    out.append(b"%b: %b" % (header[0], host))
                    continue
                if kind == GRIP:
                    if not trusted:
                        continue
                elif kind == LENGTH:
                    if length is not None:
                        has_length = True
                        out.append(b"%b: %d" % (header[0], length))
                    continue
                elif kind == FORWARDED:
                    if collect_forwarded:
                        forwarded.append(header[1])
                        continue
                elif kind == FORWARDED_ALIKE:
                    if collect_forwarded:
                        continue
                elif kind == MARKED:
                    if self.route.orig_headers or trusted:
                        marked.append(line(header))
                    continue
                elif kind == LOOP:
                    loops.append(header[1])
                    continue
            out.append(line(header))
        for name, value in self._sets:
            if value:
                out.append(b"%b: %b" % (name, value))
        if socket_drops is None:
            if length is None:
                out.append(b"Transfer-Encoding: chunked")
            elif length and not has_length:
                out.append(b"Content-Length: %d" % length)
        out += marked
        if self.route.orig_headers and not trusted:
            for name, value in request.headers:
                low = folded(name)
                if low[:9] != _MARK and low not in settings.need_mark:
                    out.append(b"%b%b: %b" % (_MARK, name, value))
        if settings.cdn_token:
            out.append(b"CDN-Loop: %b" % cdn_loop(loops, settings.cdn_token))
        out.append(b"")
        return b"\r\n".join(out), tuple(forwarded)
