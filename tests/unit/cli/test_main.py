"""gripproxy.cli.main: options, commands, and what a wrong command line or configuration says."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gripproxy import __version__
from gripproxy.cli import main as cli
from gripproxy.config import Config, load_config
from gripproxy.process.log import WARNING, log
from gripproxy.runner.admin_socket import admin_socket_path
from gripproxy.top import app
from gripproxy.top.view import View
from tests.support.log_lines import LogLines


@dataclasses.dataclass
class Calls:
    """What the command line started, in place of processes."""

    entries: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)

    @property
    def config(self) -> Config:
        (entry,) = self.entries
        assert isinstance(entry[1], Config)
        return entry[1]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Stand-ins for the processes' entries: they only record. Sockets, the log and limits stay untouched."""
    calls = Calls()

    def entry(name: str, status: int) -> types.SimpleNamespace:
        def record(*arguments: Any, **named: Any) -> int:
            calls.entries.append((name, *arguments, *named.items()))
            return status

        return types.SimpleNamespace(run=record, main=record, check=record)

    modules = {
        "gripproxy.runner.startup": entry("runner", 10),
        "gripproxy.worker.worker": entry("worker", 11),
        "handler.service": entry("handler", 12),
        "griphub.service": entry("hub", 15),
        "gripproxy.cli.check": entry("check", 13),
        "gripproxy.cli.publish": entry("publish", 14),
    }
    for name, module in modules.items():
        package, _, leaf = name.rpartition(".")
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(importlib.import_module(package), leaf, module, raising=False)
    monkeypatch.setattr(cli, "for_worker", lambda config, handover: ["a listener"])
    monkeypatch.setattr(cli, "raise_file_limit", lambda: 1)
    monkeypatch.setattr(log, "configure", lambda *arguments, **names: None)
    return calls


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> str:
    (tmp_path / "routes").write_text("* test\n")
    path = tmp_path / "g.conf"
    path.write_text("[runner]\nhttp_port=8000\n")
    return str(path)


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that a wrong command line or configuration gets."""
    try:
        status = cli.main(argv)
    except SystemExit as stop:
        status = int(str(stop.code))
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    return err.strip()


class TestCommands:
    def test_no_arguments(self, calls: Calls) -> None:
        assert cli.main([]) == 10
        assert calls.config == load_config(None)

    def test_run(self, calls: Calls, conf: str) -> None:
        assert cli.main(["--config", conf, "--id=2", "--port", "80"]) == 10
        assert calls.config == load_config(conf, id=2, port="80")

    def test_worker(self, calls: Calls, conf: str) -> None:
        assert cli.main(["worker", "--number=3", f"--config={conf}"]) == 11
        name, config, number, listeners, child = calls.entries[0]
        assert (name, config.path, number, listeners, child.supervised) == ("worker", conf, 3, ["a listener"], False)

    def test_worker_has_a_number_without_saying(self, calls: Calls) -> None:
        cli.main(["worker"])
        assert calls.entries[0][2] == 1

    def test_handler(self, calls: Calls) -> None:
        assert cli.main(["handler", "--ipc-prefix=x-", "--port-offset=7"]) == 12
        assert calls.config == load_config(None, ipc_prefix="x-", port_offset=7)

    def test_hub(self, calls: Calls, conf: str) -> None:
        with open(conf, "a") as file:
            file.write("[hub]\nstore=hub.db\nhub_anonymous=all\n")
        assert cli.main(["hub", f"--config={conf}"]) == 15
        (entry,) = calls.entries
        assert (entry[0], entry[1], entry[2].supervised) == ("hub", load_config(conf), False)

    def test_hub_without_a_store(self, calls: Calls, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
        error = f"gripproxy hub: error: {conf}: there is no hub: write store=PATH in [hub]"
        assert refused(["hub", f"--config={conf}"], capsys) == error
        assert calls.entries == []

    def test_check(self, calls: Calls, conf: str) -> None:
        assert cli.main(["--config", conf, "check", "--verbose"]) == 13
        assert calls.config == load_config(conf, log_level="3")
        assert calls.entries[0][2:] == (("problems", []), ("verbose", True), ("as_json", False))
        calls.entries.clear()
        cli.main(["--config", conf, "check", "--port=x", "--json"])
        (_, problems), _, as_json = calls.entries[0][2:]
        assert len(problems) == 1
        assert as_json == ("as_json", True)

    def test_reload(
        self, calls: Calls, conf: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        requests: list[tuple[str, bool]] = []

        def send_request(path: str, words: str, on_progress: Callable[[str], None], *, wait: bool) -> str:
            assert path == admin_socket_path(load_config(conf))
            requests.append((words, wait))
            on_progress("worker 1 serves, process 7")
            return "" if wait else "it was not to be"

        monkeypatch.setattr("gripproxy.cli.reload.send_request", send_request)
        assert cli.main(["reload", "--handler", f"--config={conf}"]) == 0
        assert capsys.readouterr() == ("gripproxy: worker 1 serves, process 7\ngripproxy: reloaded\n", "")
        assert cli.main(["reload", "--hub", "--handler", f"--config={conf}"]) == 0
        capsys.readouterr()
        assert cli.main(["reload", "--no-wait", f"--config={conf}"]) == 1
        assert capsys.readouterr().err == "gripproxy reload: error: it was not to be\n"
        assert requests == [("reload handler", True), ("reload handler hub", True), ("reload", False)]
        assert calls.entries == []

    def test_reload_of_nobody(self, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
        pathlib.Path(conf).write_text(f"[global]\nrundir={conf}.run\n")
        assert cli.main(["reload", f"--config={conf}"]) == 1
        assert "no running gripproxy has its runtime files there" in capsys.readouterr().err

    def test_top(self, conf: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        seen: list[tuple[Any, ...]] = []

        def live(endpoints: list[str], view: View, interval: float) -> int:
            seen.append((endpoints, view.sort, view.filter, interval))
            return 0

        def once(endpoints: list[str], view: View, interval: float, rows: int, as_json: bool) -> str:
            seen.append((endpoints, view.sort, view.filter, interval, rows))
            if len(seen) > 3:
                raise app.NotConnected("nobody answers")
            return "figures\n"

        monkeypatch.setattr(app, "live", live)
        monkeypatch.setattr(app, "once", once)
        assert cli.main(["top"]) == 0
        with open(conf, "a") as file:
            file.write("[global]\nport_offset=3\n[handler]\nstats_spec=tcp://*:5000\n")
        # What is bound everywhere is asked for here.
        assert cli.main(["--config", conf, "top", "--interval=0.5", "--sort=items", "--filter", "x"]) == 0
        specs = ["--spec=tcp://[::]:1", "--spec", "ipc:///s"]
        assert cli.main(["top", *specs, "--once", "--rows", "5", "--config=/no/such"]) == 0
        assert seen == [
            ([load_config(None).handler.stats_spec], "deliveries", "", 2.0),
            (["tcp://127.0.0.1:5003"], "items", "x", 0.5),
            (["tcp://[::1]:1", "ipc:///s"], "deliveries", "", 2.0, 5),
        ]
        assert capsys.readouterr() == ("figures\n", "")
        assert cli.main(["top", "--once"]) == 1
        assert capsys.readouterr() == ("", "gripproxy top: error: nobody answers\n")

    def test_publish_has_its_own_options(self, calls: Calls) -> None:
        assert cli.main(["publish", "--spec", "x", "check", "worker"]) == 14
        assert calls.entries == [("publish", ["--spec", "x", "check", "worker"])]

    def test_argv_of_the_process(self, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["gripproxy", "handler"])
        assert cli.main() == 12

    def test_value_that_looks_like_a_command(self, calls: Calls) -> None:
        assert cli.main(["--config", "worker", "check"]) == 13
        assert calls.config.path == os.path.abspath("worker")

    def test_interrupted(self, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(config: Config) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(cli, "_run", interrupt)
        assert cli.main([]) == 130


class TestOptions:
    def test_all(self, calls: Calls) -> None:
        cli.main(["--port", "[::1]:80", "--id", "1", "--loglevel", "worker:3", "--logfile", "l", "--route", "a test",
                  "--route=b test", "-m"])  # fmt: skip
        expected = load_config(
            None, port="[::1]:80", id=1, log_level="worker:3", log_file="l", routes=["a test", "b test"]
        )
        assert calls.config == expected

    def test_verbose(self, calls: Calls) -> None:
        cli.main(["--verbose"])
        assert calls.config.runner.log_level == 3

    def test_loglevel_goes_before_verbose(self, calls: Calls) -> None:
        cli.main(["--verbose", "--loglevel=1"])
        assert calls.config.runner.log_level == 1

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            cli.main(["--version"])
        assert stop.value.code == 0
        assert capsys.readouterr().out == f"gripproxy {__version__}\n"

    @pytest.mark.parametrize("command", [None, "worker", "handler", "hub", "check", "top", "reload"])
    def test_help_offers_the_options_that_are_used(
        self, command: str | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as stop:
            cli.main(["--help"] if command is None else [command, "--help"])
        assert stop.value.code == 0
        out = capsys.readouterr().out
        offered = {option for option in cli._OPTIONS if re.search(rf"(?m)^  {option}(?![\w-])", out)}
        assert offered == set(cli._USED[command])
        if command is None:
            assert all(name in out for name in cli.COMMANDS)

    @pytest.mark.parametrize("argv", [["reload", "--port=1"], ["top", "--route=x"], ["check", "--logfile=x"]])
    def test_others_are_refused(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert f"there is no option '{argv[1].partition('=')[0]}'" in refused(argv, capsys)

    @pytest.mark.parametrize("command", ["worker", "handler", "hub"])
    def test_processes_take_all_that_the_runner_passes(self, command: str) -> None:
        options = cli._command_parser(command).parse_args(["--port=1", "--route=* test", "--verbose"])
        assert (options.port, options.route) == ("1", ["* test"])

    def test_worker_logs_warnings_only_by_itself(
        self, calls: Calls, conf: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pathlib.Path(conf).write_text("[runner]\nhttp_prt=1\n")
        said = LogLines(monkeypatch, WARNING).lines
        cli.main(["worker", f"--config={conf}"])
        assert len(said) == 1
        assert "unknown key 'http_prt' in [runner] (did you mean 'http_port'?)" in said[0]
        cli.main([f"--config={conf}"])  # the runner logs them itself
        assert len(said) == 1


class TestRefused:
    def test_unknown_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert refused(["--confg=x"], capsys) == (
            "gripproxy: error: there is no option '--confg': did you mean '--config'? (see gripproxy --help)"
        )

    def test_no_abbreviations(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "there is no option '--conf'" in refused(["--conf=x"], capsys)

    def test_unknown_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "there is no command 'serve'" in refused(["serve"], capsys)

    def test_id(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "argument --id: must be a whole number, not 'x'" in refused(["--id", "x"], capsys)
        assert "--id must be 0 to 6553, not 9999" in refused(["--id", "9999"], capsys)

    def test_top(self, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert refused(["top", f"--config={conf}"], capsys) == (
            f"gripproxy top: error: {conf}: stats_spec is empty: set it in [handler], or name one with --spec"
        )
        assert refused(["top", "--once", "--spec=nowhere"], capsys) == (
            "gripproxy top: error: cannot connect to 'nowhere': Invalid argument; an address is for example "
            "ipc:///run/gripproxy/pushpin-stats or tcp://localhost:5564"
        )
        for value in ("0", "x", "nan", "inf"):
            assert f"must be 0.1 to 3600 seconds, not '{value}'" in refused(["top", "--interval", value], capsys)
        assert "argument --sort: invalid choice: 'x'" in refused(["top", "--sort", "x"], capsys)

    def test_top_without_a_terminal(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        assert "is no terminal: use --once for one snapshot as text" in refused(["top"], capsys)

    def test_missing_config(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert refused(["--config", "/no/such"], capsys) == (
            "gripproxy: error: /no/such: cannot be read: No such file or directory"
        )

    @pytest.mark.parametrize("command", [[], ["worker"], ["handler"], ["reload"]])
    def test_bad_value(self, command: list[str], conf: str, capsys: pytest.CaptureFixture[str]) -> None:
        pathlib.Path(conf).write_text("[proxy]\n\nworkers=many\n")
        assert refused([*command, f"--config={conf}"], capsys) == (
            f"{' '.join(['gripproxy', *command])}: error: {conf}:3: workers must be a whole number, not 'many'"
        )

    def test_missing_routes_file(self, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
        (pathlib.Path(conf).parent / "routes").unlink()
        assert "routes file cannot be read: No such file or directory" in refused([f"--config={conf}"], capsys)

    def test_bad_route(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert refused(["--route", "* test", "--route", "check"], capsys) == (
            "gripproxy: error: --route: a route needs a condition and at least one target: 'check'"
        )

    @pytest.mark.parametrize("command", [[], ["worker"], ["handler"]])
    def test_log_level(self, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert "--loglevel must be 0 to 3" in refused([*command, "--loglevel=4"], capsys)

    def test_log_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        error = refused(["handler", "--logfile=/no/such/file"], capsys)
        assert (
            error == "gripproxy handler: error: --logfile: '/no/such/file' cannot be opened: No such file or directory"
        )
