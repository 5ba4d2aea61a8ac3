"""Filters of a subscription: which sessions get an item, and in which wording (docs/grip.md §7).

A backend attaches filters to a channel; each delivery runs them in order. The decision of a filter depends on the meta
of the connection and of the item only, except for ``http-check`` and ``http-modify``, which ask a backend: these make
:func:`run_filters` return an :class:`Ask`, to be carried out by the caller and continued with its ``resume``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from gripproxy.grip.errors import GripproxyError

from .item_cache import ENTRY, Shared
from .links import LinkError, check_uri, resolve, split
from .template import DirectiveError, DirectiveLimit, Template

__all__ = [
    "ASK_MAX_ANSWER",
    "ASK_RATE",
    "ASK_TIMEOUT",
    "DELIVERY",
    "DROP",
    "KNOWN",
    "MESSAGE_CONTENT",
    "RESPONSE_CONTENT",
    "Ask",
    "AskAnswer",
    "Context",
    "Drop",
    "FilterError",
    "FilterLimit",
    "ResponseFilter",
    "Send",
    "Verdict",
    "content_filters",
    "content_filters_match",
    "lets_through",
    "mismatch_text",
    "run_filters",
]

KNOWN: Final = frozenset(
    ("skip-self", "skip-users", "require-sub", "build-id", "var-subst", "http-check", "http-modify")
)
"""Names that do something; any other is ignored wherever it comes from."""

MESSAGE_CONTENT: Final = frozenset(("build-id", "var-subst", "http-modify"))
"""Filters that may change a message; these are the ones a publisher's ``content-filters`` speaks of."""

DELIVERY: Final = frozenset(("skip-self", "skip-users", "require-sub"))
"""Filters that decide by the metas alone whether a session gets an item; these hold for its actions too."""

RESPONSE_CONTENT: Final = frozenset(("build-id",))
"""Filters that may change the body of a stream's first response, or of a link's."""

ASK_TIMEOUT: Final = 10
"""Seconds the whole request of an :class:`Ask` may take."""

ASK_MAX_ANSWER: Final = 100_000
"""Bytes of an answer's body; reading may stop, and the request be given up, one byte later."""

ASK_RATE: Final = 100
"""Requests per second to one URL."""

_SHOWN: Final = 20
"""Names of content filters in a message; a publisher may write any number."""

_MAX_DIRECTIVE: Final = 10_000
"""Bytes a directive that goes on in the next chunk of a response may have: one without end would collect all of it."""

_Header = tuple[bytes, bytes]

_UNSAFE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class FilterError(GripproxyError):
    """A filter could not do its work; the text is ``<filter>: <problem>``, to be shown behind ``filter error: ``.

    The caller decides whether this ends the session or skips the item (docs/grip.md §7).

    Args:
        name: Name of the filter.
        problem: The problem, for people.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class FilterLimit(FilterError):
    """An item asks for more than a filter may do for one session: the item is refused for that session."""


@dataclass(slots=True)
class Context:
    """Values that the filters of one delivery may look at. It must not change until the last verdict is in."""

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
    """Do not deliver the item; :data:`DROP` is the only instance needed."""


DROP: Final = Drop()


@dataclass(frozen=True, slots=True)
class AskAnswer:
    """Answer of the backend to an :class:`Ask`."""

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


def run_filters(names: Sequence[str], context: Context, content: bytes, shared: Shared) -> Verdict:
    """Decide about one delivery.

    Args:
        names: the filters of the item's channel, in order; unknown ones are ignored.
        context: values they look at.
        content: the item's, after any JSON Patch.
        shared: work on the item for all sessions; its ``output_max`` bounds content and result, in bytes.

    Returns:
        ``Send``, ``DROP`` or an ``Ask``. The first filter that drops ends the run.

    Raises:
        FilterError: a filter failed; later ones were not run.
        FilterLimit: one would have had to do too much.

    Source: docs/grip.md §7.
    """
    return _run_from(0, names, context, content, shared)


def lets_through(
    names: Sequence[str],
    meta: Mapping[bytes, bytes],
    item_meta: Mapping[bytes, bytes],
    subscriptions: Collection[bytes],
    shared: Shared,
) -> bool:
    """Return whether the delivery filters let an item pass that has no content: an action.

    Args:
        names: the filters of the item's channel; all but those of :data:`DELIVERY` are ignored.
        meta: of the connection.
        item_meta: of the item.
        subscriptions: names of all channels of the connection.
        shared: work on the item for all sessions.

    Source: docs/grip.md §7.
    """
    return all(_passes(name, meta, item_meta, subscriptions, shared) for name in names if name in DELIVERY)


def content_filters(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of ``names``, filters of a channel, that may change a message, in order."""
    return tuple(name for name in names if name in MESSAGE_CONTENT)


def content_filters_match(names: Sequence[str], prepared_for: Sequence[str] | None) -> bool:
    """Return whether an item's ``content-filters`` fit a subscription.

    Args:
        names: all filters of the subscription's channel.
        prepared_for: ``content-filters`` of the item's format; ``None`` if it has none, which fits everything.

    Source: docs/grip.md §7, last paragraph.
    """
    return prepared_for is None or content_filters(names) == tuple(prepared_for)


