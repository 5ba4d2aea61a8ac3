"""What the control port answers (docs/grip.md §5.5). No sockets: a request in, the bytes of the answer out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gripproxy.grip.headers import Headers, all_of, first, split_list
from gripproxy.grip.item import ItemError
from gripproxy.log import INFO, PRINTABLE_MAX, log

from .exchange import Exchange
from .guard import Guard
from .origin import cross_site
from .publication import BadJson, NoObject, items_of_json

__all__ = ["Api", "ApiRequest", "answer"]

PHRASES: Final = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    411: b"Length Required",
    503: b"Service Unavailable",
}

TEXT: Final = b"text/plain"
JSON: Final = b"application/json"

ACCEPTABLE: Final = {
    b"text/plain": TEXT,
    b"text/*": TEXT,
    b"*/*": TEXT,
    b"*": TEXT,
    b"application/json": JSON,
    b"application/*": JSON,
}
"""Ranges of Accept that are known, and the type each stands for."""

_HEADS: Final[dict[tuple[int, bytes, bytes, bool], bytes]] = {}


class Plan(NamedTuple):
    """What becomes of a request that publishes, if all is right with its body: the same each time."""

    answer: bytes
    line: bytes
    """For the log."""


@dataclass(slots=True)
class ApiRequest:
    """A request on the control port, body included."""

    method: bytes
    target: bytes
    """Path and query, as sent."""
    http_1_1: bool = True
    keep_alive: bool = False
    """Whether the connection stays open after the answer."""
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    """Set for each of the requests that have all else in common."""
    plan: Plan | None = None
    """For those that publish: what to do if all is right with the body."""


def answer(
    code: int,
    body: bytes,
    content_type: bytes = TEXT,
    extra: bytes = b"",
    *,
    http_1_1: bool = True,
    keep_alive: bool = False,
    head: bool = False,
) -> bytes:
    """Return a whole response. ``extra`` are header lines with their line ends, put first; ``head``: leave the body
    away. Order of the headers as Pushpin sends them."""
    key = (code, content_type, extra, http_1_1)
    start = _HEADS.get(key)
    if start is None:
        # As many entries as there are literals in this module.
        version = b"1.1" if http_1_1 else b"1.0"
        start = b"HTTP/%b %d %b\r\n%bContent-Type: %b\r\n" % (version, code, PHRASES[code], extra, content_type)
        _HEADS[key] = start
    close = b"" if keep_alive else b"Connection: close\r\n"
    return b"%b%bContent-Length: %d\r\n\r\n%b" % (start, close, len(body), b"" if head else body)


class Api:
    """Answers control requests, and does what they ask for.

    Arguments: ``exchange`` takes the items; ``guard`` says who may; ``now`` and ``wall`` are clocks, in seconds: the
    exchange's, and the time since 1970 for tokens.
    """

    def __init__(self, exchange: Exchange, guard: Guard, now: Callable[[], float], wall: Callable[[], float]) -> None:
        self._exchange = exchange
        self._guard = guard
        self._now = now
        self._wall = wall
        self.open = not guard.closed
        """Whether all requests are admitted, none need be asked about."""

    def admits(self, target: bytes, headers: Headers) -> bool:
        """Return whether a request may be read any further; if not, it gets 401 whatever its body is."""
        if not self._guard.closed or target == b"/":
            return True
        return self._guard.admits(first(headers, b"authorization"), int(self._wall()))

    def forbids(self, headers: Headers) -> bytes:
        """Return why a request gets 403: a page of another site had a browser send it, and there is no key.

        A browser sends such a request for any page that its user looks at, also to addresses that only his machine
        can reach; with a key the page would have to know it. Empty if the request is none.
        """
        return b"" if self._guard.closed else cross_site(headers)

    def respond(self, request: ApiRequest) -> bytes:
        """Do what ``request`` asks for, which ``admits`` has let pass, and return the answer."""
        plan = request.plan
        if plan is not None:
            try:
                items = items_of_json(request.body, self._exchange.bounds)
            except ValueError:
                pass  # What is wrong is told below.
            else:
                exchange, now = self._exchange, self._now()
                exchange.counters.http += len(items)
                for item in items:
                    exchange.accept(item, now)
                if log.level >= INFO:
                    log.printable(plan.line)
                return plan.answer
        code, body, content_type, extra = self._respond(request)
        if log.level >= INFO:
            log.info("control: %s %s code=%d %d", request.method, request.target, code, len(body))
        return answer(
            code,
            body,
            content_type,
            extra,
            http_1_1=request.http_1_1,
            keep_alive=request.keep_alive,
            head=request.method == b"HEAD",
        )

    def _respond(self, request: ApiRequest) -> tuple[int, bytes, bytes, bytes]:
        content_type = _negotiate(request.headers)
        if content_type is None:
            text = b"Not Acceptable. Supported formats are text/plain and application/json.\n"
            return 406, text, TEXT, b""
        path = request.target
        if path.endswith(b"/"):
            path = path[:-1]
        if path in (b"", b"/"):
            return 200, b"Pushpin API\n", TEXT, b""
        if path not in (b"/publish", b"/recover"):
            return 404, b"Not Found\n", TEXT, b""
        if request.method != b"POST":
            return 405, b"Method not allowed: %b.\n" % request.method, TEXT, b"Allow: POST\r\n"
        if path == b"/publish":
            return self._publish(request, content_type)
        self._exchange.recover()
        return 200, b'{"message":"Updated"}\n' if content_type is JSON else b"Updated\n", content_type, b""

    def _publish(self, request: ApiRequest, content_type: bytes) -> tuple[int, bytes, bytes, bytes]:
        exchange = self._exchange
        try:
            items = items_of_json(request.body, exchange.bounds)
        except BadJson:
            return 400, b"Body is not valid JSON.\n", TEXT, b""
        except NoObject:
            return 400, b"Invalid format.\n", TEXT, b""
        except ItemError as error:
            exchange.counters.invalid += 1
            exchange.refusals.note("HTTP", str(error) or "unknown action", request.body, self._now())
            return 400, b"Invalid format: %b\n" % str(error).encode("utf-8", "backslashreplace"), TEXT, b""
        now = self._now()
        exchange.counters.http += len(items)
        if (first(request.headers, b"gripproxy-count") or b"").lower() == b"yes":
            counts = []
            for item in items:
                audience = exchange.audience(item)
                counts.append(audience if exchange.accept(item, now) else 0)
            if content_type is JSON:
                numbers = b",".join(b"%d" % count for count in counts)
                return 200, b'{"message":"Published","subscribers":[%b]}\n' % numbers, JSON, b""
            numbers = b"".join(b" %d" % count for count in counts)
            return 200, b"Published\nsubscribers:%b\n" % numbers, TEXT, b""
        for item in items:
            exchange.accept(item, now)
        body = b'{"message":"Published"}\n' if content_type is JSON else b"Published\n"
        data = answer(200, body, content_type, http_1_1=request.http_1_1, keep_alive=request.keep_alive)
        line = b"control: %b %b code=200 %d\n" % (request.method, request.target, len(body))
        text = line[:-1].decode("latin-1")
        if text.isascii() and text.isprintable() and len(line) < PRINTABLE_MAX:
            request.plan = Plan(data, line)
        return 200, body, content_type, b""


def _negotiate(headers: Headers) -> bytes | None:
    """Return TEXT or JSON, or None if neither is accepted: the last known range wins, quality is not looked at."""
    values = all_of(headers, b"accept")
    if not values:
        return TEXT
    if len(values) == 1 and (chosen := ACCEPTABLE.get(values[0])) is not None:
        return chosen
    chosen = None
    for entry in split_list(values):
        chosen = ACCEPTABLE.get(entry.partition(b";")[0].strip(), chosen)
    return chosen
