"""Templates: parsed once, measured before they are rendered; messages and places are tested with the filters."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gripproxy.grip import template as template_module
from gripproxy.grip.template import DIRECTIVES_MAX, DirectiveError, DirectiveLimit, Template


def value(letter: bytes, text: bytes) -> bytes:
    return b"<" + letter + b":" + text + b">"


def rendered(text: bytes) -> bytes:
    template = Template(text)
    values = template.values(value)
    result = template.render(values)
    assert template.size(values) == len(result)
    return result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (b"", b""),
        (b"100%%", b"100%"),
        (b"%%(a)s", b"%(a)s"),
        (b"%%%(a)s%%", b"%<s:a>%"),
        (b"%I and %(a)I%(a)I", b"<I:> and <I:a><I:a>"),
        (b"%(a\\)b\\\\)s", b"<s:a)b\\>"),
        (b"%(100%%)s", b"<s:100%%>"),
    ],
)
def test_directives(text: bytes, result: bytes) -> None:
    assert rendered(text) == result


def test_a_value_is_asked_for_once() -> None:
    asked = []
    template = Template(b"%(a)s%(b)s%(a)s" * 10)
    values = template.values(lambda letter, text: asked.append(text) or text * 3)  # type: ignore[func-returns-value]
    assert asked == [b"a", b"b"]
    assert template.distinct == 2
    assert template.render(values) == b"aaabbbaaa" * 10


def test_the_size_is_known_without_the_result() -> None:
    template = Template(b"x" + b"%(a)s" * 1000)
    assert template.size((b"y" * 10**9,)) == 1 + 10**12


def test_directives_are_bounded_and_percent_signs_are_none() -> None:
    assert rendered(b"%%" * 50_000) == b"%" * 50_000
    Template(b"%(a)s" * DIRECTIVES_MAX)
    with pytest.raises(DirectiveLimit, match="more than 10000 directives"):
        Template(b"%(a)s" * (DIRECTIVES_MAX + 1))


def test_what_comes_first_is_reported_first() -> None:
    def none(letter: bytes, text: bytes) -> bytes:
        raise DirectiveError("no value")

    with pytest.raises(DirectiveError, match="no value at position 4"):
        Template(b"%(a)s %").values(none)
    with pytest.raises(DirectiveError, match="Expected directive after '%' at position 6"):
        Template(b"%(a)s %").values(value)


SLOW = re.compile(rb"(?:[^%]|%%)*+")
"""What a literal is, step by step."""


PIECES = st.sampled_from((b"%%", b"%%%%", b"%(a)s", b"%I", b"a", b"\n", b"%", b"(", b")", b"\\"))


@given(st.lists(PIECES, max_size=8).map(b"".join), st.booleans())
def test_literals_are_those_found_step_by_step(text: bytes, more: bool) -> None:
    def outcome() -> tuple[bytes, int, int, str]:
        template = Template(text, more=more, offset=7)
        try:
            values = template.values(value)
        except DirectiveError as error:
            return b"", template.used, template.memory, str(error)
        return template.render(values), template.used, template.memory, ""

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template_module, "_LITERAL", SLOW)
        assert outcome() == found


@given(st.text(alphabet="%(a)sI\\ ", max_size=30).map(str.encode), st.integers(0, 30))
def test_a_text_in_two_parts_is_the_same(text: bytes, cut: int) -> None:
    """What cannot be decided at the end of a part is left for the next one."""
    try:
        whole = rendered(text)
    except DirectiveError:
        return
    first = Template(text[:cut], more=True)
    rest = text[:cut][first.used :] + text[cut:]
    assert first.render(first.values(value)) + rendered(rest) == whole
