"""Topics in memory, by name and by number."""

from __future__ import annotations

from dataclasses import replace

from griphub.store.topic import Topic, TopicSettings
from griphub.topics.topic_table import TopicTable

NEWS = Topic(3, "news", 0, 0, 0, 0, 0, 0, 1, TopicSettings())


def test_a_topic_is_found_by_name_and_number() -> None:
    table = TopicTable()
    assert (table.named("news"), table.numbered(3), len(table), list(table)) == (None, None, 0, [])
    table.set(NEWS)
    assert (table.named("news"), table.numbered(3), len(table), list(table)) == (NEWS, NEWS, 1, [NEWS])


def test_a_later_state_replaces_the_earlier() -> None:
    table = TopicTable()
    table.set(NEWS)
    later = replace(NEWS, floor=9)
    table.set(later)
    assert (table.named("news"), table.numbered(3), len(table)) == (later, later, 1)


def test_a_topic_made_again_is_another_one() -> None:
    table = TopicTable()
    table.set(NEWS)
    assert table.remove(3) == NEWS
    assert table.remove(3) is None
    again = replace(NEWS, number=4, birth=7)
    table.set(again)
    assert (table.named("news"), table.numbered(3), table.numbered(4)) == (again, None, again)
