"""Clients of the benchmark that are none: a program that answers the commands of ``bench/native/crowd.c`` at once."""

from __future__ import annotations

import pathlib
import sys
import textwrap

__all__ = ["LAST", "write_crowd"]

LAST = 5_000_000
"""Time of each delivery, in nanoseconds."""

_PROGRAM = """\
    #!{python}
    import json, pathlib, sys
    held = rate = 0
    for line in sys.stdin:
        words = line.split()
        if words[0] == "open":
            held, rate = held + int(words[1]), int(words[3])
        count = max(0, int(words[1]) - {missing}) if words[0] == "wait" else 0
        print(json.dumps(dict(held=held, closed=0, refused=0, seconds=0, count=count, reads=rate, bytes=10 * count,
                              first={last}, last={last}, strange=0, cpu=0.5, histogram=[])), flush=True)
"""


def write_crowd(folder: pathlib.Path, *, missing: int = 0) -> pathlib.Path:
    """Write the program, and return its folder. All that it is asked to wait for has come.

    Args:
        folder: of the programs.
        missing: deliveries of each wait that do not come.
    """
    program = folder / "crowd"
    text = textwrap.dedent(_PROGRAM).format(python=sys.executable, missing=missing, last=LAST)
    program.write_text(text)
    program.chmod(0o755)
    return folder
