"""The archive of Java's classes: where it lies, what it is for, Java's options, and what is said when there is none."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import sys

import pytest

from spark_stats.reports import archive
from spark_stats.reports.archive import NotMade

CONTENT = b"classes"


def runtime(home: pathlib.Path, version: str = "17", own: bool = True) -> pathlib.Path:
    """A folder like a Java's, which does not run; with an archive of its ``own`` classes or not."""
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "modules").write_text(version)
    (home / "release").write_text(f'JAVA_VERSION="{version}"')
    if own:
        (home / "lib" / "server" / "classes.jsa").touch()
    return home


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """One with a Spark."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_HOME": str(tmp_path / "spark")}


def put(home: pathlib.Path, environment: dict[str, str], part: str = "") -> pathlib.Path:
    """An archive that fits."""
    place = archive.folder(environment)
    place.mkdir(parents=True, exist_ok=True)
    made = place / f"{archive._stem(home, environment)}{part}-{len(CONTENT)}.jsa"
    made.write_bytes(CONTENT)
    return made


def test_the_folder() -> None:
    assert archive.folder({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == pathlib.Path("/x/gripproxy")
    for environment in ({"HOME": "/h"}, {"XDG_CACHE_HOME": "", "HOME": "/h"}, {"XDG_CACHE_HOME": "x", "HOME": "/h"}):
        assert archive.folder(environment) == pathlib.Path("/h/.cache/gripproxy")


def test_none_is_no_error(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    assert archive.find(home, environment) is None
    put(home, environment)
    assert archive.find(tmp_path / "nowhere", environment) is None
    assert archive.find(home, {**environment, "SPARK_HOME": str(tmp_path / "nowhere")}) is None
    (tmp_path / "file").touch()
    assert archive.find(home, {**environment, "XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def test_it_is_for_one_java_one_spark_and_the_same_classes(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    made = put(home, environment)
    assert archive.find(home, environment) == made
    assert archive.find(runtime(tmp_path / "other"), environment) is None
    other = shutil.copytree(tmp_path / "spark", tmp_path / "spark 2")
    assert archive.find(home, {**environment, "SPARK_HOME": str(other)}) is None
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    assert archive.find(home, environment) is None


def test_its_name_says_which_spark_it_is_for(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    assert put(home, environment).name.startswith("spark-4.3.0-")
    (tmp_path / "spark" / "jars" / "spark-core_2.13-4.3.0.jar").unlink()
    with pytest.raises(NotMade, match=r"jars has no spark-core: .*SPARK_HOME"):
        archive.make(home, environment)
    assert archive.find(home, environment) is None


def test_without_a_spark_there_is_none_and_it_is_said_how_to_get_one(
    tmp_path: pathlib.Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = runtime(tmp_path / "java")
    del environment["SPARK_HOME"]
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(NotMade, match=r"pyspark is missing: pip install 'gripproxy\[spark\]'"):
        archive.make(home, environment)
    assert archive.find(home, environment) is None


def test_it_is_for_those_jars(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    put(home, environment)
    os.utime(tmp_path / "spark" / "jars", (1, 1))
    assert archive.find(home, environment) is None


def test_it_is_for_whatever_stands_in_for_the_java(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    made = put(home, environment)
    stand_in = tmp_path / "stand-in"
    stand_in.mkdir()
    for entry in home.iterdir():
        (stand_in / entry.name).symlink_to(entry)
    assert archive.find(stand_in, environment) == made


def test_one_that_was_cut_off_is_none(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    made = put(home, environment)
    made.write_bytes(CONTENT[:-1])
    assert archive.find(home, environment) is None


def test_a_java_without_its_own_needs_two(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java", own=False)
    base = put(home, environment, "-base")
    assert archive.find(home, environment) is None
    made = put(home, environment)
    assert archive.find(home, environment) == made
    base.write_bytes(b"")
    assert archive.find(home, environment) is None


def test_a_name_that_java_would_take_for_two_is_none(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    environment["XDG_CACHE_HOME"] = str(tmp_path / "a:b")
    put(home, environment)
    assert archive.find(home, environment) is None
    with pytest.raises(NotMade, match="colon"):
        archive.make(home, environment)


def test_options(environment: dict[str, str]) -> None:
    given = archive.options(pathlib.Path("/x/a.jsa"), environment)
    assert given.startswith(f'"-cp" "{environment["SPARK_HOME"]}/jars/*" "-XX:SharedArchiveFile=/x/a.jsa" ')
    given = archive.options(pathlib.Path('/a b/"c" \\d.jsa'), environment)
    assert ' "-XX:SharedArchiveFile=/a b/\\"c\\" \\\\d.jsa" ' in given


def test_it_is_not_for_further_classes(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    put(home, environment)
    for name in ("SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS"):
        assert archive.find(home, {**environment, name: "x"}) is None
        with pytest.raises(NotMade, match=f"by {name}, .* unset it"):
            archive.make(home, {**environment, name: "x"})


def test_removing(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    assert archive.remove(environment) == []
    made = [put(runtime(tmp_path / name), environment) for name in ("one", "other")]
    theirs = made[0].with_name("something else")
    theirs.touch()
    assert archive.remove(environment) == sorted(made)
    assert list(theirs.parent.iterdir()) == [theirs]


def test_those_before_are_cleared_away(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    before, kept = [put(runtime(tmp_path / name), environment) for name in ("before", "now")]
    old = before.with_name("spark-4.0.0-0123456789ab-7.jsa")
    old.touch()
    assert archive._clear(kept.parent, [kept]) == sorted([before, old])
    assert list(kept.parent.iterdir()) == [kept]


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    with pytest.raises(NotMade, match=r"no archive\. It said: no memory\. There are"):
        archive._settle(made, tmp_path, "spark-1", "no memory\n/x/report.html\n")
    made.write_bytes(CONTENT)
    settled = archive._settle(made, tmp_path, "spark-1", "")
    assert (settled.name, settled.read_bytes()) == ("spark-1-7.jsa", CONTENT)
    assert archive._whole(tmp_path, "spark-1") == settled


def test_settings_in_a_folder_are_said_to_be_in_the_way(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    home = runtime(tmp_path / "java")
    made = put(home, environment)
    for name, place in (("SPARK_CONF_DIR", "spark/conf"), ("HADOOP_CONF_DIR", "hadoop")):
        conf = tmp_path / place
        conf.mkdir()
        given = {**environment, "HADOOP_CONF_DIR": str(tmp_path / "hadoop")}
        (conf / "core-site.xml").touch()
        with pytest.raises(NotMade, match=f"in the folder {conf}, .* set {name} to"):
            archive.make(home, given)
        assert archive.find(home, given) is None
        (conf / "core-site.xml").unlink()
        assert archive.find(home, given) == made


def test_a_folder_that_is_none_or_too_full_or_in_use(
    tmp_path: pathlib.Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = runtime(tmp_path / "java")
    with pytest.raises(NotMade, match="whole Java"):
        archive.make(tmp_path / "nowhere", environment)
    (tmp_path / "file").touch()
    with pytest.raises(NotMade, match=r"file/gripproxy cannot be written \(.*XDG_CACHE_HOME"):
        archive.make(home, {**environment, "XDG_CACHE_HOME": str(tmp_path / "file")})
    place = archive.folder(environment)
    place.mkdir(parents=True)
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(NotMade, match="another command"):
        archive.make(home, environment)
    os.close(descriptor)
    left = place / ".making-killed"
    left.mkdir()
    monkeypatch.setattr(archive, "SPACE", 1 << 60)
    with pytest.raises(NotMade, match=r"has [0-9]+ MB left, and [0-9]+ are needed: make room"):
        archive.make(home, environment)
    assert not left.exists()
