"""A short soak of push subscriptions: processes are killed under load, and nothing is lost."""

from __future__ import annotations

import argparse

from tests.faults.push_soak import run


async def test_nothing_is_lost() -> None:
    options = argparse.Namespace(minutes=0.4, subscriptions=40, dead=5.0, rate=20.0, calm=2.0, seed=3)
    assert await run(options) == 0
