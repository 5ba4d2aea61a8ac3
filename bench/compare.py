"""gripproxy side by side with Pushpin, nginx with nchan, and a loop of send() in C, on this machine.

    make bench                                                      # five rounds of the main tests, with all there is
    .venv/bin/python bench/compare.py --rounds 3 --tests streams,items
    .venv/bin/python bench/compare.py --resume --tests ids,memreal  # more rounds, more tests, in the same file
    .venv/bin/python bench/compare.py --markdown                    # the table of what was measured so far
    .venv/bin/python bench/compare.py --quick                       # whether it works: its figures mean nothing

Tests: hold, streams, websockets, items, proxy (main); ids, memreal, growth, idle, overload (all has them too). Each
round runs each test on each server in turn. docs/performance.md tells how it is measured. The file of --out has
everything, one JSON object a line; beside it are the table (.md) and a picture (.svg).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.chart import svg  # noqa: E402
from bench.processes import busy_share  # noqa: E402
from bench.programs import BenchError, build  # noqa: E402
from bench.results import OURS, Results  # noqa: E402
from bench.table import figure, markdown, replaced  # noqa: E402
from bench.targets import TARGETS, Target, descriptors  # noqa: E402
from bench.trials import FULL, MAIN, QUICK, TRIALS, Bench  # noqa: E402

RUN = ROOT / "bench" / "run"
COMPLETE = (OURS, "loop")
"""Whose deliveries must be complete in a quick run: what others lose is theirs."""


def chosen(text: str, known: Sequence[str], what: str) -> list[str]:
    """The names in a list separated by commas. Raises BenchError for one that does not exist."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise BenchError(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return names


def machine(targets: Sequence[str]) -> dict[str, Any]:
    """What one needs to know to read the figures."""
    model = re.search(r"^model name\s*:\s*(.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "processor": model[1] if model else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "descriptors": descriptors(),
        "busy": round(busy_share(), 3),
        "versions": {name: TARGETS[name].version() for name in targets},
    }


class Comparison:
    """All rounds, written down as they come."""

    def __init__(self, out: pathlib.Path, programs: pathlib.Path, *, quick: bool) -> None:
        """``quick``: little of everything, and each target is started only once."""
        self._out = out
        self._programs = programs
        self._quick = quick
        self._scale = QUICK if quick else FULL
        self._took: dict[tuple[str, str], float] = {}
        self._began = time.monotonic()

    def write(self, record: dict[str, Any]) -> None:
        """One more line."""
        with self._out.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def run(self, rounds: Sequence[int], targets: Sequence[str], trials: Sequence[str]) -> None:
        """Each trial of each target, in turn, once a round."""
        plan = [(number, trial, target) for number in rounds for trial in trials for target in targets]
        if self._quick:
            plan.sort(key=lambda step: targets.index(step[2]))
        running = {name: TARGETS[name](self._programs) for name in targets}
        try:
            for index, (number, trial, target) in enumerate(plan):
                left = plan[index:]
                print(
                    f"{self._clock()} round {number}/{rounds[-1]}  {trial:10} {target:10} {self._left(left)}",
                    flush=True,
                )
                began = time.monotonic()
                self._one(number, trial, running[target])
                if self._quick and (len(left) == 1 or left[1][2] != target):
                    running[target].stop()
                took = time.monotonic() - began
                self._took[trial, target] = took
                self.write({"round": number, "target": target, "trial": trial, "seconds": round(took, 1)})
        finally:
            for one in running.values():
                one.stop()

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"[{minutes:3}:{seconds:02}]"

    def _left(self, left: Sequence[tuple[int, str, str]]) -> str:
        """How long it will still take, once each has run."""
        if any((trial, target) not in self._took for _, trial, target in left):
            return f"{len(left)} to go"
        return f"about {sum(self._took[trial, target] for _, trial, target in left) / 60:.0f} min to go"

    def _one(self, number: int, trial: str, target: Target) -> None:
        """One trial of one target."""
        about = {"round": number, "target": target.name, "trial": trial}

        def record(measure: str, value: float, lost: int, of: int) -> None:
            self.write({**about, "measure": measure, "value": value, "lost": lost, "of": of})
            missing = f"   ({lost:,} of {of:,} lost)" if lost else ""
            print(f"            {measure:32} {figure(value):>12}{missing}", flush=True)

        def note(text: str) -> None:
            self.write({**about, "note": text})
            print(f"            {text}", flush=True)

        def failed(text: str, again: bool) -> None:
            then = "; once more" if again else ""
            print(f"            failed: {text}{then}", file=sys.stderr, flush=True)
            self.write({**about, "again" if again else "failed": text.partition("\n")[0]})

        TRIALS[trial](Bench(target, self._scale, record, note, failed, keep=self._quick))


