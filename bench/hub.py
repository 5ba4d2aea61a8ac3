"""The hub's event store side by side with etcd, PostgreSQL and Redis, on one disk of this machine.

    make bench-hub                                             # all parts
    .venv/bin/python bench/hub.py --parts publish,batch        # some
    .venv/bin/python bench/hub.py --folder /srv/x --seconds 10 # on another disk, and longer
    .venv/bin/python bench/hub.py --smoke                      # whether it works: its figures mean nothing

Parts: publish, batch, history, fanout, memory, maintenance, callbacks, pushes, mailboxes, watch, snapshot, ingest.
docs/hub-performance.md describes them. Peers are those that the distribution has installed; each runs on free ports, in
a folder of its own, and is ended.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.compare import RUN, SIGNALS, chosen, machine, stop  # noqa: E402
from bench.hub_callbacks import callbacks  # noqa: E402
from bench.hub_ingest import ingest  # noqa: E402
from bench.hub_mailboxes import mailboxes  # noqa: E402
from bench.hub_parts import FULL, SMOKE, STORE_PARTS, Bench, Scale  # noqa: E402
from bench.hub_peers import PEERS  # noqa: E402
from bench.hub_pushes import pushes  # noqa: E402
from bench.hub_snapshots import snapshots  # noqa: E402
from bench.hub_table import Part, Row  # noqa: E402
from bench.hub_watch import watch  # noqa: E402
from bench.programs import BenchError, build  # noqa: E402
from bench.table import figure  # noqa: E402

__all__ = ["PARTS", "arguments", "main", "problems", "scale_of"]

PARTS = {
    **STORE_PARTS,
    "callbacks": callbacks,
    "pushes": pushes,
    "mailboxes": mailboxes,
    "watch": watch,
    "snapshot": snapshots,
    "ingest": ingest,
}
"""All parts, by name."""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line, read.

    Args:
        words: arguments; None for those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="", help=f"of {', '.join(PARTS)}, separated by commas (default: all)")
    parser.add_argument("--seconds", type=float, help=f"duration of each row (default: {FULL.seconds:g})")
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk to be measured (default: bench/run)")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file (default: bench/run/hub.json)")
    parser.add_argument("--no-peers", action="store_true", help="the hub alone")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny numbers, no peers, and a failure when a figure is missing"
    )
    return parser.parse_args(words)


def scale_of(given: argparse.Namespace) -> Scale:
    """Return how much of everything a command line asks for.

    Args:
        given: the command line.

    Raises:
        BenchError: a duration is not positive.
    """
    scale = SMOKE if given.smoke else FULL
    if given.seconds is not None:
        if given.seconds <= 0:
            raise BenchError(f"--seconds {given.seconds:g}: must be more than 0")
        scale = dataclasses.replace(scale, seconds=given.seconds)
    return dataclasses.replace(scale, peers=False) if given.no_peers else scale


def problems(parts: Sequence[Part]) -> list[str]:
    """Return a line for each failure.

    Args:
        parts: the tables.
    """
    found = [f"{part.key}: {row.name}: {row.note}" for part in parts for row in part.rows if row.failed]
    return found + [f"{part.key}: no figure" for part in parts if not any(row.figures for row in part.rows)]


def _tell(part: Part, row: Row) -> None:
    figures = ", ".join(f"{name} {figure(value)}" for name, value in row.figures.items())
    print(f"{part.key:12} {row.name:44} {figures or row.note}", flush=True)


def _about(scale: Scale) -> dict[str, Any]:
    """Return the facts on which the figures depend."""
    found = machine(["gripproxy"])
    if scale.peers:
        found["versions"] |= {kind.name: kind.version() for kind in PEERS if not kind.missing()}
    return found | {"scale": dataclasses.asdict(scale)}


def _text(about: dict[str, Any], parts: Sequence[Part]) -> str:
    versions = "; ".join(text for text in about["versions"].values() if text)
    head = (
        f"{about['date']}, {about['cores']} cores of {about['processor']}, Linux {about['kernel']}, "
        f"Python {about['python']}; {versions}. Before the run others took {about['busy']:.0%} of the processors."
    )
    return "\n".join([head, "", *(part.markdown() for part in parts)])


def _write(out: pathlib.Path, about: dict[str, Any], parts: Sequence[Part]) -> str:
    """Write the JSON file and the table beside it; return the table."""
    text = _text(about, parts)
    out.write_text(json.dumps(about | {"parts": [part.plain() for part in parts]}, indent=1) + "\n")
    out.with_suffix(".md").write_text(text)
    return text


def _run(given: argparse.Namespace) -> int:
    scale = scale_of(given)
    keys = chosen(given.parts, list(PARTS), "part") or list(PARTS)
    out = given.out or RUN / ("hub-smoke.json" if given.smoke else "hub.json")
    folder = (given.folder or RUN).resolve()
    for path in (folder, out.parent):
        path.mkdir(parents=True, exist_ok=True)
    programs = build(RUN / "bin")
    about = _about(scale)
    if about["busy"] > 0.1 and not given.smoke:
        print(f"others take {about['busy']:.0%} of the processors: trust ratios at most", flush=True)
    for kind in PEERS if scale.peers and "publish" in keys else ():
        if kind.missing():
            print(f"without {kind.name}: apt-get install {kind.package}", flush=True)
    # All that is stored is on the disk that is measured, and nothing is left of it.
    with tempfile.TemporaryDirectory(prefix="hub-", dir=folder) as name:
        pathlib.Path(name).chmod(0o755)
        tempfile.tempdir = name
        bench = Bench(programs, pathlib.Path(name), scale, _tell)
        try:
            for key in keys:
                PARTS[key](bench)
        finally:
            bench.close()
            tempfile.tempdir = None
            text = _write(out, about, bench.parts)
    print(f"\n{text}\n{out}, {out.with_suffix('.md').name}")
    wrong = problems(bench.parts)
    for line in wrong:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if wrong else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run.

    Args:
        words: arguments; None for those of the process.

    Returns:
        The exit status: 1 if something failed, 130 when it was interrupted.
    """
    for one in SIGNALS:
        signal.signal(one, stop)
    try:
        return _run(arguments(words))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for what the interpreter does at its end
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted; what was measured is kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
