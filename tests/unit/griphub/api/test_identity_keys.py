"""File of the keys with which the hub proves its identity."""

from __future__ import annotations

import json
import pathlib
import stat

import pytest

from griphub.api.identity_keys import ROTATION, IdentityKeys
from gripproxy.grip.errors import OperatorError


class House:
    """Keys of a store, at a time."""

    def __init__(self, path: pathlib.Path) -> None:
        self.time = 1000.0
        self.keys = IdentityKeys(path / "hub.db", lambda: self.time)
        self.keys.open()

    def kids(self) -> list[str]:
        return [key["kid"] for key in json.loads(self.keys.jwks())["keys"]]


def test_the_first_key_is_made_and_read_again(tmp_path: pathlib.Path) -> None:
    first = House(tmp_path)
    assert House(tmp_path).keys.current == first.keys.current
    assert stat.S_IMODE((tmp_path / "hub.db.keys").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["hub.db.keys"]


def test_a_replaced_key_is_served_for_two_hours_more(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    former = house.keys.current.kid
    assert not house.keys.due
    house.time += ROTATION + 1
    assert house.keys.due
    house.keys.rotate()
    assert not house.keys.due
    assert house.kids() == [house.keys.current.kid, former]
    assert House(tmp_path).keys.current == house.keys.current
    house.time += 7201
    assert house.kids() == [house.keys.current.kid]


@pytest.mark.parametrize("text", ["", "{}", '{"keys": []}', "\xff", '{"keys": [{"kid": "a"}]}'])
def test_a_damaged_file_is_told_with_the_way_out(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "hub.db.keys").write_text(text, encoding="latin-1")
    with pytest.raises(OperatorError, match=r"hub\.db\.keys: .*restore the file, or remove it"):
        House(tmp_path)


def test_a_file_that_cannot_be_written_is_told(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    former = house.keys.current
    (tmp_path / "hub.db.keys.new").mkdir()
    with pytest.raises(OperatorError, match="cannot be written"):
        house.keys.rotate()
    assert house.keys.current == former
