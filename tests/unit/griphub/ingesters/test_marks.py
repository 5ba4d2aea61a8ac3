"""Marks: what is repeated after a restart, and when followers need a snapshot."""

from __future__ import annotations

from griphub.ingesters.marks import Begin, Mark, after_answer, begin, reset_version

GIVEN = Mark("s1", 6, "a", 7, "b")


def test_a_version_that_was_being_given_is_repeated() -> None:
    assert begin(GIVEN, "s1").begin is Begin.REPEAT


def test_without_a_mark_of_this_source_followers_need_a_snapshot() -> None:
    assert begin(None, "s1").reason == "first start"
    assert begin(GIVEN, "s2").reason == "the source was s1 and is s2"
    assert begin(Mark("s1", None, None, 7, "b"), "s1").reason == "the last reset was not answered"
    assert {begin(mark, "s2").begin for mark in (None, GIVEN)} == {Begin.RESET}


def test_a_poll_goes_from_the_answered_snapshot_to_the_next() -> None:
    assert GIVEN.answered() == Mark("s1", 7, "b", 7, "b")
    assert GIVEN.answered().following("c") == Mark("s1", 7, "b", 8, "c")


def test_a_hub_that_is_ahead_shows_that_the_source_went_back() -> None:
    assert after_answer(GIVEN, 7) is None
    assert after_answer(GIVEN, None) is None
    step = after_answer(GIVEN, 9)
    assert step is not None
    assert (step.begin, "version 9" in step.reason) == (Begin.RESET, True)
    assert reset_version(7, 9) == 10
    assert reset_version(7, None) == 8
    assert reset_version(0, None) == 1
