"""From an instruct to a held session: which channels, which terms, and what the connection keeps meanwhile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gripproxy.edge.parser import Request
from gripproxy.grip.filters import FilterError, ResponseFilter
from gripproxy.grip.headers import Headers, first
from gripproxy.grip.instruct import INSTRUCT_TYPE, Instruct
from gripproxy.sessions.channels import Wanted
from gripproxy.sessions.reliable import ReliableStream
from gripproxy.sessions.response import ResponseHold, ResponseTerms
from gripproxy.sessions.stream import OPENED, StreamHold, StreamTerms

if TYPE_CHECKING:
    from gripproxy.edge.client import ClientConnection
    from gripproxy.edge.exchange import Exchange
    from gripproxy.worker import Worker

__all__ = ["begin_hold", "passes_through", "request_uri"]


def request_uri(request: Request, tls: bool) -> bytes:
    """Return the URI of a request, base of relative ones; ``tls``: it came by TLS."""
    return b"%b://%b%b" % (b"https" if tls else b"http", request.host or b"localhost", request.target)


def passes_through(instruct: Instruct, headers: Headers) -> bool:
    """Whether a GRIP response too large to be kept may be relayed and then held (docs/grip.md §4.2).

    ``headers`` are the backend's.
    """
    return (
        (instruct.mode == "stream" or (instruct.mode is None and instruct.next is not None))
        and (first(headers, b"content-type") or b"").partition(b";")[0].strip().lower() != INSTRUCT_TYPE
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


def begin_hold(worker: Worker, client: ClientConnection, exchange: Exchange, instruct: Instruct, opened: bool) -> None:
    """Hold the client as the backend asked; the exchange is over.

    ``opened``: the stream's head and body have been sent already.
    """
    route = exchange.route
    assert route is not None
    request = exchange.request
    config = worker.config
    target = route.targets[exchange.target_index]
    most = config.handler.connection_subscription_max
    wanted = _wanted(instruct, route.prefix, target.subs, most) if instruct.mode is not None else []
    filters = any(want[3] for want in wanted)
    debug = worker.debug(route)
    rate_key = route.id if route.explicit_id else b""
    response = instruct.response
    uri = b""
    if filters or instruct.mode == "response" or instruct.next is not None:
        uri = request_uri(request, client.secure)
    if instruct.gone is not None:
        client.set_gone(
            route,
            uri or b"http://%b%b" % (request.host or b"localhost", request.target),
            instruct.gone,
            target.untrusted,
        )
    if client.half_closed:
        # A half-closed client that leaves cannot be noticed: it gets at once what a hold ends with.
        _end_at_once(worker, client, exchange, instruct, opened)
        return
    if instruct.mode == "response":
        terms = ResponseTerms(
            response, instruct.timeout, instruct.meta or _NO_META, route, rate_key, debug, target.untrusted
        )
        last = route.cache.get("response")
        # Holds that begin one after another mostly say the same; what is equal is kept once.
        if last == terms:
            terms = last
        else:
            route.cache["response"] = terms
        hold = ResponseHold(client, worker.keeper, terms, exchange.serial, exchange.because)
        client.hold(hold, request, exchange.body_for_hold(), worker.cors(route))
        worker.log_hold(client, exchange, "response", wanted)
        _start(worker, hold, wanted, exchange.began)
        return
    if not opened:
        if filters:
            try:
                ids = ResponseFilter([name for want in wanted for name in want[3]], instruct.meta)
                response.body = ids.feed(response.body) + ids.finish()
            except FilterError as error:
                exchange.refuse(f"filter error: {error}")
                return
        if request.method == b"HEAD":
            exchange.respond_head(response)
            return
        response = exchange.with_cors(response)
        if response.code in (204, 304):
            # Nothing can follow such a head, so there is nothing to hold the client for.
            client.send_response(response, request)
            return
    unrepairable = next((want[1] for want in wanted if want[2] is not None), None) if instruct.next is None else None
    if unrepairable is not None:
        # Without a link a gap could not be closed, so there is no stream to promise (docs/grip.md §4.2).
        client.send_stream(
            None if opened else response,
            b"\n\nchannel '%b' specifies prev-id, but no next link found\n" % unrepairable if debug else b"",
            request,
        )
        return
    stream_terms = StreamTerms(
        instruct.keep_alive, instruct.meta or _NO_META, instruct.next, uri, route, rate_key, debug, target.untrusted
    )
    last = route.cache.get("stream")
    if last == stream_terms:
        stream_terms = last
    else:
        route.cache["stream"] = stream_terms
    stream: StreamHold
    if instruct.next is not None:
        # One for all streams of the route's target: it is kept by each of them.
        scope = route.cache.get(("scope", exchange.target_index))
        if scope is None:
            scope = partial(_wanted, prefix=route.prefix, implicit=target.subs, most=most)
            route.cache["scope", exchange.target_index] = scope
        stream = ReliableStream(
            client,
            worker.keeper,
            stream_terms,
            OPENED if opened else response,
            exchange.serial,
            uri,
            instruct.next,
            scope,
        )
        stream.chunked = bool(request.minor)
        client.hold(stream, request, b"", False)
        worker.log_hold(client, exchange, "reliable stream", wanted)
        _start(worker, stream, wanted, exchange.began)
        return
    stream = StreamHold(client, worker.keeper, stream_terms, OPENED if opened else response, exchange.serial)
    stream.chunked = bool(request.minor)
    client.hold(stream, request, b"", False)
    worker.log_hold(client, exchange, "stream", wanted)
    _start(worker, stream, wanted, exchange.began)


def _end_at_once(
    worker: Worker, client: ClientConnection, exchange: Exchange, instruct: Instruct, opened: bool
) -> None:
    """Answer a client that can only receive: as at the timeout, or with a stream that ends behind its beginning."""
    request, response = exchange.request, instruct.response
    if request.method == b"HEAD" and instruct.mode != "response":
        exchange.respond_head(response)
        return
    if worker.log.level >= 2:
        worker.log_request(client, exchange, response.code, len(response.body))
    if not opened:
        response = exchange.with_cors(response)
    if instruct.mode == "response" or response.code in (204, 304):
        exchange.figures.answered[response.code // 100] += 1
        client.send_response(response, request)
    else:
        client.send_stream(None if opened else response, b"", request)


def _start(worker: Worker, hold: ResponseHold | StreamHold, wanted: list[Wanted], asked: float) -> None:
    """Begin a hold whose backend was asked at the time ``asked``."""
    hold.start(wanted, worker.config.proxy.hold_confirm_timeout)
    if asked <= worker.recovered and not hold.over and any(want[2] is not None for want in wanted):
        # All who were held then had to recover; this one was on its way.
        worker.updates.add(hold)


_NO_META: dict[bytes, bytes] = {}
