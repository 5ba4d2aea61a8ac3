"""The archive of Java's classes is made, Java uses it, and one that is no good does no harm."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pyspark
import pytest

from spark_stats.reports import archive, java
from tests.service import ROOT

PATIENCE = 3000
SESSION = """
import pathlib
from spark_stats.reports.session import session

with session("archive", "local[1]") as spark:
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    names = [line.split(maxsplit=5)[-1] for line in pathlib.Path(f"/proc/{process}/maps").read_text().splitlines()]
    print("mapped:", *sorted({name for name in names if "/gripproxy/spark-" in name}))
    print("counted:", spark.range(5).count())
"""


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def mapped(environment: dict[str, str]) -> list[str]:
    """What a session has of the folder of archives; it has to work, and to say nothing about archives."""
    ended = run(environment, "-c", SESSION)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "counted: 5" in ended.stdout
    assert not re.search(r"cds|shared archive|fatal error", said, re.IGNORECASE), said
    (line,) = re.findall(r"^mapped:(.*)$", ended.stdout, re.MULTILINE)
    names = [pathlib.Path(path).name for path in line.split(" /") if path.strip()]
    # A Java's own classes count for nothing.
    return [name for name in names if "-base-" not in name]


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    # Not with the settings of the tests in a folder: with one, Java makes no archive.
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    return {**kept, "XDG_CACHE_HOME": str(tmp_path / 'a "cache"')}


def test_prepare(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    place = archive.folder(environment)
    refused = run({**environment, "SPARK_CONF_DIR": os.environ["SPARK_CONF_DIR"]}, "-m", "spark_stats", "prepare")
    assert refused.returncode == 1
    assert "Spark has settings in the folder" in refused.stderr
    assert not place.exists()

    ended = run(environment, "-m", "spark_stats", "prepare")
    assert ended.returncode == 0, ended.stderr
    made = archive.find(java.find(environment), environment)
    assert made is not None
    assert ended.stdout.splitlines()[-1] == f"{made}: {made.stat().st_size / 1e6:.0f} MB"
    assert {path.name for path in place.iterdir() if "-base-" not in path.name} == {made.name}
    assert mapped(environment) == [made.name]

    again = run(environment, "-m", "spark_stats", "prepare")
    assert again.stdout.startswith(f"{made} is there already")

    # The archive of other jars, as its name does not say.
    spark, moved = pathlib.Path(pyspark.__file__).parent, tmp_path / "spark"
    for folder in ("", "jars"):
        (moved / folder).mkdir()
        for path in (spark / folder).iterdir():
            if path.name != "jars":
                (moved / folder / path.name).symlink_to(path)
    # One that a session does not need.
    for path in (moved / "jars").glob("spire_*.jar"):
        path.unlink()
    other = {**environment, "SPARK_HOME": str(moved)}
    stems = [archive._stem(java.find(environment), given) for given in (environment, other)]
    for path in list(place.iterdir()):
        (place / path.name.replace(*stems)).hardlink_to(path)
    assert archive.find(java.find(other), other) is not None
    assert mapped(other) == []

    made.chmod(0o644)
    size = made.stat().st_size
    with open(made, "r+b") as file:
        file.seek(size // 2)
        file.write(bytes(1 << 20))
    assert archive.find(java.find(environment), environment) == made
    assert mapped(environment) == []
    os.truncate(made, size // 2)
    assert mapped(environment) == []

    removed = run(environment, "-m", "spark_stats", "prepare", "--remove")
    assert removed.returncode == 0
    assert list(place.iterdir()) == []
