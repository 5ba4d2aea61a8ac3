"""Names of resources, and labels (scenario 3)."""

from __future__ import annotations

import pytest

from griphub.pubsub.names import ResourceName, check_labels, check_project, check_resource, parse_name
from griphub.pubsub.status import ApiError


@pytest.mark.parametrize("id", ["abc", "a+b%20~c.d", "Topic-1_x", "a" * 255, "xgoog"])
def test_ids(id: str) -> None:
    name = check_resource("p", "topics", id)
    assert str(name) == f"projects/p/topics/{id}"
    assert parse_name(str(name), "topics") == name
    assert name.local == f"p/{id}"


@pytest.mark.parametrize("id", ["", "ab", "goog-x", "goog", "1x3", "a$b", "a" * 256, "a b", "äbc", "abc\n", "a:b"])
def test_other_ids_are_refused(id: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_resource("p", "subscriptions", id)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert str(caught.value).startswith(f"Invalid resource name given (name=projects/p/subscriptions/{id}). Refer to")


@pytest.mark.parametrize("project", ["p", "example.com:p", "my-project-1", "a" * 63])
def test_projects(project: str) -> None:
    assert check_project(project) == project


@pytest.mark.parametrize("project", ["", "P", "-x", "a" * 64, "a/b", "a b"])
def test_other_projects_are_refused(project: str) -> None:
    with pytest.raises(ApiError, match="Invalid resource name given"):
        check_project(project)


@pytest.mark.parametrize(
    "text",
    ["", "abc", "projects/p/topics", "projects/p/topics/abc/d", "projects/p/subscriptions/abc", "x/p/topics/abc"],
)
def test_other_texts_are_no_names_of_topics(text: str) -> None:
    with pytest.raises(ApiError, match="Invalid resource name given"):
        parse_name(text, "topics")


def test_a_long_name_is_shown_in_part() -> None:
    with pytest.raises(ApiError) as caught:
        parse_name("x" * 100_000, "topics")
    assert len(str(caught.value)) < 1000


def test_a_name_has_parts() -> None:
    assert parse_name("projects/example.com:p/topics/a%2Fb", "topics") == ResourceName(
        "example.com:p", "topics", "a%2Fb"
    )


@pytest.mark.parametrize("labels", [{}, {"a": ""}, {"ключ": "значение-1"}, {"a-b_c1": "x" * 63}, {"日": "本"}])
def test_labels(labels: dict[str, str]) -> None:
    assert check_labels(labels) == labels


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"": "x"}, "label key"),
        ({"A": "x"}, "label key"),
        ({"1a": "x"}, "label key"),
        ({"a" * 64: "x"}, "label key"),
        ({"a.b": "x"}, "label key"),
        ({"a": "X"}, "label value"),
        ({"a": "x" * 64}, "label value"),
        ({f"a{n}": "" for n in range(65)}, "65"),
    ],
)
def test_other_labels_are_refused(labels: dict[str, str], text: str) -> None:
    with pytest.raises(ApiError, match=text):
        check_labels(labels)