def mismatch_text(names: Sequence[str], prepared_for: Sequence[str]) -> str:
    """Return the text of debug mode for a failed :func:`content_filters_match`, with at most 20 names of the item.

    Args:
        names: All filters of the subscription's channel.
        prepared_for: ``content-filters`` of the item's format.
    """
    shown = ",".join(prepared_for[:_SHOWN]) + (",…" if len(prepared_for) > _SHOWN else "")
    return f"content filter mismatch: subscription={','.join(content_filters(names))} message={shown}"


class ResponseFilter:
    """Applies the response content filters of an instruction to a body that comes in chunks.

    Only ``build-id`` is one. Previous ids play no part here, so ``%I`` without text is an error (docs/grip.md §7).

    Args:
        names: all filters of the instruction's channels; those that do not change responses are ignored.
        meta: of the connection.

    Raises:
        FilterError: the meta lacks a value that a filter needs.
    """

    __slots__ = ("_handle", "_offset", "_pending")

    def __init__(self, names: Sequence[str], meta: Mapping[bytes, bytes]) -> None:
        # Once, on however many channels it is: a second pass would take "%I" that was written as "%%I" for a directive.
        self._handle = _id_directive(meta, None, None) if RESPONSE_CONTENT.intersection(names) else None
        self._pending = b""
        self._offset = 0

    @property
    def active(self) -> bool:
        """True if the body may change at all."""
        return self._handle is not None

    def feed(self, chunk: bytes) -> bytes:
        """Filter the next part of the body.

        Args:
            chunk: The part.

        Returns:
            The filtered part; a directive that is not complete yet is kept back.

        Raises:
            FilterError: a directive is wrong, or longer than 10,000 bytes.
        """
        if self._handle is None:
            return chunk
        data = self._pending + chunk if self._pending else chunk
        done, used = self._render(data, True)
        if len(data) - used > _MAX_DIRECTIVE:
            raise FilterError("build-id", f"Directive at position {self._offset + used} exceeds {_MAX_DIRECTIVE} bytes")
        self._pending = data[used:]
        self._offset += used
        return done

    def finish(self) -> bytes:
        """Return the last part of the filtered body.

        Raises:
            FilterError: it ends within a directive.
        """
        if not self._pending:
            return b""
        data, self._pending = self._pending, b""
        return self._render(data, False)[0]

    def _render(self, data: bytes, more: bool) -> tuple[bytes, int]:
        assert self._handle is not None
        if b"%" not in data:
            return data, len(data)
        try:
            # No bound but that of the chunk: results are at most twice as long, and the backend is waited for.
            template = Template(data, len(data), more, self._offset)
            return template.render(template.values(self._handle)), template.used
        except DirectiveError as e:
            raise FilterError("build-id", str(e)) from e


def _run_from(index: int, names: Sequence[str], context: Context, content: bytes, shared: Shared) -> Verdict:
    for i in range(index, len(names)):
        name = names[i]
        if name in DELIVERY:
            if not _passes(name, context.meta, context.item_meta, context.subscriptions, shared):
                return DROP
        elif name == "build-id":
            content = _build_id(context, content, shared)
        elif name == "var-subst":
            content = _var_subst(context, content, shared)
        elif name == "http-check" or name == "http-modify":
            return _ask(name, i, names, context, content, shared)
    return Send(content)


def _passes(
    name: str,
    meta: Mapping[bytes, bytes],
    item_meta: Mapping[bytes, bytes],
    subscriptions: Collection[bytes],
    shared: Shared,
) -> bool:
    """Return whether one delivery filter lets the item pass."""
    if name == "require-sub":
        required = item_meta.get(b"require_sub")
        return not required or required in subscriptions
    user = meta.get(b"user")
    if not user:
        return True
    if name == "skip-self":
        return user != item_meta.get(b"sender")
    users = item_meta.get(b"skip_users", b"")
    skipped: frozenset[bytes] = shared.once(
        "skip_users",
        lambda: frozenset([part.strip() for part in users.split(b",")]),
        lambda found: len(users) + ENTRY * len(found),
    )
    return user not in skipped


def _template(name: str, text: bytes, shared: Shared) -> Template:
    """Return a text parsed; ``name`` is the filter that needs it."""
    most = shared.output_max
    if len(text) > most:
        raise FilterLimit(name, f"content of {len(text)} bytes; filter_output_max is {most}")

    found: Template | str | None = shared.get(("template", text))
    if found is None:
        try:
            found = Template(text)
        except DirectiveLimit as e:
            # That it is too much is not found out again for each session.
            found = shared.keep(("template", text), f"content with {e}", len(text))
        else:
            shared.keep(("template", text), found, found.memory)
    if isinstance(found, str):
        raise FilterLimit(name, found)
    return found


