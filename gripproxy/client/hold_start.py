"""The start of a hold: from an instruct to a session, its channels and its terms (docs/grip.md §4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gripproxy.client.context import ClientContext
from gripproxy.client.ports import HoldClient, HoldRequest
from gripproxy.delivery.channel import Wanted
from gripproxy.grip.filters import FilterError, ResponseFilter
from gripproxy.grip.headers import Headers, first
from gripproxy.grip.instruct import Instruct, is_instruct_type
from gripproxy.grip.response import Response
from gripproxy.routing.route import Route
from gripproxy.sessions.reliable_stream import ReliableStream
from gripproxy.sessions.response import ResponseHold, ResponseTerms
from gripproxy.sessions.stream import OPENED, StreamHold, StreamTerms

__all__ = ["begin_hold", "passes_through"]

_NO_META: dict[bytes, bytes] = {}


_CHANNEL_NEEDED: Final = "the backend has to send Grip-Channel, or the target needs sub="


class _HoldState:
    """Record of one route: terms that holds share, since those that begin one after another mostly have equal terms."""

    __slots__ = ("response", "scopes", "stream")

    def __init__(self) -> None:
        self.response: ResponseTerms | None = None
        """Terms of the newest long-poll."""
        self.stream: StreamTerms | None = None
        """Terms of the newest stream."""
        self.scopes: dict[int, Callable[[Instruct], list[Wanted]]] = {}
        """By index of the target: the channels that an instruct of a next link names."""


def passes_through(instruct: Instruct, headers: Headers) -> bool:
    """Return whether a GRIP response too large to be kept may be relayed and then held (docs/grip.md §4.2).

    Args:
        instruct: The instruct in its head.
        headers: Headers of the backend's response.

    Returns:
        True for a stream whose body is no instruct and has no filter that needs all of it.
    """
    return (
        (instruct.mode == "stream" or (instruct.mode is None and instruct.next is not None))
        and not is_instruct_type(first(headers, b"content-type") or b"")
        and not any("build-id" in channel.filters for channel in instruct.channels)
    )


def _wanted(instruct: Instruct, prefix: bytes, implicit: tuple[bytes, ...], most: int) -> list[Wanted]:
    """Return the channels to subscribe to: the instruct's with the route's prefix, then the target's ``sub=`` ones."""
    wanted: list[Wanted] = []
    seen: set[bytes] = set()
    for channel in instruct.channels[:most]:
        full = prefix + channel.name
        if full not in seen:
            seen.add(full)
            wanted.append((full, channel.name, channel.prev_id, channel.filters))
    for name in implicit:
        if name not in seen:
            seen.add(name)
            wanted.append((name, name, None, ()))
    return wanted


def begin_hold(
    context: ClientContext, client: HoldClient, exchange: HoldRequest, instruct: Instruct, opened: bool
) -> None:
    """Hold a client by an instruct; the exchange is over.

    Args:
        context: The client context.
        client: The client's connection.
        exchange: Its exchange.
        instruct: The instruct.
        opened: Head and body of the stream were sent already.
    """
    route = exchange.route
    assert route is not None
    request, target = exchange.request, route.targets[exchange.target_index]
    most = context.config.handler.connection_subscription_max
    wanted = _wanted(instruct, route.prefix, target.subs, most) if instruct.mode is not None else []
    if instruct.mode is not None and not wanted:
        if context.router.debug(route):
            exchange.refuse(f"Grip-Hold: {instruct.mode} without a channel: {_CHANNEL_NEEDED}")
            return
        context.events.without_channel(route, request, _CHANNEL_NEEDED)
    uri = b""
    if instruct.mode == "response" or instruct.next is not None or any(want[3] for want in wanted):
        uri = request.uri(client.secure)
        if route.secret_query:
            uri = route.public(uri)
    if instruct.gone is not None:
        base = uri or b"http://%b%b" % (request.host or b"localhost", route.public(request.target))
        client.set_gone(route, base, instruct.gone, target.untrusted)
    if client.half_closed:
        # The end of a half-closed client cannot be noticed: it is sent the end of the hold right away.
        _end_half_closed(context, client, exchange, instruct, opened)
    elif instruct.mode == "response":
        _hold_response(context, client, exchange, instruct, route, wanted)
    else:
        response = instruct.response if opened else _opening(client, exchange, instruct, wanted)
        if response is not None:
            _hold_stream(context, client, exchange, instruct, route, wanted, uri, None if opened else response)


