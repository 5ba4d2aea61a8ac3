"""The runner's children before they are started: commands, names, words for exit statuses."""

from __future__ import annotations

import pathlib
import sys
from collections import Counter

import pytest

from gripproxy.config import config_argv, load_config
from gripproxy.process.handover import HANDOVER_VARIABLE, Handover
from gripproxy.process.listening_sockets import ListeningSocket
from gripproxy.process.runner_messages import Retire
from gripproxy.runner.child_process import ChildProcess, how_ended, make_processes
from gripproxy.runner.lifecycle import Lifecycle
from gripproxy.runner.service import Replacement, Service, default_command, services_of


def conf(folder: pathlib.Path, text: str) -> str:
    path = folder / "gripproxy.conf"
    path.write_text(f"[global]\nrundir={folder}/run\n{text}")
    return str(path)


def processes(folder: pathlib.Path, text: str, workers: int) -> list[ChildProcess]:
    services = services_of(load_config(conf(folder, f"[proxy]\nworkers={workers}\n{text}")), [])
    listeners: list[list[ListeningSocket]] = [[] for _ in range(workers)]
    return make_processes(services, listeners, 10.0, 0.0)


def names(folder: pathlib.Path, text: str, workers: int) -> list[str]:
    return [process.name for process in processes(folder, text, workers)]


def test_children_get_their_number_and_the_same_configuration(tmp_path: pathlib.Path) -> None:
    config = load_config(conf(tmp_path, ""), port="7000", routes=["* localhost:80"])
    command = default_command("worker", 3, config_argv(config))
    assert command[:6] == [sys.executable, "-P", "-m", "gripproxy", "worker", "--number=3"]
    assert command[6:] == [f"--config={tmp_path}/gripproxy.conf", "--port=7000", "--route=* localhost:80"]


def test_the_handler_has_no_number() -> None:
    assert default_command("handler", 0, ["--id=1"])[4:] == ["handler", "--id=1"]


@pytest.mark.parametrize(
    ("status", "field"),
    [(0, {"status": 0}), (2, {"status": 2}), (-9, {"signal": "SIGKILL"}), (-63, {"signal": 63})],
)
def test_exit_statuses_as_fields(status: int, field: dict[str, object]) -> None:
    assert how_ended(status) == field


def test_the_handler_is_started_before_the_workers(tmp_path: pathlib.Path) -> None:
    assert names(tmp_path, "", 2) == ["handler", "worker 1", "worker 2"]


def test_services_decides_which_children_there_are(tmp_path: pathlib.Path) -> None:
    assert names(tmp_path, "[runner]\nservices=condure,zurl,pushpin-proxy\n", 2) == ["worker 1", "worker 2"]
    assert names(tmp_path, "[runner]\nservices=handler\n", 1) == ["handler"]


def test_a_third_service_is_one_more_record() -> None:
    toy = Service("toy", lambda number: ["toy", str(number)], count=2)
    assert [process.name for process in make_processes([toy], [], 10.0, 0.0)] == ["toy", "toy"]
    assert toy.replacement is Replacement.NONE
    (one,) = make_processes([Service("toy", lambda _: [], numbered=True)], [], 10.0, 0.0)
    assert one.name == "toy 1"


def test_commands_of_the_services(tmp_path: pathlib.Path) -> None:
    handler, worker, hub = services_of(load_config(conf(tmp_path, "")), ["--x"])
    assert handler.command(1)[4:] == ["handler", "--x"]
    assert worker.command(3)[4:] == ["worker", "--number=3", "--x"]
    assert hub.command(1)[4:] == ["hub", "--x"]


def test_the_hub_runs_if_it_has_a_store(tmp_path: pathlib.Path) -> None:
    text = "[hub]\nstore=hub.db\nhub_anonymous=all\n"
    for services, counts in (("", [1, 3, 1]), ("[runner]\nservices=handler\n", [1, 0, 1])):
        config = load_config(conf(tmp_path, f"{services}[proxy]\nworkers=3\n{text}"))
        assert [service.count for service in services_of(config, [])] == counts
    assert services_of(load_config(None), [])[2].count == 0


def test_the_hub_ends_between_workers_and_handler(tmp_path: pathlib.Path) -> None:
    services = sorted(services_of(load_config(None), []), key=lambda service: service.stop_order)
    assert [service.kind for service in services] == ["worker", "hub", "handler"]
    assert services[1].replacement is Replacement.EXCLUSIVE


def test_a_successor_does_the_same_with_the_same_sockets() -> None:
    service = Service("worker", lambda number: [str(number)], numbered=True, listens=True)
    listeners: list[ListeningSocket] = []
    (worker,) = make_processes([service], [listeners], 10.0, 0.0)
    new = worker.successor(Lifecycle(10.0, 0.0, trial=True))
    assert (new.name, new.number, new.pid) == ("worker 1", 1, 0)
    assert new.service is service
    assert new._listeners is listeners
    assert new.lifecycle is not worker.lifecycle


def test_nothing_is_sent_to_what_is_not_there(tmp_path: pathlib.Path) -> None:
    (handler,) = processes(tmp_path, "[runner]\nservices=handler\n", 1)
    handler.send(Retire(1.0, 1.0))
    handler.signal(15)
    assert not handler.offer(1, 0)
    assert (handler.identity, handler.read(), handler.wait()) == ("handler (process 0)", b"", None)


class Printing:
    """A process that appends its handover to a file and ends."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.config = load_config(conf(folder, "[runner]\nshutdown_timeout=7\n"))
        self.out = folder / "out"
        script = f"import os; open({str(self.out)!r}, 'a').write(os.environ[{HANDOVER_VARIABLE!r}] + '\\n')"
        service = Service("handler", lambda _: [sys.executable, "-c", script])
        self.process = ChildProcess(service, 1, [], Lifecycle(10, 0.0))

    def run(self, retiring: dict[str, int] | None = None) -> Handover:
        process = self.process
        process.start(self.config, retiring)
        assert process.popen is not None
        process.popen.wait(30)
        assert process.wait() == 0
        assert process.sock is not None
        process.sock.close()
        return Handover.decode(self.out.read_text().splitlines()[-1])


def test_a_child_gets_the_number_of_retiring_processes(tmp_path: pathlib.Path) -> None:
    handover = Printing(tmp_path).run(Counter({"worker": 2}))
    assert handover.retiring == {"worker": 2}
    assert (handover.beat_timeout, handover.shutdown_timeout) == (10.0, 7.0)
    assert handover.owned is not None
    assert handover.owned.rundir == f"{tmp_path}/run"


def test_a_child_gets_the_number_of_its_starts_before(tmp_path: pathlib.Path) -> None:
    printing = Printing(tmp_path)
    assert [printing.run().restarts for _ in range(3)] == [0, 1, 2]


def test_a_command_that_is_not_there(tmp_path: pathlib.Path) -> None:
    process = ChildProcess(Service("toy", lambda _: [str(tmp_path / "missing")]), 1, [], Lifecycle(10, 0.0))
    with pytest.raises(FileNotFoundError):
        process.start(load_config(conf(tmp_path, "")))
    assert not process.alive
    assert process.read() == b""
