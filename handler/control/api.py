"""The API of the control port (docs/grip.md §5.5). Sans-I/O: a request in, the bytes of the answer out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gripproxy.grip.headers import Headers, all_of, first, split_list
from gripproxy.grip.item import Item, ItemError
from gripproxy.process.log import INFO, PRINTABLE_MAX, log
from gripproxy.process.log_event import quoted
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.reserved_channel import ReservedChannel
from handler.sources.ingest import BadJson, NoObject, items_of_json

from .authenticator import Authenticator
from .http_message import TEXT, ApiRequest, Plan, Response
from .origin import cross_site

__all__ = ["Api"]

JSON: Final = b"application/json"

ACCEPTABLE: Final = {
    b"text/plain": TEXT,
    b"text/*": TEXT,
    b"*/*": TEXT,
    b"*": TEXT,
    b"application/json": JSON,
    b"application/*": JSON,
}
"""Known ranges of Accept, and the type each stands for."""


class Api:
    """Carries out and answers control requests.

    Args:
        dispatcher: receiver of the items.
        authenticator: authenticator of the requests.
        now: the dispatcher's time in seconds.
        wall: seconds since 1970, for tokens.
        reserved: ``reserved_prefix``; empty: no channel is reserved on this port.
        strict: ``publish_strict``.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        now: Callable[[], float],
        wall: Callable[[], float],
        reserved: bytes = b"",
        strict: bool = True,
    ) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._now = now
        self._wall = wall
        self._reserved = reserved
        self._strict = strict
        self.open = not authenticator.closed
        """True if ``admits`` is true for all requests."""

    def admits(self, target: bytes, headers: Headers) -> bool:
        """Return whether a request is authenticated; if not, it gets 401 before its body is read.

        Args:
            target: of the request.
            headers: of the request.
        """
        if not self._authenticator.closed or target == b"/":
            return True
        return self._authenticator.admits(first(headers, b"authorization"), int(self._wall()))

    def forbids(self, headers: Headers) -> bytes:
        """Return the reason for 403, empty if there is none: a cross-site request of a browser without a key.

        A browser sends such a request for any page, also to addresses that only its machine can reach. A page cannot
        know a key.

        Args:
            headers: of the request.
        """
        return b"" if self._authenticator.closed else cross_site(headers)

    def respond(self, request: ApiRequest, body: bytes = b"") -> bytes:
        """Carry out a request that ``admits`` has let pass.

        Args:
            request: the head; its ``plan`` is set if it publishes.
            body: the whole body.

        Returns:
            The bytes of the answer.
        """
        plan = request.plan
        if plan is not None:
            try:
                items = items_of_json(body, self._dispatcher.bounds, self._strict)
                if self._reserved:
                    self._check_reserved(items, request.headers)
            except ValueError:
                pass  # The answer is worked out below.
            else:
                dispatcher, now = self._dispatcher, self._now()
                dispatcher.counters.http += len(items)
                for item in items:
                    if item.unknown:
                        self._note_unknown((item,), now)
                    dispatcher.accept(item, now)
                if log.level >= INFO:
                    if log.json:
                        self._log(request, 200, plan.size)
                    else:
                        log.printable(plan.line)
                return plan.answer
        response = self._respond(request, body)
        if log.level >= INFO:
            self._log(request, response.code, len(response.body))
        return response.to(request)

    def _respond(self, request: ApiRequest, body: bytes) -> Response:
        content_type = _negotiate(request.headers)
        if content_type is None:
            text = b"Not Acceptable. Supported formats are text/plain and application/json.\n"
            return Response(406, text)
        path = request.target
        if path.endswith(b"/"):
            path = path[:-1]
        if path in (b"", b"/"):
            return Response(200, b"Pushpin API\n")
        if path not in (b"/publish", b"/recover"):
            return Response(404, b"Not Found\n")
        if request.method != b"POST":
            return Response(405, b"Method not allowed: %b.\n" % request.method, TEXT, b"Allow: POST\r\n")
        if path == b"/publish":
            return self._publish(request, body, content_type)
        self._dispatcher.recover()
        return Response(200, b'{"message":"Updated"}\n' if content_type is JSON else b"Updated\n", content_type)

    def _publish(self, request: ApiRequest, body: bytes, content_type: bytes) -> Response:
        dispatcher = self._dispatcher
        try:
            items = items_of_json(body, dispatcher.bounds, self._strict)
            if self._reserved:
                self._check_reserved(items, request.headers)
        except ReservedChannel as error:
            dispatcher.counters.invalid += 1
            dispatcher.refusals.note("HTTP", str(error), body, self._now())
            text = (
                b"Forbidden: channels that begin with '%b' are reserved: use another channel, or send Authorization: "
                b"Bearer with reserved_key or a token made with it.\n" % self._reserved
            )
            return Response(403, text)
        except BadJson:
            return Response(400, b"Body is not valid JSON.\n")
        except NoObject:
            return Response(400, b"Invalid format.\n")
        except ItemError as error:
            dispatcher.counters.invalid += 1
            dispatcher.refusals.note("HTTP", error.reason, body, self._now())
            return Response(400, b"Invalid format: %b\n" % str(error).encode("utf-8", "backslashreplace"))
        now = self._now()
        dispatcher.counters.http += len(items)
        self._note_unknown(items, now)
        if (first(request.headers, b"gripproxy-count") or b"").lower() == b"yes":
            counts = []
            for item in items:
                audience = dispatcher.audience(item)
                counts.append(audience if dispatcher.accept(item, now) else 0)
            if content_type is JSON:
                numbers = b",".join(b"%d" % count for count in counts)
                return Response(200, b'{"message":"Published","subscribers":[%b]}\n' % numbers, JSON)
            numbers = b"".join(b" %d" % count for count in counts)
            return Response(200, b"Published\nsubscribers:%b\n" % numbers)
        for item in items:
            dispatcher.accept(item, now)
        text = b'{"message":"Published"}\n' if content_type is JSON else b"Published\n"
        response = Response(200, text, content_type)
        target = quoted(request.target).encode()
        line = b"control request: method=%b target=%b status=200 bytes=%d\n" % (request.method, target, len(text))
        shown = line[:-1].decode("latin-1")
        if shown.isascii() and shown.isprintable() and len(line) < PRINTABLE_MAX:
            request.plan = Plan(response.to(request), line, len(text))
        return response

    def _note_unknown(self, items: Iterable[Item], now: float) -> None:
        for item in items if self._strict else ():
            if item.unknown:
                self._dispatcher.unknown_names.note("HTTP", item.channel, item.unknown, now)

    @staticmethod
    def _log(request: ApiRequest, status: int, size: int) -> None:
        log.info("control request", method=request.method, target=request.target, status=status, bytes=size)

    def _check_reserved(self, items: Iterable[Item], headers: Headers) -> None:
        """Refuse items of which one is on a reserved channel, unless the publisher may use these."""
        for item in items:
            if item.channel.startswith(self._reserved):
                if self._authenticator.admits_reserved(first(headers, b"authorization"), int(self._wall())):
                    return
                raise ReservedChannel(item.channel, self._reserved)


def _negotiate(headers: Headers) -> bytes | None:
    """Return TEXT or JSON, or None if neither is accepted: the last known range wins, quality values are ignored."""
    values = all_of(headers, b"accept")
    if not values:
        return TEXT
    if len(values) == 1 and (chosen := ACCEPTABLE.get(values[0])) is not None:
        return chosen
    chosen = None
    for entry in split_list(values):
        chosen = ACCEPTABLE.get(entry.partition(b";")[0].strip(), chosen)
    return chosen
