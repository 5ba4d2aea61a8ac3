"""The Autobahn fuzzing client through gripproxy: ``python -m tests.autobahn.run [protocol] [compression] [limits]``.

Each set of cases (cases.toml) runs in two modes: straight to a backend that speaks WebSocket, and over HTTP to one that
does not. Failures must be in expected.toml. Writes the tables of docs/autobahn.md; the fuzzing client's own reports,
with every frame, stay below build/autobahn/reports.

Exit status: 0 all as expected, 1 not, 2 it could not be run.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from tests.autobahn import fuzzing_client, table
from tests.autobahn.fuzzing_client import BUILD, ClientProblem, Result
from tests.support.ports import free_ports
from tests.support.service import running
from tests.wire.wirekit.proxy import Proxy, Setup

HERE = pathlib.Path(__file__).parent
MODES = {"direct": "direct", "over_http": "WebSocket-over-HTTP"}
"""Modes, and how they are called in print."""


@contextlib.contextmanager
def site(config: dict[str, Any]) -> Iterator[Proxy]:
    """Start both backends and a gripproxy in front of them; its paths are the modes."""
    direct, http = free_ports(2)
    echo = [sys.executable, "-m"]
    with (
        running([*echo, "tests.autobahn.echo_direct", str(direct)], direct),
        running([*echo, "tests.autobahn.echo_http", str(http)], http),
    ):
        routes = f"*,path_beg=/direct 127.0.0.1:{direct}\n*,path_beg=/over_http 127.0.0.1:{http},over_http\n"
        # One worker: the fuzzing client makes one connection at a time.
        proxy = Proxy(Setup(routes=routes, config={"proxy.workers": 1, **config}), {})
        try:
            yield proxy
        finally:
            (BUILD / "proxy.log").write_text(proxy.log)
            problems = proxy.stop()
        if problems:
            raise ClientProblem(f"autobahn: gripproxy did not end well: {'; '.join(problems)}")


def run_mode(name: str, chosen: dict[str, Any], mode: str, proxy: Proxy) -> list[Result]:
    """Run one set in one mode."""
    results: list[Result] = []
    began = time.monotonic()
    for number, group in enumerate(chosen[mode]["groups"], 1):
        directory = BUILD / "reports" / name / mode / str(number)
        url = f"ws://127.0.0.1:{proxy.ports['http']}/{mode}"
        results += fuzzing_client.run(group, url, directory, chosen["timeout"])
    if len(results) != chosen[mode]["number"]:
        raise ClientProblem(
            f"autobahn: {name} {mode}: {len(results)} cases ran, expected {chosen[mode]['number']} (cases.toml)"
        )
    failed = sum(result.failed for result in results)
    print(
        f"autobahn: {name}, {MODES[mode]}: {len(results)} cases, {failed} failed, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return results


def surprises(results: Sequence[Result], expected: dict[str, str]) -> list[str]:
    """Compare with expected.toml; returns a line for each difference."""
    lines = []
    for result in results:
        if result.failed and result.case not in expected:
            lines.append(f"{result.case} failed ({result.verdict}): {result.report}")
        elif not result.failed and result.case in expected:
            lines.append(f"{result.case} passes ({result.verdict}), take it out of expected.toml")
    unknown = expected.keys() - {result.case for result in results}
    return lines + [f"{case} is in expected.toml, but did not run" for case in sorted(unknown)]


def main() -> int:
    """Run the sets named on the command line."""
    cases = tomllib.loads((HERE / "cases.toml").read_text())
    expected = tomllib.loads((HERE / "expected.toml").read_text())
    parser = argparse.ArgumentParser(prog="tests.autobahn.run", description="Autobahn fuzzing client through gripproxy")
    parser.add_argument("sets", nargs="*", help=f"of {', '.join(cases)}; all of them if none is named")
    sets = parser.parse_args().sets or list(cases)
    if wrong := set(sets) - cases.keys():
        parser.error(f"no such set: {', '.join(sorted(wrong))}")
    bad: list[str] = []
    try:
        fuzzing_client.install()
        for name in sets:
            with site(cases[name].get("config", {})) as proxy:
                results = {mode: run_mode(name, cases[name], mode, proxy) for mode in MODES}
            reasons = {mode: expected.get(name, {}).get(mode, {}) for mode in MODES}
            table.write(name, cases[name], results, reasons, MODES)
            for mode in MODES:
                bad += [f"{name}, {MODES[mode]}: {line}" for line in surprises(results[mode], reasons[mode])]
    except ClientProblem as problem:
        print(problem, file=sys.stderr)
        return 2
    for line in bad:
        print(f"autobahn: {line}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