def show(out: pathlib.Path, *, into: pathlib.Path | None = None) -> Results:
    """Write table and picture beside the file, print the table, and write it ``into`` a document too."""
    results = Results(out.read_text().splitlines())
    text = markdown(results)
    out.with_suffix(".md").write_text(text)
    out.with_suffix(".svg").write_text(svg(results))
    if into is not None:
        into.write_text(replaced(into.read_text(), text))
    return results


def check(results: Results, targets: Sequence[str]) -> list[str]:
    """What a quick run found wrong: figures that did not come, or deliveries that did not."""
    # What others lose on a busy machine is not ours to mend: they may do it once more.
    wrong = results.failures + [text for target, text in results.repeated if target == OURS]
    wrong += [
        f"{one.target} lost {one.lost} of {one.of} in {one.measure}" for one in results.lost if one.target in COMPLETE
    ]
    wrong += [f"{target} has no figure" for target in targets if target not in results.targets]
    wrong += [f"{OURS} has no figure of {key}" for key in results.measures() if not results.values(key, OURS)]
    if not results.measures():
        wrong.append("there is no figure at all")
    return wrong


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stop(*_: object) -> NoReturn:
    """SIGTERM and SIGHUP end as Ctrl-C does: what was started is ended. What else comes meanwhile does not matter."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="how often (default: 5; with --quick 1)")
    parser.add_argument("--tests", default="main", help="names separated by commas, or main, or all (default: main)")
    parser.add_argument("--targets", default="", help=f"of {', '.join(TARGETS)} (default: all that are installed)")
    parser.add_argument("--out", type=pathlib.Path, help="the file (default: bench/run/compare.jsonl)")
    parser.add_argument("--resume", action="store_true", help="append to the file instead of beginning a new one")
    parser.add_argument("--markdown", action="store_true", help="measure nothing: print the table of the file")
    parser.add_argument("--into", type=pathlib.Path, help="write the table also between the marks of this document")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: tiny numbers, and a failure when any is missing"
    )
    return parser.parse_args()


def compare(given: argparse.Namespace) -> int:
    """Do what the command line says; the exit status."""
    out = given.out or RUN / ("quick.jsonl" if given.quick else "compare.jsonl")
    if given.markdown:
        if not out.exists():
            raise BenchError(f"{out} does not exist: nothing was measured yet")
        print(markdown(show(out, into=given.into)), end="")
        return 0
    trials = list(MAIN if given.tests == "main" else TRIALS)
    if given.tests not in ("main", "all"):
        trials = chosen(given.tests, list(TRIALS), "test")
    targets = chosen(given.targets, list(TARGETS), "target") or list(TARGETS)
    for name in list(targets):
        if reason := TARGETS[name].missing():
            if given.targets:
                raise BenchError(f"{name}: {reason}")
            print(f"without {name}: {reason}", flush=True)
            targets.remove(name)
    programs = build(RUN / "bin")
    out.parent.mkdir(parents=True, exist_ok=True)
    before = 0
    if out.exists():
        if given.quick and not given.out:
            out.unlink()
        elif given.resume:
            before = Results(out.read_text().splitlines()).rounds_of(trials)
        else:
            made = datetime.datetime.fromtimestamp(out.stat().st_mtime, datetime.UTC)
            kept = out.with_name(f"{out.stem}-{made:%Y%m%d-%H%M%S}{out.suffix}")
            out.rename(kept)
            print(f"what was measured before is now {kept}", flush=True)
    comparison = Comparison(out, programs, quick=given.quick)
    found = machine(targets)
    comparison.write({"machine": found | {"quick": given.quick}})
    if found["busy"] > 0.1 and not given.quick:
        print(f"others take {found['busy']:.0%} of the processors: trust ratios at most", flush=True)
    rounds = given.rounds or (1 if given.quick else 5)
    try:
        comparison.run(range(before + 1, before + rounds + 1), targets, trials)
    finally:
        results = show(out, into=given.into)
    if not given.quick:
        print(f"\n{markdown(results)}\n{out}, {out.with_suffix('.md').name}, {out.with_suffix('.svg').name}")
        return 0
    wrong = check(results, targets)
    for line in wrong:
        print(f"bench: {line}", file=sys.stderr)
    print(
        f"{len(results.measures())} measures of {', '.join(targets)}: {'not as they should be' if wrong else 'works'}"
    )
    return 1 if wrong else 0


def main(run: Callable[[argparse.Namespace], int] = compare) -> int:
    """Run; 1 for what failed, 130 when it was interrupted."""
    for one in SIGNALS:  # also SIGINT: a shell's background job begins with it ignored
        signal.signal(one, stop)
    try:
        return run(arguments())
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
