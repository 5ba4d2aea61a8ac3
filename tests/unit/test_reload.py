"""The order of a rolling restart, and which keys it obeys. No process: lives move when the test says so."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from gripproxy.config import Config, ConfigError, load_config
from gripproxy.life import CONFIG_STATUS, Life
from gripproxy.reload import Reload, adopt, load_again, needs_restart


class Child:
    """A process that is only a name and a life."""

    def __init__(self, name: str, *, trial: bool = False) -> None:
        self.name = name
        self.life = Life(10.0, 0.0, trial=trial)

    def serve(self) -> Child:
        self.life.act(0.0)
        self.life.started(0.0)
        self.life.heard(0.0, ready=True)
        return self

    def fail(self, status: int) -> None:
        self.life.act(0.0)
        self.life.started(0.0)
        self.life.ended(0.1, status)


class House:
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.new: list[Child] = []

    def succeed(self, old: Child) -> Child:
        self.done.append(f"succeed {old.name}")
        self.new.append(Child(old.name, trial=old.name != "handler"))
        return self.new[-1]

    def retire(self, old: Child) -> None:
        self.done.append(f"retire {old.name}")

    def end(self, old: Child) -> None:
        self.done.append(f"end {old.name}")
        old.life.stop(1.0, 2.0)

    def changed(self, new: Child, old: Child) -> None:
        self.done.append(f"changed {new.name}")

    def take(self) -> list[str]:
        done, self.done = self.done, []
        return done


@pytest.fixture
def house() -> House:
    return House()


def workers(count: int) -> list[Child]:
    return [Child(f"worker {number}").serve() for number in range(1, count + 1)]


class TestOrder:
    def test_one_worker_after_the_other(self, house: House) -> None:
        reload = Reload(house, workers(2))
        assert not reload.advance()
        assert not reload.advance()
        assert house.take() == ["succeed worker 1"]
        house.new[0].serve()
        assert not reload.advance()
        assert house.take() == ["retire worker 1", "changed worker 1", "succeed worker 2"]
        house.new[1].serve()
        assert reload.advance()
        assert house.take() == ["retire worker 2", "changed worker 2"]
        assert reload.failure == ""

    def test_the_handler_ends_before_its_successor_starts(self, house: House) -> None:
        handler = Child("handler").serve()
        reload = Reload(house, workers(1), handler)
        reload.advance()
        house.new[0].serve()
        assert not reload.advance()
        assert not reload.advance()
        assert house.take() == ["succeed worker 1", "retire worker 1", "changed worker 1", "end handler"]
        handler.life.ended(2.0, 0)
        assert not reload.advance()
        assert not reload.advance()
        assert house.take() == ["succeed handler"]
        house.new[1].serve()
        assert reload.advance()
        assert house.take() == ["changed handler"]

    def test_without_workers_there_is_the_handler(self, house: House) -> None:
        assert not Reload(house, [], Child("handler").serve()).advance()
        assert house.take() == ["end handler"]

    def test_nothing_at_all(self, house: House) -> None:
        assert Reload(house, []).advance()

    def test_a_successor_that_cannot_start_ends_it_and_nobody_retires(self, house: House) -> None:
        reload = Reload(house, workers(2))
        reload.advance()
        house.new[0].fail(CONFIG_STATUS)
        assert reload.advance()
        assert house.take() == ["succeed worker 1"]
        assert reload.failure == (
            "worker 1 could not be started: it ended with status 2: its configuration is wrong; the old worker 1 goes "
            "on"
        )

    def test_a_successor_gets_another_try(self, house: House) -> None:
        reload = Reload(house, workers(1))
        reload.advance()
        house.new[0].fail(1)
        assert not reload.advance()
        life = house.new[0].life
        life.act(1.0)
        life.started(1.0)
        life.heard(1.5, ready=True)
        assert reload.advance()
        assert reload.failure == ""


class TestConfig:
    def load(self, folder: pathlib.Path, text: str) -> Config:
        path = folder / "g.conf"
        path.write_text(text)
        (folder / "routes").write_text("* test\n")
        return load_config(str(path), port="8000", log_level="3")

    def test_the_files_are_read_again_with_the_same_command_line(self, tmp_path: pathlib.Path) -> None:
        config = self.load(tmp_path, "[proxy]\nsig_iss=one\n")
        (tmp_path / "g.conf").write_text("[proxy]\nsig_iss=two\n")
        fresh, reading = load_again(config)
        assert reading.data == b"* test\n"
        assert (config.proxy.sig_iss, fresh.proxy.sig_iss) == ("one", "two")
        assert fresh.overrides == config.overrides
        assert fresh.runner.http_port == ("8000",)

    def test_an_error_has_file_and_line(self, tmp_path: pathlib.Path) -> None:
        config = self.load(tmp_path, "")
        (tmp_path / "g.conf").write_text("[proxy]\nconnect_timeout=soon\n")
        with pytest.raises(ConfigError, match=r"g\.conf:2: connect_timeout"):
            load_again(config)

    def test_a_routes_file_that_is_gone_is_an_error(self, tmp_path: pathlib.Path) -> None:
        config = self.load(tmp_path, "")
        (tmp_path / "routes").unlink()
        with pytest.raises(ConfigError, match="routes"):
            load_again(config)

    def test_what_only_a_restart_obeys(self, tmp_path: pathlib.Path) -> None:
        config = load_config(None)
        text = (
            "[global]\nrundir=/elsewhere\nipc_prefix=x-\n[runner]\nservices=proxy\nhttp_port=1\nhttps_ports=2\n"
            "local_ports=/s\nreload_spread=7\n[proxy]\nworkers=9\nsig_iss=me\n"
        )
        (tmp_path / "g.conf").write_text(text)
        (tmp_path / "routes").write_text("* test\n")
        fresh = load_config(str(tmp_path / "g.conf"))
        assert needs_restart(config, config) == []
        assert needs_restart(config, fresh) == [
            "[global] rundir",
            "[global] ipc_prefix",
            "[runner] services",
            "[runner] http_port",
            "[runner] https_ports",
            "[runner] local_ports",
            "[proxy] workers",
        ]
        adopted = adopt(config, fresh)
        assert needs_restart(config, adopted) == []
        assert (adopted.runner.reload_spread, adopted.proxy.sig_iss) == (7, "me")
        assert adopted.path == fresh.path
        assert dataclasses.replace(adopted.proxy, workers=9) == fresh.proxy
