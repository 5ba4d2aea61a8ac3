"""Numbers of subscribers in answers of a handler, of Pushpin, and of a port that is none."""

from __future__ import annotations

import pytest

from griphub.notify.subscriber_counts import subscriber_counts


def test_each_item_has_a_number() -> None:
    assert subscriber_counts(b'{"message":"Published","subscribers":[3,0,12]}\n', 3) == [3, 0, 12]
    assert subscriber_counts(b'{"subscribers":[]}', 0) == []


@pytest.mark.parametrize(
    "body",
    [
        b"Published\n",
        b"",
        b'{"message":"Published"}\n',
        b'{"subscribers":[1]}',
        b'{"subscribers":[1,2,3]}',
        b'{"subscribers":[1,-2]}',
        b'{"subscribers":[1,true]}',
        b'{"subscribers":[1,"2"]}',
        b'{"subscribers":2}',
        b"[1,2]",
        b'{"subscribers":[1,2',
    ],
)
def test_a_handler_that_does_not_count(body: bytes) -> None:
    assert subscriber_counts(body, 2) is None
