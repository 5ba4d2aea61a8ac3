"""Versions from the texts of cursors."""

from __future__ import annotations

import pytest

from griphub.client.errors import BadAnswer
from griphub.client.watch_messages import Version


@pytest.mark.parametrize(
    ("cursor", "version"),
    [("0", Version("", 0)), ("e1.7", Version("e1", 7)), ("e1.7.1700000000000000", Version("e1", 7))],
)
def test_a_version_of_a_cursor(cursor: str, version: Version) -> None:
    assert Version.of(cursor) == version
    assert str(version) in cursor
    assert Version.of(version.end) == version


@pytest.mark.parametrize("cursor", ["", "7", "e1", "e1.", "E.7", "e1.7.8.9", "e1.-7", "resync", "e1.7\n"])
def test_others_are_refused(cursor: str) -> None:
    with pytest.raises(BadAnswer, match="no cursor"):
        Version.of(cursor)
