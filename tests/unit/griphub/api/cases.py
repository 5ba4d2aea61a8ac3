"""Running of a case against a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from tests.support.hub_memory import MemoryHub, memory_hub

__all__ = ["run"]


def run(case: Callable[[MemoryHub], Awaitable[None]], changes: Mapping[str, str] | None = None) -> None:
    """Run a hub in memory with further values of ``[hub]``, and the case with it."""

    async def with_hub() -> None:
        async with memory_hub(changes) as hub:
            await case(hub)

    asyncio.run(with_hub())
