"""A configuration that is dangerous or wrong, at the start, in ``check``, and through a pipe."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from tests.e2e.test_survival import PATIENCE, Gripproxy
from tests.support.ports import free_ports
from tests.support.service import ROOT, running


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gripproxy", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_every_open_port_is_named_at_the_start_and_in_check(tmp_path: pathlib.Path) -> None:
    pull, sub, rep, stats, metrics = free_ports(5)
    handler = (
        f"push_in_http_addr=0.0.0.0\npush_in_spec=tcp://*:{pull}\npush_in_sub_specs=tcp://0.0.0.0:{sub}\n"
        f"command_spec=tcp://0.0.0.0:{rep}\nstats_spec=tcp://0.0.0.0:{stats}\nprometheus_port={metrics}\n"
        "[proxy]\nsig_key=changeme"
    )
    gripproxy = Gripproxy(tmp_path, "", (), handler)
    try:
        gripproxy.ready()
        named = (
            rf"HTTP control port on 0\.0\.0\.0, port {gripproxy.control}: .* write control_key=SECRET",
            rf"ZeroMQ PULL on tcp://\*:{pull} .* write push_in_spec=tcp://127\.0\.0\.1:{pull}",
            rf"ZeroMQ SUB on tcp://0\.0\.0\.0:{sub} .* write push_in_sub_specs=tcp://127\.0\.0\.1:{sub}",
            rf"ZeroMQ ROUTER on tcp://0\.0\.0\.0:{rep} .* write command_spec=tcp://127\.0\.0\.1:{rep}",
            rf"ZeroMQ PUB on tcp://0\.0\.0\.0:{stats} .* write stats_spec=tcp://127\.0\.0\.1:{stats}",
            rf"metrics on {metrics}: .* write prometheus_port=127\.0\.0\.1:{metrics}",
            r"sig_key=changeme is the key that is shipped, .* write sig_key=base64:SECRET",
        )
        log = gripproxy.service.log
        for line in named:
            assert len(re.findall(rf"\[WARN\] .* \[runner\] configuration: {line}", log)) == 1, line
        done = run("check", f"--config={gripproxy.config}")
        assert (done.returncode, done.stderr) == (1, "")
        for line in named:
            assert len(re.findall(rf"(?m)^error: {line}", done.stdout)) == 1, line
        assert done.stdout.endswith("\n7 errors\n")
    finally:
        gripproxy.close()


@pytest.mark.parametrize("key", ["push_in_spec", "push_in_sub_specs", "command_spec"])
def test_a_key_and_a_way_around_it_do_not_start(tmp_path: pathlib.Path, key: str) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "g.conf"
    config.write_text(f"[global]\nrundir={tmp_path}/run\n[handler]\ncontrol_key=secret\n{key}=tcp://0.0.0.0:{port}\n")
    (tmp_path / "routes").write_text("* test\n")
    done = run(f"--config={config}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gripproxy: error: {config}:5: {key} must be on loopback")
    assert "write control_zmq=open in [handler]" in done.stderr


def test_the_key_is_opened_by_the_operator(tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    handler = f"control_key=secret\npush_in_spec=tcp://0.0.0.0:{port}\ncontrol_zmq=open\n"
    gripproxy = Gripproxy(tmp_path, "", (), handler)
    try:
        gripproxy.ready()
        gripproxy.service.wait_for_port(port)
        assert "other machines" not in gripproxy.service.log
    finally:
        gripproxy.close()


def test_a_handler_by_itself_names_its_ports(tmp_path: pathlib.Path) -> None:
    control, pull = free_ports(2)
    config = tmp_path / "g.conf"
    config.write_text(
        f"[global]\nrundir={tmp_path}/run\n[handler]\npush_in_http_port={control}\npush_in_spec=tcp://*:{pull}\n"
    )
    handler = [sys.executable, "-m", "gripproxy", "handler", f"--config={config}"]
    with running(handler, control) as service:
        service.wait_for_log(
            rf"\[WARN\] .* \[handler\] configuration: ZeroMQ PULL on tcp://\*:{pull} .* write push_in_spec="
        )


@pytest.mark.parametrize("lines", ["head -n 1", "true"])
def test_check_into_a_pipe_that_is_closed_early(tmp_path: pathlib.Path, lines: str) -> None:
    config = tmp_path / "g.conf"
    config.write_text("[runner]\nhttp_port=1\n")
    # More than a pipe takes: the writer is still at it when its reader has gone.
    (tmp_path / "routes").write_text("".join(f"host{number}.test localhost:1\n" for number in range(5000)))
    check = f"{sys.executable} -m gripproxy check --config={config}"
    script = f'{check} | {lines}; echo "status ${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stderr == ""
    assert done.stdout.endswith("status 0\n")


def test_help_into_a_pipe_that_is_closed_early() -> None:
    script = f"{sys.executable} -m gripproxy --help | true"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_pushpins_own_configuration_starts(tmp_path: pathlib.Path) -> None:
    """Dangerous is a warning: what Debian ships as /etc/pushpin/pushpin.conf has the key that everybody knows."""
    pull, sub, rep = free_ports(3)
    handler = (
        f"push_in_spec=tcp://127.0.0.1:{pull}\npush_in_sub_specs=tcp://127.0.0.1:{sub}\n"
        f"push_in_http_addr=127.0.0.1\ncommand_spec=tcp://127.0.0.1:{rep}\n"
        "stats_spec=ipc://{rundir}/{ipc_prefix}stats\nmessage_rate=2500\n"
        "[proxy]\nsig_iss=pushpin\nsig_key=changeme\nupdates_check=off\n[runner]\nlog_level=5\nclient_maxconn=1000000000\nzurl_bin=zurl"
    )
    gripproxy = Gripproxy(tmp_path, "services=condure,pushpin-proxy,pushpin-handler", (), handler)
    try:
        gripproxy.ready()
        warnings = re.findall(r"\[WARN\] \S+ \S+ \[runner\] (?:configuration: )?(?:\S+: )?(\w+)", gripproxy.service.log)
        assert "log_level must be 0 to 3, not '5'; 3 is used" in gripproxy.service.log
        assert sorted(warnings) == ["client_maxconn", "log_level", "sig_key"]
    finally:
        gripproxy.close()
