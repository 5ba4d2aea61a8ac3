"""Identity towards receivers: keys are made when they are needed, replaced when it is time, and served."""

from __future__ import annotations

import asyncio
import json
import pathlib

import pytest

from griphub.api.identity_keys import ROTATION, IdentityKeys
from griphub.api.push_identity import REPETITION, SET_TIME, PushIdentity
from gripproxy.grip.errors import OperatorError


class House:
    """Identity of a store, at a time."""

    def __init__(self, path: pathlib.Path) -> None:
        self.time = 1000.0
        self.path = path / "hub.db.keys"
        keys = IdentityKeys(path / "hub.db", lambda: self.time)
        self.identity = PushIdentity(keys, "https://hub.example", {"a": "whsec_x"}, lambda: self.time)
        self.changes = 0

    def _changed(self) -> None:
        self.changes += 1

    async def check(self) -> None:
        self.identity.check(self._changed)
        await self.identity.close()

    def kids(self) -> list[str]:
        return [key["kid"] for key in json.loads(self.identity.jwks())["keys"]]


async def test_keys_are_made_once_when_they_are_needed(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    await house.check()
    assert house.identity.plain() is None
    assert not house.path.exists()
    assert sorted(await asyncio.gather(*[house.identity.open() for _ in range(3)])) == [False, False, True]
    plain = house.identity.plain()
    assert plain is not None
    issuer, kid, pem, signing = plain
    assert (issuer, signing, house.kids()) == ("https://hub.example", {"a": "whsec_x"}, [kid])
    assert "PRIVATE KEY" in pem


async def test_before_the_first_subscription_an_empty_set_is_served_and_no_file_is_touched(
    tmp_path: pathlib.Path,
) -> None:
    house = House(tmp_path)
    assert house.kids() == []
    assert not house.path.exists()
    await house.identity.open()
    [kid] = house.kids()
    after = House(tmp_path)
    await after.identity.open()
    assert [kid] == after.kids()


async def test_another_key_signs_when_it_is_time(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    await house.identity.open()
    [former] = house.kids()
    await house.check()
    assert house.changes == 0
    house.time += ROTATION + 1
    await house.check()
    assert house.changes == 1
    plain = house.identity.plain()
    assert plain is not None
    assert house.kids() == [plain[1], former]
    house.time += 7200 + SET_TIME
    assert house.kids() == [plain[1]]


async def test_a_key_that_cannot_be_replaced_signs_on(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    await house.identity.open()
    kids = house.kids()
    (tmp_path / "hub.db.keys.new").mkdir()
    house.time += ROTATION + 1
    await house.check()
    (tmp_path / "hub.db.keys.new").rmdir()
    await house.check()
    assert (house.changes, house.kids()) == (0, kids)
    house.time += REPETITION
    await house.check()
    assert house.changes == 1


async def test_a_damaged_file_is_told_each_time(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    house.path.write_text("{}")
    for _ in range(2):
        with pytest.raises(OperatorError, match="restore the file"):
            await house.identity.open()
    assert house.identity.plain() is None
    house.path.unlink()
    assert await house.identity.open()
