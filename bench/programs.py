"""The load programs: C in `native/`, compiled when needed, and spoken to over their standard input and output."""

from __future__ import annotations

import json
import os
import pathlib
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["BenchError", "Program", "build"]

SOURCES = pathlib.Path(__file__).resolve().parent / "native"
NAMES = ("crowd", "publisher", "poster", "receiver", "origin", "loop")


class BenchError(Exception):
    """Something that the measurement needs is missing or failed; the text says what."""


def build(folder: pathlib.Path) -> pathlib.Path:
    """Compile what is older than its source into ``folder``, and return it. Raises BenchError without a compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    for name in NAMES:
        program = folder / name
        if program.exists() and program.stat().st_mtime > newest:
            continue
        if not compiler:
            raise BenchError(
                "no C compiler (cc, gcc or clang): the load programs are C. On Debian: apt-get install gcc libc6-dev"
            )
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", f"{program}.new", str(SOURCES / f"{name}.c")]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            raise BenchError(f"{' '.join(command)} failed:\n{made.stderr}")
        pathlib.Path(f"{program}.new").replace(program)  # whoever runs the old one keeps it
    return folder


class Program:
    """A load program that answers each command with one line of JSON."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start ``command``."""
        self.name = pathlib.Path(command[0]).name
        self._rest = b""
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def tell(self, command: str) -> None:
        """Send a command. Its answer must be taken before the next one."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command.encode() + b"\n")
        except BrokenPipeError:
            raise BenchError(f"{self.name} has ended, with status {self._process.wait()}") from None

    def answer(self, seconds: float) -> dict[str, Any]:
        """The answer to the last command. Raises BenchError when it takes longer than ``seconds``."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BenchError(f"{self.name} did not answer within {seconds:.0f} s")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise BenchError(f"{self.name} ended, with status {self._process.wait()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it: all its connections are reset."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
