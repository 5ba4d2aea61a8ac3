"""Addresses that cannot be used are named with their key; the ways to bind are in tests/e2e/test_handler_process.py."""

import pathlib
import socket
import stat

import pytest

from gripproxy.process.endpoints import BindError, check_free, listen_metrics


def test_the_error_names_key_value_and_reason() -> None:
    error = BindError("push_in_spec", "tcp://127.0.0.1:1", "Address already in use")
    assert str(error) == "cannot use push_in_spec=tcp://127.0.0.1:1: Address already in use"
    assert (error.key, error.value, error.reason) == (
        "push_in_spec",
        "tcp://127.0.0.1:1",
        "Address already in use",
    )


@pytest.mark.parametrize("spec", ["ipc:///nowhere/x", "tcp://127.0.0.1:*"])
def test_what_cannot_clash_passes(spec: str) -> None:
    check_free(spec, "push_in_spec")


class TestMetrics:
    def test_a_port_with_an_address(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(BindError, match=f"cannot use prometheus_port={port}: 127.0.0.1 port {port}: Address"):
                listen_metrics(f"127.0.0.1:{port}", "prometheus_port", None)
        with listen_metrics(f"127.0.0.1:{port}", "prometheus_port", None) as sock:
            assert sock.getsockname() == ("127.0.0.1", port)

    def test_a_port_alone_is_every_address(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
        with listen_metrics(str(port), "prometheus_port", None) as sock:
            assert sock.getsockname() == ("0.0.0.0", port)

    def test_a_socket_file_that_was_left_behind_is_replaced(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "new" / "metrics"
        for _ in range(2):
            with listen_metrics(f"ipc://{path}", "prometheus_port", 0o600) as sock:
                assert sock.family == socket.AF_UNIX
                assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_another_file_is_left_alone(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "precious"
        path.write_text("x")
        with pytest.raises(BindError, match="Address already in use"):
            listen_metrics(f"ipc://{path}", "prometheus_port", None)
        assert path.read_text() == "x"
