"""Values of keys from events."""

from __future__ import annotations

from typing import Any

from griphub.client.cached_value import VALUE_SIZE, mutation_of
from griphub.client.watch_lines import checked_event
from griphub.client.watch_messages import Version


def event(**members: Any) -> Any:
    return checked_event({"key": "k", "op": "put", "cursor": "e.5", "version_cursor": "e.6", **members})


def test_a_value_has_all_that_a_reader_needs() -> None:
    found = mutation_of(event(data="text", content_type="text/plain", attributes={"a": "b"}))
    assert found is not None
    assert found.value is not None
    value = found.value
    assert (value.data, value.content_type, value.attributes) == ("text", "text/plain", {"a": "b"})
    assert (value.version, value.cursor) == (Version("e", 6), "e.5")
    assert found.size == VALUE_SIZE + 6


def test_null_is_a_value_and_a_deletion_is_none() -> None:
    null, deletion = mutation_of(event(data=None)), mutation_of(event(op="delete"))
    assert null is not None
    assert null.value is not None
    assert deletion is not None
    assert deletion.value is None
    assert mutation_of(event(key=None, op=None)) is None


def test_objects_take_more_than_their_text() -> None:
    found = mutation_of(event(data={"a": [1, 2, 3]}))
    assert found is not None
    assert found.size > VALUE_SIZE + 40
