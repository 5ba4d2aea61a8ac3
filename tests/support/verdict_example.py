"""Examples that end with a table and a verdict: started as a user does, and compared with their README."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from tests.support.ports import free_ports
from tests.support.service import ROOT

__all__ = ["PATIENCE", "Run", "command", "run", "shapes", "transcript"]

PATIENCE: Final = 300.0
"""Seconds until an example has to have ended, on a busy machine."""

_OPTIONS: Final = ("--port", "--control-port", "--pull-port", "--sub-port", "--command-port", "--backend-port")
_ROW: Final = re.compile(r" *(?P<label>\S.*?) {2,}(?P<pubsub>[\d,]+) +(?P<watch>[\d,]+)")


@dataclass(frozen=True)
class Run:
    """An example that has ended.

    Attributes:
        status: exit status.
        output: all that it has printed, errors too.
    """

    status: int
    output: str

    def figures(self, label: str) -> tuple[int, int]:
        """Return the figures of pubsub and of watching in a row of the table, by its label."""
        for line in self.output.splitlines():
            row = _ROW.fullmatch(line)
            if row is not None and row["label"] == label:
                return int(row["pubsub"].replace(",", "")), int(row["watch"].replace(",", ""))
        raise AssertionError(f"no row {label!r} in {self.output}")


def command(name: str) -> list[str]:
    """Return the command line of an example by its ``name``, on free ports."""
    ports = free_ports(len(_OPTIONS))
    arguments = [str(part) for pair in zip(_OPTIONS, ports, strict=True) for part in pair]
    return [sys.executable, "examples/start.py", name, *arguments]


def run(name: str, *options: str) -> Run:
    """Return an example after its end.

    Args:
        name: of the example.
        options: of its program.
    """
    done = subprocess.run(
        [*command(name), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Run(done.returncode, done.stdout)


def transcript(document: str) -> list[str]:
    """Return the lines of output that a ``document`` shows, in blocks that are indented by four characters."""
    blocks = re.findall(r"(?<=\n\n)(?:(?:    .*)?\n)+", (ROOT / document).read_text())
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.strip() and not line.strip().startswith(("make ", "…"))]


def shapes(lines: list[str]) -> set[str]:
    """Return ``lines`` without their figures and the widths of their columns."""
    return {" ".join(re.sub(r"[\d,.]*\d", "0", line).split()) for line in lines}
