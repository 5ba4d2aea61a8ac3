"""Tokens of the filter language, with their places for error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from griphub.pubsub.status import ApiError, invalid

__all__ = ["FILTER_MAX", "Token", "TokenKind", "syntax_error", "tokens_of"]

FILTER_MAX: Final = 256
"""Greatest length of a filter, in bytes of UTF-8."""

TokenKind = Literal["word", "string", "sign", "end"]
"""Kinds of tokens. ``word``: a name or keyword; ``sign``: punctuation."""

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<word>[A-Za-z0-9_][A-Za-z0-9_-]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<sign>!=|[:.=(),-])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{3})|(.))", re.DOTALL)
_PLAIN: Final = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Token:
    """Token of a filter.

    Attributes:
        kind: its kind.
        text: as written.
        value: of a string: its content; of others: the text.
        place: number of characters before it.
    """

    kind: TokenKind
    text: str
    value: str
    place: int


def syntax_error(source: str, place: int, token: str) -> ApiError:
    """Return the error of a filter.

    Args:
        source: the filter.
        place: number of characters before the token that is wrong.
        token: that token; empty at the end.
    """
    before = source[:place]
    line, column = before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
    text = f"syntax error at line {line}, column {column}, token '{token}'"
    metadata = {"line": str(line), "column": str(column), "token": token, "message": "syntax error"}
    message = f"Invalid filter expression: failed to parse ({text})."
    return invalid(message, "FILTER_EXPRESSION_FAILED_TO_PARSE", metadata)


def tokens_of(source: str) -> list[Token]:
    """Return the tokens of a filter, and one for its end.

    Args:
        source: the filter.

    Raises:
        ApiError: INVALID_ARGUMENT, it has a character or an escape that is none of the language.
    """
    found = []
    place = 0
    while place < len(source):
        match = _TOKEN.match(source, place)
        if match is None:
            raise syntax_error(source, place, source[place])
        text = match[0]
        if match.lastgroup == "word":
            found.append(Token("word", text, text, place))
        elif match.lastgroup == "string":
            found.append(Token("string", text, _unescaped(source, place, text), place))
        elif match.lastgroup == "sign":
            found.append(Token("sign", text, text, place))
        place = match.end()
    found.append(Token("end", "", "", place))
    return found


def _unescaped(source: str, place: int, text: str) -> str:
    """Return the content of a string in quotes."""

    def plain(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        number = int(digits, 16) if digits else int(match[4], 8) if match[4] else -1
        if number >= 0:
            # Halves of surrogate pairs are no characters.
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise syntax_error(source, place, text)
            return chr(number)
        if match[5] not in _PLAIN:
            raise syntax_error(source, place, text)
        return _PLAIN[match[5]]

    return _ESCAPE.sub(plain, text[1:-1])
