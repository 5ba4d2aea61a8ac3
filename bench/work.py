"""What each of the things that the proxy does most costs, without sockets: processor time, or instructions.

    .venv/bin/python bench/work.py                                            # microseconds, the best of several runs
    .venv/bin/python bench/work.py --instructions                             # by callgrind (apt: valgrind)
    .venv/bin/python bench/work.py --instructions --annotate 'item by HTTP'   # and in which C functions
    .venv/bin/python bench/work.py --profile 'item by HTTP'                   # in which of ours, by cProfile

The errands, which are those of bench/workloads.py, are named as they are printed. Instructions are those of the
process alone: what the kernel does for a system call is not among them, and is most of a delivery's real cost.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import os
import pathlib
import pstats
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.workloads import ERRANDS, Errand, at_work  # noqa: E402

RUNS = 9
"""Runs of which the fastest counts."""

COUNTED = 400
"""Times an errand is done under callgrind, and twice as often after that."""


def microseconds(errand: Errand) -> float:
    """Return the processor time of one, in the fastest of several runs."""
    best = float("inf")
    gc.collect()
    gc.disable()
    for _ in range(RUNS):
        start = time.process_time()
        errand.run(errand.most)
        best = min(best, time.process_time() - start)
        errand.after()
    gc.enable()
    return best * 1e6 / errand.most


def control(*arguments: str) -> None:
    """Tell the callgrind that runs this process what to do."""
    command = ["callgrind_control", *arguments, str(os.getpid())]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def under_callgrind(names: list[str]) -> None:
    """Do the errands, some times and twice as often, with a dump each: the difference is theirs alone."""
    gc.disable()
    for number, name in enumerate(names):
        with at_work(name) as errand:
            few = max(COUNTED, errand.most // 4)
            control("--instr=on")
            for times in (few, 2 * few):
                control("--zero")
                errand.run(times)
                control(f"--dump={number}-{times}")
                errand.after()
            control("--instr=off")


def instructions(names: list[str], annotate: bool) -> None:
    """Print the instructions of each errand."""
    for tool in ("valgrind", "callgrind_control"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} not found: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="work-") as folder:
        out = pathlib.Path(folder, "out")
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        command += [sys.executable, __file__, "--under-callgrind", *names]
        done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        totals: dict[int, dict[int, tuple[int, pathlib.Path]]] = {}
        for dump in pathlib.Path(folder).glob("out.*"):
            text = dump.read_text()
            trigger = re.search(r"^desc: Trigger: .*?(\d+)-(\d+)", text, re.MULTILINE)
            total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
            if trigger and total:
                totals.setdefault(int(trigger[1]), {})[int(trigger[2])] = (int(total[1]), dump)
        for number, name in enumerate(names):
            (few, (once, _)), (more, (twice, dump)) = sorted(totals[number].items())
            print(f"{name:28}{(twice - once) / (more - few):12,.0f} instructions per {ERRANDS[name].unit}", flush=True)
            if annotate:
                shown = subprocess.run(["callgrind_annotate", str(dump)], capture_output=True, text=True).stdout
                print("\n".join(shown.splitlines()[:70]))


def profile(errand: Errand) -> None:
    """Print in which functions the time of an errand goes."""
    profiler = cProfile.Profile()
    profiler.enable()
    errand.run(errand.most)
    profiler.disable()
    errand.after()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="errand", help="which; all without any")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time")
    parser.add_argument("--annotate", action="store_true", help="with --instructions: also by function")
    parser.add_argument("--profile", action="store_true", help="where the time goes instead")
    parser.add_argument("--under-callgrind", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.names or list(ERRANDS)
    for name in names:
        if name not in ERRANDS:
            parser.error(f"no errand {name!r}; there are: {', '.join(ERRANDS)}")
    if options.under_callgrind:
        under_callgrind(names)
    elif options.instructions:
        instructions(names, options.annotate)
    else:
        for name in names:
            with at_work(name) as errand:
                if options.profile:
                    profile(errand)
                else:
                    print(f"{name:28}{microseconds(errand):10.2f} µs per {errand.unit}", flush=True)


if __name__ == "__main__":
    main()
