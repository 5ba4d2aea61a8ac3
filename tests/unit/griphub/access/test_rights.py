"""Rights of tokens and of anonymous callers."""

from __future__ import annotations

import pytest

from griphub.access.owner import ANONYMOUS, Owner
from griphub.access.patterns import Patterns
from griphub.access.rights import RIGHTS, AnonymousAccess, Right, Rights, anonymous_rights

RIGHTS_OF_ONE = Rights(Owner("iss", "sub"), Patterns(["p"]), Patterns(["s*"]), Patterns(["a"]), 1_700_000_001)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("p", {"publish"}), ("s1", {"subscribe"}), ("a", {"admin"}), ("other", set())],
)
def test_no_right_implies_another(topic: str, expected: set[Right]) -> None:
    assert {right for right in RIGHTS if RIGHTS_OF_ONE.may(right, topic)} == expected
    assert RIGHTS_OF_ONE.sees(topic) is bool(expected)


@pytest.mark.parametrize(
    ("access", "expected"),
    [("none", set()), ("subscribe", {"subscribe"}), ("all", {"publish", "subscribe", "admin"})],
)
def test_rights_without_a_token(access: AnonymousAccess, expected: set[Right]) -> None:
    rights = anonymous_rights(access)
    assert {right for right in RIGHTS if rights.may(right, "any")} == expected
    assert rights.owner == ANONYMOUS
    assert (rights.expires, rights.ends) == (0, 0)


def test_links_of_rights_end_with_the_step_in_which_the_rights_end() -> None:
    assert RIGHTS_OF_ONE.ends == 1_700_000_400
    assert RIGHTS_OF_ONE.ends % 600 == 0
