"""Filters of subscriptions: which messages they get, by attributes.

filter  = unary { "AND" unary } | unary { "OR" unary }
unary   = [ "NOT" | "-" ] primary
primary = "(" filter ")" | "attributes" ":" key | "attributes" "." key ("=" | "!=") string
        | "hasPrefix" "(" "attributes" "." key "," string ")"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from griphub.pubsub.filter_tokens import FILTER_MAX, Token, TokenKind, syntax_error, tokens_of
from griphub.pubsub.status import invalid

__all__ = ["Matches", "parse_filter"]

Matches = Callable[[Mapping[str, str]], bool]
"""Function that returns whether a message with certain attributes passes."""

_KEYWORDS: Final = ("AND", "OR", "NOT")


def parse_filter(source: str) -> Matches | None:
    """Return the meaning of a filter; None for the empty one, which all messages pass.

    Args:
        source: the filter.

    Raises:
        ApiError: INVALID_ARGUMENT, it is none, or too long.
    """
    if not source:
        return None
    size = len(source.encode("utf-8", "replace"))
    if size > FILTER_MAX:
        raise invalid(
            f"The value for filter is too large. You passed {size} bytes, but the maximum value is {FILTER_MAX}."
        )
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens_of(source)
        self._next = 0

    def whole(self) -> Matches:
        found = self._filter()
        self._take("end")
        return found

    def _filter(self) -> Matches:
        terms = [self._unary()]
        joint = ""
        while self._now.kind == "word" and self._now.text in ("AND", "OR"):
            if joint and joint != self._now.text:
                # A mixture needs parentheses.
                raise self._error()
            joint = self._take("word").text
            terms.append(self._unary())
        if len(terms) == 1:
            return terms[0]
        if joint == "AND":
            return lambda attributes: all(term(attributes) for term in terms)
        return lambda attributes: any(term(attributes) for term in terms)

    def _unary(self) -> Matches:
        now = self._now
        if (now.kind, now.text) in (("word", "NOT"), ("sign", "-")):
            self._next += 1
            inner = self._primary()
            return lambda attributes: not inner(attributes)
        return self._primary()

    def _primary(self) -> Matches:
        now = self._now
        if now.kind == "sign" and now.text == "(":
            self._next += 1
            inner = self._filter()
            self._take("sign", ")")
            return inner
        if now.kind == "word" and now.text == "hasPrefix":
            self._next += 1
            self._take("sign", "(")
            self._take("word", "attributes")
            self._take("sign", ".")
            key = self._key()
            self._take("sign", ",")
            beginning = self._take("string").value
            self._take("sign", ")")
            return lambda attributes: attributes[key].startswith(beginning) if key in attributes else False
        self._take("word", "attributes")
        if self._now.text == ":" and self._now.kind == "sign":
            self._next += 1
            key = self._key()
            return lambda attributes: key in attributes
        self._take("sign", ".")
        key = self._key()
        sign = self._take("sign", "=", "!=").text
        value = self._take("string").value
        if sign == "=":
            return lambda attributes: attributes.get(key) == value
        return lambda attributes: attributes.get(key) != value

    def _key(self) -> str:
        now = self._now
        if now.kind not in ("word", "string") or (now.kind == "word" and now.text in _KEYWORDS):
            raise self._error()
        self._next += 1
        return now.value

    # --- tokens

    @property
    def _now(self) -> Token:
        return self._tokens[self._next]

    def _take(self, kind: TokenKind, *texts: str) -> Token:
        now = self._now
        if now.kind != kind or (texts and now.text not in texts):
            raise self._error()
        self._next += kind != "end"
        return now

    def _error(self) -> Exception:
        return syntax_error(self._source, self._now.place, self._now.text)
