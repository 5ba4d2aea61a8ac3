"""The fuzzing client: Autobahn's ``wstest``, which runs on Python 2.7 only, in an environment of its own."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.support.service import ROOT

__all__ = ["BUILD", "ClientProblem", "Result", "install", "run"]

SUITE = "autobahntestsuite==0.8.2"
"""The last release that runs; 25.10.1 installs on Python 3 and dies at its first import."""
VIRTUALENV = "virtualenv<20.22"
"""The last one that makes environments of Python 2.7."""
BUILD = ROOT / "build" / "autobahn"
PASSED = frozenset(("OK", "NON-STRICT", "INFORMATIONAL"))

NO_PYTHON = """\
autobahn: no Python 2.7 found; the fuzzing client runs on nothing newer.
  looked at: {looked}
  Get one with pyenv (https://github.com/pyenv/pyenv), `pyenv install 2.7.18`,
  or name one with PYTHON27=/path/to/python2.7"""


class ClientProblem(Exception):
    """The fuzzing client cannot be had, or did not do its work."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case: ``behavior`` while the WebSocket was open, ``closing`` at its end, as wstest says."""

    case: str
    behavior: str
    closing: str
    report: pathlib.Path | None = None

    @property
    def failed(self) -> bool:
        """Whether one of both is no pass. A case that is ``UNIMPLEMENTED`` has not shown what it is for."""
        return self.behavior not in PASSED or self.closing not in PASSED

    @property
    def verdict(self) -> str:
        """In one word, or two if the end of the connection is what failed."""
        return self.behavior if not self.failed or self.closing in PASSED else f"{self.behavior}, close {self.closing}"


def _candidates() -> Iterator[str]:
    if named := os.environ.get("PYTHON27"):
        yield named
        return
    roots = [pathlib.Path.home() / ".pyenv", pathlib.Path("/opt/pyenv"), pathlib.Path("/usr/local/pyenv")]
    if chosen := os.environ.get("PYENV_ROOT"):
        roots.insert(0, pathlib.Path(chosen))
    for root in roots:
        yield from (str(path) for path in sorted(root.glob("versions/2.7*/bin/python"), reverse=True))
    for name in ("python2.7", "python2", "python"):
        if found := shutil.which(name):
            yield found


def _find_python() -> str:
    looked = list(_candidates())
    for path in looked:
        # A file of pyenv's in PATH may stand for a version that is not there: only running it tells.
        try:
            asked = subprocess.run(
                [path, "-c", "import sys; print(sys.version_info[:2] == (2, 7))"], capture_output=True, text=True
            )
        except OSError:
            continue
        if asked.stdout.strip() == "True":
            return path
    raise ClientProblem(NO_PYTHON.format(looked=", ".join(looked) or "pyenv's folders and PATH"))


def _do(*command: str | pathlib.Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise ClientProblem(f"autobahn: {' '.join(map(str, command))} failed:\n{done.stdout}")


def install() -> None:
    """Make the environment below build/autobahn if it is not there. Raises ClientProblem."""
    stamp = BUILD / "installed"
    if stamp.exists() and stamp.read_text() == SUITE:
        return
    python = _find_python()
    print(f"autobahn: installing {SUITE} for {python}", flush=True)
    for name in ("tools", "python27"):
        shutil.rmtree(BUILD / name, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    _do(sys.executable, "-m", "venv", BUILD / "tools")
    _do(BUILD / "tools/bin/pip", "install", "--disable-pip-version-check", VIRTUALENV)
    _do(BUILD / "tools/bin/virtualenv", "-p", python, BUILD / "python27")
    _do(BUILD / "python27/bin/pip", "install", "--disable-pip-version-check", SUITE)
    stamp.write_text(SUITE)


def run(cases: Sequence[str], url: str, directory: pathlib.Path, timeout: float) -> list[Result]:
    """Run some cases.

    :param cases: ids, or patterns like ``1.*``.
    :param url: ``ws://`` of an echo service.
    :param directory: for wstest's files; its reports for people are in ``reports`` below.
    :param timeout: seconds for all of them.
    :returns: the results in order. wstest writes them only at its very end, so there are all or none.
    :raises ClientProblem: it did not end in time, or ended without results.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    spec = {"outdir": "reports", "servers": [{"agent": "gripproxy", "url": url}], "cases": list(cases)}
    (directory / "spec.json").write_text(
        json.dumps(spec | {"exclude-cases": [], "exclude-agent-cases": {}}, indent=1) + "\n"
    )
    log = directory / "wstest.log"
    with log.open("wb") as output:
        command = [str(BUILD / "python27/bin/wstest"), "-m", "fuzzingclient", "-s", "spec.json"]
        try:
            subprocess.run(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise ClientProblem(
                f"autobahn: cases {' '.join(cases)} did not end within {timeout:g} s; see {log}"
            ) from None
    index = directory / "reports/index.json"
    found = json.loads(index.read_text()).get("gripproxy", {}) if index.exists() else {}
    # It gives up as soon as one connection is refused, and says so in its output only.
    chosen = re.search(r"will run (\d+) test cases", log.read_text(errors="replace"))
    if chosen is None or not found or len(found) != int(chosen[1]):
        raise ClientProblem(f"autobahn: {len(found)} results of the cases {' '.join(cases)}; see {log}")
    return [
        Result(case, said["behavior"], said["behaviorClose"], directory / "reports" / said["reportfile"])
        for case, said in sorted(found.items(), key=lambda pair: [int(part) for part in pair[0].split(".")])
    ]
