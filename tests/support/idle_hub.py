"""A service ``hub`` that only runs: for tests of the runner, and of those with a backend of their own in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["IDLE_HUB", "IdleHub"]

SERVICE: Final = """
import asyncio

async def run(child):
    stop = asyncio.Event()
    child.start(asyncio.get_running_loop(), stop.set, lambda: None)
    await stop.wait()
    child.close()
    return 0

def main(config, child):
    return asyncio.run(run(child))
"""
"""Takes the place of griphub.service in the child process."""


@dataclass(frozen=True, slots=True)
class IdleHub:
    """Files and environment of a service whose hub only runs.

    Attributes:
        files: text by name, relative to the directory of the service.
        environment: variables; ``{dir}`` stands for that directory.
    """

    files: Mapping[str, str]
    environment: Mapping[str, str]


IDLE_HUB: Final = IdleHub(
    {"stub/griphub/__init__.py": "", "stub/griphub/service.py": SERVICE}, {"PYTHONPATH": "{dir}/stub"}
)
