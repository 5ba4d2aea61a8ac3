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

    async def kids(self) -> list[str]:
        return [key["kid"] for key in json.loads(await self.identity.jwks())["keys"]]


async def test_keys_are_made_once_when_they_are_needed(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    await house.check()
    assert house.identity.plain() is None
    assert not house.path.exists()
    assert sorted(await asyncio.gather(*[house.identity.open() for _ in range(3)])) == [False, False, True]
    plain = house.identity.plain()
    assert plain is not None
    issuer, kid, pem, signing = plain
    assert (issuer, signing, await house.kids()) == ("https://hub.example", {"a": "whsec_x"}, [kid])
    assert "PRIVATE KEY" in pem


async def test_a_set_is_served_before_the_first_subscription(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    [kid] = await house.kids()
    assert [kid] == await House(tmp_path).kids()


async def test_another_key_signs_when_it_is_time(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    [former] = await house.kids()
    await house.check()
    assert house.changes == 0
    house.time += ROTATION + 1
    await house.check()
    assert house.changes == 1
    plain = house.identity.plain()
    assert plain is not None
    assert await house.kids() == [plain[1], former]
    house.time += 7200 + SET_TIME
    assert await house.kids() == [plain[1]]


async def test_a_key_that_cannot_be_replaced_signs_on(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path)
    kids = await house.kids()
    (tmp_path / "hub.db.keys.new").mkdir()
    house.time += ROTATION + 1
    await house.check()
    (tmp_path / "hub.db.keys.new").rmdir()
    await house.check()
    assert (house.changes, await house.kids()) == (0, kids)
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
