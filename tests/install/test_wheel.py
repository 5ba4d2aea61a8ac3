"""The wheel in an environment that has nothing else: what a machine without a checkout gets (apt: zsh fish man-db)."""

from __future__ import annotations

import configparser
import os
import pathlib
import subprocess
import sys
import urllib.request
import zipfile
from email.parser import Parser

import pytest

from gripproxy import __version__
from tests.support.ports import free_ports
from tests.support.service import ROOT, Service

PATIENCE = 300.0


def run(*command: str | pathlib.Path, **more: str) -> str:
    """Return the output of a command that must succeed without a word on its standard error."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd="/",
        env={**os.environ, "MANWIDTH": "100", **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def source_of(folder: pathlib.Path) -> pathlib.Path:
    """Return a folder with the files that git has: a checkout may have leftovers of builds.

    Args:
        folder: in which it is made.
    """
    source = folder / "source"
    source.mkdir()
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, files)):
        if not name.startswith(("tests/", "bench/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    return source


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = source_of(folder)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", str(source)], timeout=PATIENCE, check=True)
    [found] = folder.glob("gripproxy-*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of an environment into which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], timeout=PATIENCE, check=True)
    pip = [str(folder / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", str(wheel)], cwd="/", timeout=PATIENCE, check=True)
    return folder


def test_its_metadata_is_complete(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "websocket" in metadata["Keywords"]
    assert len(metadata.get_all("Classifier", [])) > 10
    assert metadata.get_all("Project-URL")
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_no_tests_and_no_caches_are_in_it(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}
    start = f"gripproxy-{__version__}"
    assert top == {"gripproxy", "handler", "griphub", "spark_stats", f"{start}.dist-info", f"{start}.data"}


def test_the_commands_run(bare: pathlib.Path) -> None:
    assert run(bare / "bin" / "gripproxy", "--version") == f"gripproxy {__version__}\n"
    assert run(bare / "bin" / "gripproxy-stats", "--version") == f"gripproxy-stats {__version__}\n"


def test_a_service_with_the_config_that_comes_along(bare: pathlib.Path, tmp_path: pathlib.Path) -> None:
    share = bare / "share" / "gripproxy" / "conf"
    http, control = free_ports(2)
    text = (share / "gripproxy.conf").read_text()
    conf = configparser.ConfigParser(interpolation=None)
    conf.read_string(text)
    conf["global"]["rundir"] = f"{tmp_path}/run"
    conf["runner"]["http_port"] = str(http)
    conf["handler"]["push_in_http_port"] = str(control)
    for key in ("push_in_spec", "push_in_sub_specs", "command_spec", "stats_spec"):
        conf["handler"][key] = f"ipc://{tmp_path}/{key}"
    with (tmp_path / "gripproxy.conf").open("w") as file:
        conf.write(file)
    (tmp_path / "routes").write_text("* test\n")
    service = Service([str(bare / "bin" / "gripproxy"), f"--config={tmp_path}/gripproxy.conf"])
    try:
        service.wait_for_port(http, control)
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/stream", timeout=60) as stream:
            assert stream.readline() == b"[stream opened]\n"
            published = run(
                bare / "bin" / "gripproxy", "publish", f"--spec=http://127.0.0.1:{control}", "test", "from the wheel"
            )
            assert published == "Published\n"
            assert stream.readline() == b"from the wheel\n"
    finally:
        assert service.stop() == 0


def test_units_and_pages_are_where_the_units_expect_them(bare: pathlib.Path) -> None:
    share = bare / "share"
    units = share / "gripproxy" / "systemd"
    for unit in ("gripproxy.service", "gripproxy-handler.service", "gripproxy-worker@.socket"):
        assert "[Unit]" in (units / unit).read_text()
    for name in ("logrotate/gripproxy.logrotate", "prometheus/gripproxy.rules.yml", "grafana/gripproxy.json"):
        assert (share / "gripproxy" / name).is_file()
    [page] = [
        line.partition("file:///opt/gripproxy/")[2]
        for line in (units / "gripproxy.service").read_text().splitlines()
        if line.startswith("Documentation=")
    ]
    assert (bare / page).is_file()


def test_the_manual_page_is_read_by_man(bare: pathlib.Path) -> None:
    text = run("man", "-E", "ascii", "--warnings", "-l", bare / "share" / "man" / "man1" / "gripproxy.1")
    assert "gripproxy - GRIP reverse proxy: adds realtime push to any web backend" in text
    assert "hub topics [ACTION] [TOPIC]" in text


def test_the_manual_page_of_the_statistics_is_read_by_man(bare: pathlib.Path) -> None:
    text = run("man", "-E", "ascii", "--warnings", "-l", bare / "share" / "man" / "man1" / "gripproxy-stats.1")
    assert "gripproxy-stats - Records the statistics of gripproxy or Pushpin" in " ".join(text.split())
    assert "--segment-age" in text


def test_fish_completes_the_statistics(bare: pathlib.Path) -> None:
    script = bare / "share" / "fish" / "vendor_completions.d" / "gripproxy-stats.fish"
    ask = f"source {script}; complete -C 'gripproxy-stats re'"
    found = {line.partition("\t")[0] for line in run("fish", "--no-config", "-c", ask).splitlines()}
    assert found == {"record", "report"}


def test_fish_completes(bare: pathlib.Path) -> None:
    script = bare / "share" / "fish" / "vendor_completions.d" / "gripproxy.fish"
    ask = f"source {script}; complete -C 'gripproxy top --sort '"
    found = {line.partition("\t")[0] for line in run("fish", "--no-config", "-c", ask).splitlines()}
    assert found == {"deliveries", "items", "subscribers", "total", "last", "name"}


@pytest.mark.parametrize("program", ["gripproxy", "gripproxy-stats"])
def test_zsh_takes_the_script(bare: pathlib.Path, program: str) -> None:
    folder = bare / "share" / "zsh" / "site-functions"
    ask = f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; echo $_comps[{program}]"
    assert run("zsh", "-f", "-c", ask) == f"_{program}\n"
    run("zsh", "-f", "-n", folder / f"_{program}")
