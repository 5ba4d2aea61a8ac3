"""ScatterGather to all workers: complete, cut short by a death, or given up."""

from typing import Any

from handler.dispatch.scatter_gather import ANSWER_TIMEOUT, ScatterGather


def test_all_answers_are_collected() -> None:
    questions: ScatterGather[str] = ScatterGather()
    got: list[Any] = []
    number = questions.ask(["a", "b"], 0, got.append)
    assert number != 0, "0 is for commands that nobody answers"
    questions.answer("a", number, [1])
    questions.answer("a", number, [1])
    assert got == []
    questions.answer("b", number, [2])
    assert got == [[[1], [2]]]
    assert len(questions) == 0


def test_nobody_to_ask() -> None:
    questions: ScatterGather[str] = ScatterGather()
    got: list[Any] = []
    questions.ask([], 0, got.append)
    assert got == [[]]


def test_a_dead_worker_is_not_waited_for() -> None:
    questions: ScatterGather[str] = ScatterGather()
    got: list[Any] = []
    number = questions.ask(["a", "b"], 0, got.append)
    questions.answer("a", number, True)
    questions.lost("b")
    assert got == [[True]]


def test_no_answer_in_time() -> None:
    questions: ScatterGather[str] = ScatterGather()
    got: list[Any] = []
    number = questions.ask(["a", "b"], 0, got.append)
    questions.answer("a", number, True)
    questions.expire(ANSWER_TIMEOUT - 0.1)
    assert got == []
    questions.expire(ANSWER_TIMEOUT)
    assert got == [None]
    questions.answer("b", number, True)
    assert got == [None]


def test_answers_find_their_question() -> None:
    questions: ScatterGather[str] = ScatterGather()
    first: list[Any] = []
    second: list[Any] = []
    one = questions.ask(["a"], 0, first.append)
    two = questions.ask(["a"], 0, second.append)
    questions.answer("a", two, "two")
    questions.answer("a", one, "one")
    questions.answer("a", 99, "none")
    assert (first, second) == ([["one"]], [["two"]])
