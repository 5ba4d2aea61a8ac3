"""Filters of a subscription: who gets an item, and in which wording (docs/grip.md §7).

A backend attaches filters to a channel; each delivery runs them in order. What a filter decides depends on the meta of
the connection and of the item only, except for ``http-check`` and ``http-modify``, which ask a backend: these make
:func:`run_filters` return an :class:`Ask`, to be carried out by whoever does I/O and continued with its ``resume``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import orjson

from .links import LinkError, check_uri, resolve, split

__all__ = [
    "ASK_MAX_ANSWER",
    "ASK_RATE",
    "ASK_TIMEOUT",
    "DROP",
    "KNOWN",
    "MESSAGE_CONTENT",
    "RESPONSE_CONTENT",
    "Ask",
    "AskAnswer",
    "Context",
    "Drop",
    "FilterError",
    "ResponseFilter",
    "Send",
    "Verdict",
    "content_filters",
    "content_filters_match",
    "mismatch_text",
    "run_filters",
]

KNOWN: Final = frozenset(
    ("skip-self", "skip-users", "require-sub", "build-id", "var-subst", "http-check", "http-modify")
)
"""Names that do something; any other is ignored wherever it comes from."""

MESSAGE_CONTENT: Final = frozenset(("build-id", "var-subst", "http-modify"))
"""Filters that may change a message; these are what a publisher's ``content-filters`` speaks of."""

RESPONSE_CONTENT: Final = frozenset(("build-id",))
"""Filters that may change the body of a stream's first response, or of a link's."""

ASK_TIMEOUT: Final = 10
"""Seconds the whole request of an :class:`Ask` may take."""

ASK_MAX_ANSWER: Final = 100_000
"""Bytes of an answer's body; reading may stop, and the request be given up, one byte later."""

ASK_RATE: Final = 100
"""Requests per second to one URL."""

_MAX_DIRECTIVE: Final = 10_000
"""Bytes a directive that goes on in the next chunk of a response may have: one without end would collect all of it."""

_Header = tuple[bytes, bytes]

