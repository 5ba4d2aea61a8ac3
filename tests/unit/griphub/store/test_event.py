"""What an event counts for."""

from __future__ import annotations

from griphub.store.event import Event


def test_size_is_of_content_and_names() -> None:
    plain = Event(1, 0, 1, 5, b"12345", "a/b", None, "put", {})
    assert plain.size == 8
    keyed = Event(1, 0, 1, 5, b"12345", "a/b", "clé", "put", {"n": "v"})
    assert keyed.size == 8 + 4 + 2