def _end_half_closed(
    context: ClientContext, client: HoldClient, exchange: HoldRequest, instruct: Instruct, opened: bool
) -> None:
    """Respond to a client that can only receive: as at the timeout, or with a stream that ends behind its opening."""
    request, response = exchange.request, instruct.response
    if request.method == b"HEAD" and instruct.mode != "response":
        exchange.respond_head(response)
        return
    context.access_log.request(exchange, response.code, len(response.body))
    if not opened:
        response = exchange.with_cors(response)
    if instruct.mode == "response" or response.code in (204, 304):
        exchange.figures.answered[response.code // 100] += 1
        client.send_response(response, request)
    else:
        client.send_stream(None if opened else response, b"", request)


def _hold_response(
    context: ClientContext,
    client: HoldClient,
    exchange: HoldRequest,
    instruct: Instruct,
    route: Route,
    wanted: list[Wanted],
) -> None:
    """Begin a long-poll."""
    terms = ResponseTerms(
        instruct.response,
        instruct.timeout,
        instruct.meta or _NO_META,
        route,
        route.rate_key,
        context.router.debug(route),
        route.targets[exchange.target_index].untrusted,
    )
    state = route.states[_HoldState]
    if state.response == terms:
        terms = state.response
    else:
        state.response = terms
    hold = ResponseHold(client, context.sessions, terms, exchange.serial, exchange.because)
    client.hold(hold, exchange.request, exchange.body_for_hold(), context.router.cors(route))
    _start(context, client, exchange, hold, "response", wanted)


def _opening(client: HoldClient, exchange: HoldRequest, instruct: Instruct, wanted: list[Wanted]) -> Response | None:
    """Return the opening of a stream; None if the client has got a response that holds nothing."""
    request, response = exchange.request, instruct.response
    if any(want[3] for want in wanted):
        try:
            ids = ResponseFilter([name for want in wanted for name in want[3]], instruct.meta)
            response.body = ids.feed(response.body) + ids.finish()
        except FilterError as error:
            exchange.refuse(f"filter error: {error}")
            return None
    if request.method == b"HEAD":
        exchange.respond_head(response)
        return None
    response = exchange.with_cors(response)
    if response.code in (204, 304):
        # Nothing can follow such a head, so there is nothing to hold the client for.
        client.send_response(response, request)
        return None
    return response


def _hold_stream(
    context: ClientContext,
    client: HoldClient,
    exchange: HoldRequest,
    instruct: Instruct,
    route: Route,
    wanted: list[Wanted],
    uri: bytes,
    opening: Response | None,
) -> None:
    """Begin a stream; ``opening``: None if it was sent already."""
    request, debug, index = exchange.request, context.router.debug(route), exchange.target_index
    unrepairable = next((want[1] for want in wanted if want[2] is not None), None) if instruct.next is None else None
    if unrepairable is not None:
        # Without a link a gap could not be closed, so there is no stream to promise (docs/grip.md §4.2).
        client.send_stream(
            opening,
            b"\n\nchannel '%b' specifies prev-id, but no next link found\n" % unrepairable if debug else b"",
            request,
        )
        return
    target = route.targets[index]
    terms = StreamTerms(
        instruct.keep_alive,
        instruct.meta or _NO_META,
        instruct.next,
        uri,
        route,
        route.rate_key,
        debug,
        target.untrusted,
    )
    state = route.states[_HoldState]
    if state.stream == terms:
        terms = state.stream
    else:
        state.stream = terms
    stream: StreamHold
    serial, chunked, first_bytes = exchange.serial, bool(request.minor), OPENED if opening is None else opening
    if terms.link is not None:
        # One for all streams of the route's target: it is kept by each of them.
        scope = state.scopes.get(index)
        if scope is None:
            most = context.config.handler.connection_subscription_max
            scope = partial(_wanted, prefix=route.prefix, implicit=target.subs, most=most)
            state.scopes[index] = scope
        # URI and link are those of the terms, which are shared.
        stream = ReliableStream(
            client,
            context.sessions,
            terms,
            first_bytes,
            serial,
            terms.uri,
            terms.link,
            scope,
            chunked,
            context.trace.passed_on(request),
        )
    else:
        stream = StreamHold(client, context.sessions, terms, first_bytes, serial, chunked)
    client.hold(stream, request, b"", False)
    mode = "stream" if instruct.next is None else "reliable stream"
    _start(context, client, exchange, stream, mode, wanted)


def _start(
    context: ClientContext,
    client: HoldClient,
    exchange: HoldRequest,
    hold: ResponseHold | StreamHold,
    mode: str,
    wanted: list[Wanted],
) -> None:
    """Log a hold and subscribe to its channels."""
    context.access_log.hold(client, exchange, mode, wanted)
    hold.start(wanted, context.proxy.hold_confirm_timeout)
    recovered = exchange.began <= context.sessions.recovered
    if recovered and not hold.over and any(want[2] is not None for want in wanted):
        # All sessions held then had to recover; this one was on its way.
        hold.recover()
