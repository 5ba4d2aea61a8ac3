"""gripproxy.process.hub_sockets: three names in rundir."""

from __future__ import annotations

import pathlib

from gripproxy.config import load_config
from gripproxy.config.values import MAX_SOCKET_PATH
from gripproxy.process.hub_sockets import hub_control_socket, hub_socket, hub_sub_spec


def test_names_have_rundir_and_the_prefix_of_the_instance(tmp_path: pathlib.Path) -> None:
    (tmp_path / "g.conf").write_text("[global]\nrundir=/run/x\n")
    config = load_config(str(tmp_path / "g.conf"), ipc_prefix="p3-")
    assert hub_socket(config) == "/run/x/p3-hub"
    assert hub_control_socket(config) == "/run/x/p3-hub-control"
    assert hub_sub_spec(config) == "ipc:///run/x/p3-hub-sub"


def test_the_longest_rundir_that_the_configuration_allows_has_room(tmp_path: pathlib.Path) -> None:
    rundir = "/" + "r" * (MAX_SOCKET_PATH - len("//pushpin-hub-control"))
    (tmp_path / "g.conf").write_text(f"[global]\nrundir={rundir}\n[hub]\nstore=s\nhub_anonymous=all\n")
    config = load_config(str(tmp_path / "g.conf"))
    assert len(hub_control_socket(config)) == MAX_SOCKET_PATH
    assert max(len(hub_socket(config)), len(hub_sub_spec(config).removeprefix("ipc://"))) <= MAX_SOCKET_PATH