def _render(
    name: str,
    text: bytes,
    shared: Shared,
    source: Mapping[bytes, bytes] | None,
    handle: Callable[[bytes, bytes], bytes],
) -> bytes:
    """Replace the directives of a text.

    Args:
        name: the filter that does it.
        text: with directives.
        shared: work on the item for all sessions.
        source: the object that ``handle`` looks at, if it is equal for many sessions: not asked again for it.
        handle: returns the text for a directive.

    Raises:
        DirectiveError: a directive cannot be carried out.
        FilterLimit: the text, its directives or the result are too much.
    """
    if b"%" not in text:
        return text
    template = _template(name, text, shared)
    if not template.distinct:
        source = None
    key = (name, text, id(source))
    if source is not None and (seen := shared.get(key)) is not None and seen[0] is source:
        found: bytes | Exception = seen[1]
    else:
        found = _rendered(name, text, template, shared, handle)
        if source is not None:
            # The object is kept too, so that no other one gets its id.
            shared.keep(key, (source, found), 0)
    if isinstance(found, DirectiveError):
        raise DirectiveError(*found.args)
    if isinstance(found, FilterLimit):
        raise FilterLimit(name, found.problem)
    assert isinstance(found, bytes)
    return found


def _rendered(
    name: str, text: bytes, template: Template, shared: Shared, handle: Callable[[bytes, bytes], bytes]
) -> bytes | DirectiveError | FilterLimit:
    """Return the result, or the error; equal values share one result."""
    try:
        values = template.values(handle)
    except DirectiveError as e:
        return DirectiveError(*e.args)
    key = (name, text, values)
    found: bytes | None = shared.get(key)
    if found is None:
        size, most = template.size(values), shared.output_max
        if size > most:
            return FilterLimit(name, f"result of {size} bytes; filter_output_max is {most}")
        found = shared.keep(key, template.render(values), size + sum(map(len, values)) + 8 * len(values))
    return found


def _build_id(context: Context, content: bytes, shared: Shared) -> bytes:
    # Without any channel there is no id to speak of, with one the format must work out even if the content has no %I.
    ids = context.prev_ids if context.prev_ids or context.subscriptions else None
    handle = _id_directive(context.meta, ids, shared)
    try:
        return _render("build-id", content, shared, None, handle)
    except DirectiveError as e:
        raise FilterError("build-id", str(e)) from e


def _id_directive(
    meta: Mapping[bytes, bytes], prev_ids: Mapping[bytes, bytes] | None, shared: Shared | None
) -> Callable[[bytes, bytes], bytes]:
    id_format = meta.get(b"id_format")
    if id_format is None:
        raise FilterError("build-id", "no sub meta 'id_format'")
    default: bytes | None = None
    if prev_ids is not None and shared is not None:
        try:
            default = _render("build-id", id_format, shared, None, partial(_variable, prev_ids))
        except DirectiveError as e:
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
        raise DirectiveError("No ID specified and no default ID in context")
    return value.hex().encode() if hexadecimal else value


def _var_subst(context: Context, content: bytes, shared: Shared) -> bytes:
    try:
        return _render("var-subst", content, shared, context.meta, partial(_variable, context.meta))
    except DirectiveError as e:
        raise FilterError("var-subst", str(e)) from e


def _variable(values: Mapping[bytes, bytes], letter: bytes, name: bytes) -> bytes:
    if letter != b"s":
        raise _unknown(letter)
    if not name:
        raise DirectiveError("Directive 's' requires argument")
    value = values.get(name)
    if value is None:
        raise DirectiveError(f"No such variable '{name.decode('utf-8', 'replace')}'")
    return value


def _unknown(letter: bytes) -> DirectiveError:
    return DirectiveError(f"Unknown directive '{letter.decode('latin-1')}'")


def _ask(name: str, index: int, names: Sequence[str], context: Context, content: bytes, shared: Shared) -> Ask:
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
    headers = [
        (b"Sub-Meta", _json(context.meta)),
        (b"Pub-Meta", shared.once("pub-meta", lambda: _json(context.item_meta), len)),
    ]
    for channel, prev_id in context.prev_ids.items():
        if _UNSAFE.search(channel) or _UNSAFE.search(prev_id):
            # Both may come from JSON, where a line break is possible; in a header it would begin another one.
            raise FilterError(name, f"channel or id cannot be written in a header: {channel!r}; last-id={prev_id!r}")
        headers.append((b"Grip-Last", channel + b"; last-id=" + prev_id))
    body = content if name == "http-modify" else b""
    return Ask(url, headers, body, partial(_answered, name, index, names, context, content, shared))


def _answered(
    name: str,
    index: int,
    names: Sequence[str],
    context: Context,
    content: bytes,
    shared: Shared,
    answer: AskAnswer | None,
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
    return _run_from(index + 1, names, context, content, shared)


def _json(meta: Mapping[bytes, bytes]) -> bytes:
    """One line, for any values: JSON escapes every control character."""
    text = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in meta.items()}
    return orjson.dumps(text, option=orjson.OPT_SORT_KEYS)