# One directive: %% | %X | %(text)X, where \ in the text takes the next byte as it is.
_DIRECTIVE: Final = re.compile(rb"%(?:(%)|([A-Za-z])|\(([^\\)]*+(?:\\.[^\\)]*+)*+)\)(.))", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_UNSAFE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class FilterError(Exception):
    """A filter could not do its work; the text is ``<filter>: <problem>``, to be shown behind ``filter error: ``.

    Whether this ends the session or skips the item is the caller's to decide (docs/grip.md §7).
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class _DirectiveError(ValueError):
    """The content, or the id format, has a directive that cannot be carried out."""


@dataclass(slots=True)
class Context:
    """What the filters of one delivery may look at. It must not change until the last verdict is in."""

    meta: Mapping[bytes, bytes]
    """Of the connection."""
    item_meta: Mapping[bytes, bytes]
    channel: bytes
    """The item's channel, without the route's prefix, as all channel names here."""
    prev_ids: Mapping[bytes, bytes]
    """Per channel of the connection that has one, as it was before the item."""
    subscriptions: Collection[bytes]
    """Names of all channels of the connection."""
    uri: bytes
    """Current URI of the session, absolute; ``ws`` and ``wss`` count as ``http`` and ``https``."""


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver the item with this content."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Do not deliver the item; :data:`DROP` is the only instance anyone needs."""


DROP: Final = Drop()


@dataclass(frozen=True, slots=True)
class AskAnswer:
    """What the backend said to an :class:`Ask`."""

    code: int
    headers: Sequence[_Header]
    body: bytes


@dataclass(frozen=True, slots=True)
class Ask:
    """POST to a backend, then call ``resume`` with its answer, or with ``None`` if there was none.

    ``resume`` returns the next verdict, possibly another ``Ask``, and raises :class:`FilterError` like
    :func:`run_filters`. :data:`ASK_TIMEOUT`, :data:`ASK_MAX_ANSWER` and :data:`ASK_RATE` bind the caller.
    """

    url: bytes
    """Absolute, http or https."""
    headers: list[_Header]
    """``Sub-Meta``, ``Pub-Meta`` and ``Grip-Last``; signing and framing are the caller's."""
    body: bytes
    resume: Callable[[AskAnswer | None], Verdict]


Verdict = Send | Drop | Ask


def run_filters(names: Sequence[str], context: Context, content: bytes) -> Verdict:
    """Decide about one delivery.

    Arguments:
        names: the filters of the item's channel, in order; unknown ones are ignored.
        context: what they look at.
        content: the item's, after any JSON Patch.

    Returns:
        ``Send``, ``DROP`` or an ``Ask``. The first filter that drops ends the run.

    Raises:
        FilterError: a filter failed; later ones were not run.

    Source: docs/grip.md §7.
    """
    return _run_from(0, names, context, content)


def content_filters(names: Sequence[str]) -> tuple[str, ...]:
    """Those of a channel's filters that may change a message, in order."""
    return tuple(name for name in names if name in MESSAGE_CONTENT)


def content_filters_match(names: Sequence[str], prepared_for: Sequence[str] | None) -> bool:
    """Tell whether an item's ``content-filters`` fit a subscription.

    Arguments:
        names: all filters of the subscription's channel.
        prepared_for: ``content-filters`` of the item's format; ``None`` if it has none, which fits everything.

    Source: docs/grip.md §7, last paragraph.
    """
    return prepared_for is None or content_filters(names) == tuple(prepared_for)


def mismatch_text(names: Sequence[str], prepared_for: Sequence[str]) -> str:
    """What debug mode says when :func:`content_filters_match` fails."""
    return f"content filter mismatch: subscription={','.join(content_filters(names))} message={','.join(prepared_for)}"


class ResponseFilter:
    """Applies the response content filters of an instruction to a body that comes in chunks.

    Only ``build-id`` is one. Previous ids play no part here, so ``%I`` without text is an error (docs/grip.md §7).

    Arguments:
        names: all filters of the instruction's channels; those that do not change responses are ignored.
        meta: of the connection.

    Raises:
        FilterError: the meta does not hold what a filter needs.
    """

    __slots__ = ("_handle", "_offset", "_pending")

    def __init__(self, names: Sequence[str], meta: Mapping[bytes, bytes]) -> None:
        # Once, on however many channels it is: a second pass would take "%I" that was written as "%%I" for a directive.
        self._handle = _id_directive(meta, None) if RESPONSE_CONTENT.intersection(names) else None
        self._pending = b""
        self._offset = 0

    @property
    def active(self) -> bool:
        """Whether the body may change at all."""
        return self._handle is not None

    def feed(self, chunk: bytes) -> bytes:
        """Filter the next part; a directive that is not complete yet is kept back.

        Raises:
            FilterError: a directive is wrong, or longer than 10,000 bytes.
        """
        if self._handle is None:
            return chunk
        data = self._pending + chunk
        done, used = self._render(data, True)
        if len(data) - used > _MAX_DIRECTIVE:
            raise FilterError("build-id", f"Directive at position {self._offset + used} exceeds {_MAX_DIRECTIVE} bytes")
        self._pending = data[used:]
        self._offset += used
        return done

    def finish(self) -> bytes:
        """End the body.

        Raises:
            FilterError: it ends within a directive.
        """
        if not self._pending:
            return b""
        data, self._pending = self._pending, b""
        return self._render(data, False)[0]

    def _render(self, data: bytes, more: bool) -> tuple[bytes, int]:
        assert self._handle is not None
        try:
            return _render(data, self._handle, more, self._offset)
        except _DirectiveError as e:
            raise FilterError("build-id", str(e)) from e


def _run_from(index: int, names: Sequence[str], context: Context, content: bytes) -> Verdict:
    for i in range(index, len(names)):
        name = names[i]
        if name == "skip-self":
            user = context.meta.get(b"user")
            if user and user == context.item_meta.get(b"sender"):
                return DROP
        elif name == "skip-users":
            user = context.meta.get(b"user")
            if user and any(user == part.strip() for part in context.item_meta.get(b"skip_users", b"").split(b",")):
                return DROP
        elif name == "require-sub":
            required = context.item_meta.get(b"require_sub")
            if required and required not in context.subscriptions:
                return DROP
        elif name == "build-id":
            content = _build_id(context, content)
        elif name == "var-subst":
            content = _var_subst(context, content)
        elif name == "http-check" or name == "http-modify":
            return _ask(name, i, names, context, content)
    return Send(content)


def _build_id(context: Context, content: bytes) -> bytes:
    # Without any channel there is no id to speak of, with one the format must work out even if the content has no %I.
    ids = context.prev_ids if context.prev_ids or context.subscriptions else None
    handle = _id_directive(context.meta, ids)
    try:
        return _render(content, handle)[0]
    except _DirectiveError as e:
        raise FilterError("build-id", str(e)) from e


def _id_directive(
    meta: Mapping[bytes, bytes], prev_ids: Mapping[bytes, bytes] | None
) -> Callable[[bytes, bytes], bytes]:
    id_format = meta.get(b"id_format")
    if id_format is None:
        raise FilterError("build-id", "no sub meta 'id_format'")
    default: bytes | None = None
    if prev_ids is not None:
        try:
            default = _render(id_format, partial(_variable, prev_ids))[0]
        except _DirectiveError as e:
            raise FilterError("build-id", f"failed to render ID: {e}") from e
    encoding = meta.get(b"id_encoding")
    if encoding is not None and encoding != b"hex":
        raise FilterError("build-id", f"unsupported encoding: {encoding.decode('utf-8', 'replace')}")
    return partial(_id, default, encoding is not None)


def _id(default: bytes | None, hexadecimal: bool, letter: bytes, text: bytes) -> bytes:
    if letter != b"I":
        raise _unknown(letter)
    value = text or default
    if value is None:
        raise _DirectiveError("No ID specified and no default ID in context")
    return value.hex().encode() if hexadecimal else value


def _var_subst(context: Context, content: bytes) -> bytes:
    try:
        return _render(content, partial(_variable, context.meta))[0]
    except _DirectiveError as e:
        raise FilterError("var-subst", str(e)) from e


def _variable(values: Mapping[bytes, bytes], letter: bytes, name: bytes) -> bytes:
    if letter != b"s":
        raise _unknown(letter)
    if not name:
        raise _DirectiveError("Directive 's' requires argument")
    value = values.get(name)
    if value is None:
        raise _DirectiveError(f"No such variable '{name.decode('utf-8', 'replace')}'")
    return value


def _unknown(letter: bytes) -> _DirectiveError:
    return _DirectiveError(f"Unknown directive '{letter.decode('latin-1')}'")


def _render(
    data: bytes, handle: Callable[[bytes, bytes], bytes], more: bool = False, offset: int = 0
) -> tuple[bytes, int]:
    """Replace the directives of a text.

    Arguments:
        data: the text.
        handle: given letter and text (empty if none) of a directive, returns what stands for it.
        more: an incomplete directive at the end is not an error, but left for the next call.
        offset: position of ``data`` in the whole, for messages.

    Returns:
        The result and how many bytes of ``data`` went into it.

    Raises:
        _DirectiveError: with the position at which reading stopped, counted in bytes from 0.
    """
    if b"%" not in data:
        return data, len(data)
    out: list[bytes] = []
    position = 0
    while (mark := data.find(b"%", position)) >= 0:
        out.append(data[position:mark])
        directive = _DIRECTIVE.match(data, mark)
        if directive is None:
            kind, text = _problem(data, mark, offset)
            if more and kind == "incomplete":
                return b"".join(out), mark
            raise _DirectiveError(text)
        percent, plain, text_, letter = directive.groups()
        position = directive.end()
        if percent:
            out.append(b"%")
            continue
        try:
            if plain:
                out.append(handle(plain, b""))
            else:
                out.append(handle(letter, _ESCAPE.sub(rb"\1", text_)))
        except _DirectiveError as e:
            raise _DirectiveError(f"{e} at position {offset + position - 1}") from e
    out.append(data[position:])
    return b"".join(out), len(data)


def _problem(data: bytes, mark: int, offset: int) -> tuple[Literal["incomplete", "wrong"], str]:
    """Say why no directive begins at ``mark``, and whether further bytes could make it one."""
    end = len(data)
    last = offset + end - 1
    if mark + 1 == end:
        return "incomplete", f"Expected directive after '%' at position {last}"
    if data[mark + 1] != ord("("):
        letter = data[mark + 1 : mark + 2].decode("latin-1")
        return "wrong", f"Unknown directive '{letter}' at position {offset + mark + 1}"
    if mark + 2 == end:
        return "incomplete", f"Expected character after '(' at position {last}"
    # The pattern took the whole text up to a closing parenthesis, if there is one, and missed only the letter.
    rest = _ESCAPE.sub(b"", data[mark + 2 :])
    if rest.endswith(b"\\"):
        return "incomplete", f"Expected character after '\\' at position {last}"
    if rest.endswith(b")"):
        return "incomplete", f"Expected directive after ')' at position {last}"
    return "incomplete", f"Unterminated field starting at position {offset + mark + 1}"


def _ask(name: str, index: int, names: Sequence[str], context: Context, content: bytes) -> Ask:
    link = context.meta.get(b"url")
    if not link:
        raise FilterError(name, "missing url value")
    base = context.uri
    if base[:3].lower() in (b"ws:", b"wss"):
        base = b"http" + base[2:]
    try:
        url = resolve(base, check_uri(link))
        split(url)
    except LinkError as e:
        raise FilterError(name, "invalid url value") from e
    headers = [(b"Sub-Meta", _json(context.meta)), (b"Pub-Meta", _json(context.item_meta))]
    for channel, prev_id in context.prev_ids.items():
        if _UNSAFE.search(channel) or _UNSAFE.search(prev_id):
            # Both may come from JSON, where a line break is possible; in a header it would begin another one.
            raise FilterError(name, f"channel or id cannot be written in a header: {channel!r}; last-id={prev_id!r}")
        headers.append((b"Grip-Last", channel + b"; last-id=" + prev_id))
    body = content if name == "http-modify" else b""
    return Ask(url, headers, body, partial(_answered, name, index, names, context, content))


def _answered(
    name: str, index: int, names: Sequence[str], context: Context, content: bytes, answer: AskAnswer | None
) -> Verdict:
    if answer is None:
        raise FilterError(name, "network request failed: general error")
    if answer.code not in (200, 204):
        raise FilterError(name, f"unexpected network request status: code={answer.code}")
    modify = name == "http-modify"
    if modify and len(answer.body) > ASK_MAX_ANSWER:
        raise FilterError(name, f"network response exceeded {ASK_MAX_ANSWER} bytes")
    if any(key.lower() == b"action" and value.strip() == b"drop" for key, value in answer.headers):
        return DROP
    if modify and answer.code == 200:
        content = answer.body
    return _run_from(index + 1, names, context, content)


def _json(meta: Mapping[bytes, bytes]) -> bytes:
    """One line, whatever is in the values: JSON escapes every control character."""
    text = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in meta.items()}
    return orjson.dumps(text, option=orjson.OPT_SORT_KEYS)
