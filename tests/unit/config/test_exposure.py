"""gripproxy.config.exposure: ports that other machines reach without protection, and the lines that mend it."""

from __future__ import annotations

import base64
import pathlib
from collections.abc import Callable

import pytest

from gripproxy.config import Config, load_config
from gripproxy.config.exposure import exposures, open_to_users, shipped_keys
from gripproxy.config.values import others_reach

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: pathlib.Path) -> Load:
    def load(text: str, id: int | None = None) -> Config:
        path = tmp_path / "g.conf"
        path.write_text(f"[global]\nrundir=/r\n{text}\n")
        return load_config(str(path), id=id)

    return load


class TestReach:
    @pytest.mark.parametrize(
        "host",
        ["", "*", "0.0.0.0", "0", "::", "::0", "192.0.2.1", "10.0.0.1", "2001:db8::1", "fe80::1", "::ffff:10.0.0.1",
         "no-such-name.invalid", "no-such-if", "../lo"],
    )  # fmt: skip
    def test_others_reach(self, host: str) -> None:
        assert others_reach(host)

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "127.1", "::1", "::ffff:127.0.0.1", "localhost", "lo"])
    def test_only_this_machine_reaches(self, host: str) -> None:
        assert not others_reach(host)


class TestExposures:
    def test_what_is_shipped_is_not_exposed(self) -> None:
        assert exposures(load_config(None)) == []
        shipped = pathlib.Path(__file__).parents[3] / "conf" / "gripproxy.conf"
        assert exposures(load_config(str(shipped))) == []

    def test_each_port_is_named_with_the_line_to_write(self, load: Load) -> None:
        config = load(
            "[handler]\npush_in_http_port=5561\npush_in_http_addr=10.0.0.1\npush_in_spec=tcp://*:5560\n"
            "push_in_sub_specs=tcp://[::]:5562,tcp://0.0.0.0:9\ncommand_spec=tcp://0.0.0.0:5563\n"
            "stats_spec=tcp://eth7:5564\nprometheus_port=9091\n[proxy]\nprometheus_port=[2001:db8::1]:9092"
        )
        assert [line.replace(" in [handler]", "").split(": write ") for line in exposures(config)] == [
            [
                "HTTP control port on 10.0.0.1, port 5561: other machines can publish without a key",
                "control_key=SECRET, with a secret of your own, or push_in_http_addr=127.0.0.1,",
            ],
            [
                "ZeroMQ PULL on tcp://*:5560 (push_in_spec): other machines can publish without a key",
                "push_in_spec=tcp://127.0.0.1:5560, or control_zmq=open if only publishers reach it,",
            ],
            [
                "ZeroMQ SUB on tcp://[::]:5562 (push_in_sub_specs): other machines can publish without a key",
                "push_in_sub_specs=tcp://127.0.0.1:5562, or control_zmq=open if only publishers reach it,",
            ],
            [
                "ZeroMQ ROUTER on tcp://0.0.0.0:5563 (command_spec): other machines can publish and give commands "
                "without a key",
                "command_spec=tcp://127.0.0.1:5563, or control_zmq=open if only publishers reach it,",
            ],
            [
                "ZeroMQ PUB on tcp://eth7:5564 (stats_spec): other machines can read all statistics, with addresses of "
                "clients, without a key",
                "stats_spec=tcp://127.0.0.1:5564,",
            ],
            ["metrics on 9091: other machines can read them", "prometheus_port=127.0.0.1:9091"],
            [
                "metrics on [2001:db8::1]:9092: other machines can read them",
                "prometheus_port=127.0.0.1:9092 in [proxy]",
            ],
        ]

    def test_what_is_written_ends_it(self, load: Load) -> None:
        written = (
            "[handler]\npush_in_http_port=5561\npush_in_http_addr=0.0.0.0\ncontrol_key=SECRET\n"
            "push_in_spec=tcp://*:5560\ncommand_spec=tcp://*:5563\ncontrol_zmq=open\nstats_spec=tcp://127.0.0.1:5564\n"
            "prometheus_port=127.0.0.1:9091"
        )
        assert exposures(load(written)) == []

    def test_the_line_has_the_port_without_its_offset(self, load: Load) -> None:
        (line,) = exposures(load("[handler]\npush_in_spec=tcp://*:5560", id=3))
        assert "PULL on tcp://*:5590" in line
        assert "write push_in_spec=tcp://127.0.0.1:5560" in line
        (line,) = exposures(load("[handler]\npush_in_spec=tcp://*:*", id=3))
        assert "write push_in_spec=tcp://127.0.0.1:*" in line

    @pytest.mark.parametrize(
        "text",
        [
            "push_in_http_addr=0.0.0.0",  # no port: it is not opened
            "push_in_sub_specs=tcp://192.0.2.1:1\npush_in_sub_connect=true",
            "push_in_spec=ipc:///s\nprometheus_port=ipc:///m",
        ],
    )
    def test_what_does_not_listen_for_other_machines(self, load: Load, text: str) -> None:
        assert exposures(load(f"[handler]\n{text}")) == []

    def test_without_a_handler_nothing_of_it_listens(self, load: Load) -> None:
        text = "[runner]\nservices=proxy\n[handler]\npush_in_spec=tcp://*:5560"
        assert exposures(load(text)) == []


class TestUsers:
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("ipc_file_mode=777\nstats_spec=ipc:///s", "write ipc_file_mode=770 in [handler]"),
            ("ipc_file_mode=602\npush_in_spec=ipc:///s", "write ipc_file_mode=600 in [handler]"),
            ("ipc_file_mode=770\npush_in_spec=ipc:///s", ""),
            ("push_in_spec=ipc:///s", ""),
            ("ipc_file_mode=777\npush_in_spec=tcp://127.0.0.1:1", ""),
        ],
    )
    def test_mode(self, load: Load, text: str, line: str) -> None:
        found = open_to_users(load(f"[handler]\n{text}"))
        assert "".join(found).endswith(line)
        assert bool(found) is bool(line)


class TestShippedKeys:
    def test_it_is_found_however_it_is_written(self, load: Load, tmp_path: pathlib.Path) -> None:
        (tmp_path / "key").write_text(b"changeme".hex())
        for value in ("changeme", "base64:" + base64.b64encode(b"changeme").decode(), "file:key"):
            (line,) = shipped_keys(load(f"[proxy]\nsig_key={value}"))
            assert "write sig_key=base64:SECRET in [proxy]" in line

    def test_every_key(self, load: Load) -> None:
        config = load("[proxy]\nsig_key=changeme\nupstream_key=changeme\n[handler]\ncontrol_key=changeme")
        assert [line.partition("=")[0] for line in shipped_keys(config)] == ["sig_key", "upstream_key", "control_key"]

    def test_a_key_of_ones_own(self, load: Load, tmp_path: pathlib.Path) -> None:
        (tmp_path / "key").write_text("00ff")
        for value in ("mine", "base64:AAAA", "file:key", ""):
            assert shipped_keys(load(f"[proxy]\nsig_key={value}")) == []
