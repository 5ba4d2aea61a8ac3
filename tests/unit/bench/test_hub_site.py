"""The service with a hub: its configuration, and the roles of its processes."""

from __future__ import annotations

import configparser
import pathlib

import pytest

from bench.hub_parts import FULL
from bench.hub_site import HubProxy, processors, role, watch_of
from bench.targets import Wish


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -m gripproxy worker --fd 3", "worker"),
        ("python -m gripproxy handler", "handler"),
        ("python -m gripproxy hub", "hub"),
        ("python -P -m griphub.processes.writer_process --fd 3", "writer_process"),
        ("python -P -m griphub.processes.reader_process --fd 3", "reader_process"),
        ("python -P -m griphub.processes.sender_process --fd 3", "sender_process"),
        ("python -m gripproxy --config=/srv/hub/gripproxy.conf", "runner"),
    ],
)
def test_the_role_of_a_process_is_in_its_command(command: str, name: str) -> None:
    assert role(command.split(" ")) == name


def test_the_configuration_has_the_store_in_the_folder_and_the_route_first(tmp_path: pathlib.Path) -> None:
    site = HubProxy(tmp_path)
    site.folder = tmp_path
    site.port, site.pull, site.control, site.sub, site.rep, site.metrics, site.backend = range(20_001, 20_008)
    site.commands(Wish())
    config = configparser.ConfigParser(interpolation=None)
    config.read(tmp_path / "gripproxy.conf")
    assert config["hub"]["store"] == f"{tmp_path}/hub.db"
    assert config["hub"]["hub_sync"] == "full"
    assert int(config["hub"]["ranges_per_owner_max"]) >= FULL.watchers
    assert (tmp_path / "routes").read_text().splitlines() == ["*,path_beg=/hub hub", "* 127.0.0.1:20007,over_http"]


def test_a_watch_is_beside_the_events_of_its_topic() -> None:
    assert watch_of("/topics/t-1/events", "?low=a") == "/topics/t-1/watch?low=a"


def test_processors_are_told_by_roles_the_busiest_first() -> None:
    before = {"hub": 1.0, "worker": 2.0, "handler": 3.0}
    after = {"hub": 2.0, "worker": 5.0, "handler": 3.001, "writer_process": 0.5}
    assert processors(before, after, 2.0) == "CPU: worker 1.50, hub 0.50, writer 0.25"
