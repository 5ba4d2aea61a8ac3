"""Header names, each looked at once."""

from __future__ import annotations

from gripproxy.http1.header_classes import NAME_KEPT, NAMES_MAX, HeaderClasses, folded


def test_letter_case_does_not_matter_and_each_is_asked_for_once() -> None:
    asked = []

    def number(name: bytes) -> int:
        asked.append(name)
        return len(name)

    names = HeaderClasses(number)
    assert [names[b"Host"], names[b"HOST"], names[b"Host"], names[b"x"]] == [4, 4, 4, 1]
    assert asked == [b"host", b"host", b"x"]


def test_names_that_mean_nothing_are_remembered_too() -> None:
    asked = []
    names = HeaderClasses(lambda name: asked.append(name) or 0)  # type: ignore[func-returns-value]
    assert [names[b"a"], names[b"a"]] == [0, 0]
    assert asked == [b"a"]


def test_nobody_can_fill_the_memory() -> None:
    names = HeaderClasses(len)
    for count in range(2 * NAMES_MAX + 10):
        assert names[b"%d" % count] == len(str(count))
        assert len(names) <= NAMES_MAX
    before = len(names)
    assert names[b"x" * (NAME_KEPT + 1)] == NAME_KEPT + 1
    assert len(names) == before


def test_names_that_look_alike_are_folded_into_one() -> None:
    assert {folded(name) for name in (b"Meta-User", b"meta_user", b"META.USER", b"Meta|User")} == {b"meta-user"}
    assert folded(b"X!#$%&'*+.^_`|~-aZ09\xff") == b"x---------------az09-"
    assert folded(b"Metauser") != folded(b"Meta-User")
