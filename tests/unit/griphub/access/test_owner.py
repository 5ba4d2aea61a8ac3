"""Owners, and the texts that stand for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.access.owner import ANONYMOUS, Owner, linked_reader, owner_key, turn_of

OWNERS = st.builds(Owner, st.text("a:1", max_size=4), st.text("a:1", max_size=4))


@pytest.mark.parametrize(
    ("owner", "key"),
    [(Owner("https://a", "b"), "9:https://ab"), (Owner("1:", "b"), "2:1:b"), (ANONYMOUS, "0:")],
)
def test_the_key_has_the_length_of_the_issuer_first(owner: Owner, key: str) -> None:
    assert owner_key(owner) == key


@given(OWNERS, OWNERS)
def test_different_owners_have_different_keys(one: Owner, other: Owner) -> None:
    assert (owner_key(one) == owner_key(other)) is (one == other)


@given(OWNERS)
def test_an_owner_in_links_is_a_number_of_32_bits(owner: Owner) -> None:
    assert 0 <= turn_of(owner_key(owner)) < 2**32
    assert linked_reader(turn_of(owner_key(owner))) != owner_key(owner)
