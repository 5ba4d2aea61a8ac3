"""Everything of a run that is a process: the service, its backends, publishers, and the relay in its pipe."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from tests.faults.history import History, Record, read_diary
from tests.faults.publisher import item
from tests.faults.truth import ChannelLog
from tests.support.ports import free_ports
from tests.support.service import ROOT, Service, alive, descendants

__all__ = ["PATIENCE", "RETIRE_TIME", "STREAM_BUFFER", "Plan", "Stage"]

PATIENCE: Final = 60.0
"""Seconds for anything that has to happen, on a machine that does much else."""

STREAM_BUFFER: Final = 65_536
"""``stream_buffer_max`` of the service."""

RETIRE_TIME: Final = 3.5
"""Seconds in which a worker that was replaced lets its clients go: reload_hold_time, reload_spread, and some more."""

WAYS: Final = ("http", "pull", "sub", "rep")
"""The ways in for publishers."""


class Plan:
    """What a stage has: ``workers``, names of ``backends`` (the last is the one nobody hurts), and how they behave.

    ``link`` seconds until a stream's link is fetched without traffic; ``window`` the share of answers that backends
    delay; ``beat`` is process_beat_timeout; ``update`` is update_on_first_subscription; ``mutant`` names what is broken
    on purpose.
    """

    def __init__(
        self,
        seed: int,
        workers: int = 2,
        backends: tuple[str, ...] = ("a", "b", "calm"),
        link: float = 3.0,
        window: float = 0.3,
        beat: float = 5.0,
        mutant: str = "",
        update: bool = True,
    ) -> None:
        self.seed = seed
        self.workers = workers
        self.backends = backends
        self.link = link
        self.window = window
        self.beat = beat
        self.mutant = mutant
        self.update = update


class Stage:
    """The running processes. ``folder`` takes their files; what they note is merged into ``history`` at the end."""

    def __init__(self, folder: pathlib.Path, plan: Plan, history: History) -> None:
        self.folder = folder
        self.plan = plan
        self.history = history
        self.truth = folder / "truth"
        self.truth.mkdir()
        names = ("client", "control", *WAYS[1:], *plan.backends)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.ports["http"] = self.ports["control"]
        self.backends: dict[str, Service] = {}
        self.publishers: dict[str, Service] = {}
        self.service: Service | None = None
        self.relay: subprocess.Popen[str] | None = None
        self.trouble: list[str] = []
        """What must not be in the log of a process."""
        self._publisher_arguments: dict[str, tuple[str, list[str], float, float]] = {}
        self._lives = 0
        self._read = 0
        self._pids: dict[str, int] = {}

    # --- the service

    @property
    def config(self) -> pathlib.Path:
        """The config file."""
        return self.folder / "gripproxy.conf"

    def write_routes(self, remark: str = "") -> None:
        """Write the routes anew, at once; ``remark`` makes the file another one that means the same."""
        lines = [f"# {remark}"]
        for name in self.plan.backends:
            lines.append(f"*,path_beg=/{name}/ 127.0.0.1:{self.ports[name]},over_http")
            lines.append(f"*,path_beg=/{name}/direct 127.0.0.1:{self.ports[name]}")
        fresh = self.folder / "routes.new"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.folder / "routes")

    def start(self) -> None:
        """Start everything but the publishers, and return when the service is ready."""
        ports = self.ports
        self.config.write_text(
            f"[global]\nrundir={self.folder}/run\n"
            f"[runner]\nhttp_port=127.0.0.1:{ports['client']}\nprocess_beat_timeout={self.plan.beat:g}\n"
            "shutdown_timeout=1\nreload_hold_time=1\nreload_spread=2\nlog_level=runner:2,worker:1,handler:1\n"
            f"[proxy]\nworkers={self.plan.workers}\nroutesfile=routes\nsig_key=changeme\n"
            f"ws_recover_interval={self.plan.link:g}\n"
            f"connect_timeout=2\nresponse_timeout=3\nbackend_body_timeout=3\nstream_buffer_max={STREAM_BUFFER}\n"
            f"[handler]\npush_in_http_port={ports['control']}\npush_in_spec=tcp://127.0.0.1:{ports['pull']}\n"
            f"push_in_sub_specs=tcp://127.0.0.1:{ports['sub']}\ncommand_spec=tcp://127.0.0.1:{ports['rep']}\n"
            f"id_cache_ttl=60\nmessage_wait=1000\nupdate_on_first_subscription={str(self.plan.update).lower()}\n"
        )
        self.write_routes()
        (self.folder / "run").mkdir(mode=0o700, exist_ok=True)
        for name in self.plan.backends:
            self.start_backend(name)
        self.relay = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.relay", str(self.folder / "pipe"), f"{self.folder}/run/pushpin-pipe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.relay.stdout is not None
        assert self.relay.stdout.readline() == "relaying\n"
        self.start_service()
        self.wait_ready()
        for name in self.plan.backends:
            self.backends[name].wait_for_port(ports[name])
        self.watch()
        self.history.add("stage", "phase", "serving")

    def start_service(self) -> None:
        """Start the service, as its supervisor."""
        own = [f"--relay={self.folder / 'pipe'}", *([f"--mutant={self.plan.mutant}"] if self.plan.mutant else [])]
        self.service = Service([sys.executable, "-m", "tests.faults.launcher", *own, "--", f"--config={self.config}"])
        self._lives += 1
        self._read = 0
        self._pids = {}

    def wait_ready(self) -> None:
        """Return when the service serves; start it again if it cannot yet, because the one before still ends."""
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self.service is not None
            try:
                self.service.wait_for_log(r"\[runner\] ready")
                return
            except AssertionError:
                if self.service.process.poll() is None or time.monotonic() > deadline:
                    raise
                self.watch()
                self.start_service()

    @property
    def service_log(self) -> str:
        """The end of what the service has logged."""
        return self.service.log[-6000:] if self.service is not None else ""

    def watch(self) -> None:
        """Look at what the service has logged since the last time: starts of processes, and trouble."""
        if self.service is None:
            return
        log = self.service.log
        fresh, self._read = log[self._read :], len(log)
        for name, pid in re.findall(r'process started: name="?(worker \d+|handler)"? pid=(\d+)', fresh):
            self._pids[name] = int(pid)
            self.history.add("service", "process", name, int(pid))
        if "Traceback" in fresh:
            self.trouble.append(fresh[-4000:])

    def children(self) -> dict[str, int]:
        """Return the processes of the service: id by name (``runner``, ``handler``, ``worker 1`` …)."""
        self.watch()
        found = {name: pid for name, pid in self._pids.items() if alive(pid)}
        if self.service is not None and alive(self.service.process.pid):
            found["runner"] = self.service.process.pid
        return found

    def sample_memory(self) -> None:
        """Note the memory of each process of the service, in KB.

        Without pages of files: how many processes share one changes while other tests run.
        """
        for name, pid in self.children().items():
            with contextlib.suppress(OSError):
                text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
                if found := re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", text, re.MULTILINE):
                    self.history.add("service", "memory", name, sum(map(int, found)))

    def order_relay(self, order: str) -> None:
        """Tell the relay what to do."""
        assert self.relay is not None
        assert self.relay.stdin is not None
        self.relay.stdin.write(order + "\n")
        self.relay.stdin.flush()

    def restart_service(self) -> None:
        """Start the service after its runner was killed, on the same ports, and return when it serves."""
        assert self.service is not None
        self.watch()
        self.service.process.wait()
        self.start_service()
        self.wait_ready()

    # --- backends and publishers

    def start_backend(self, name: str) -> None:
        """Start a backend, on its port."""
        plan = self.plan
        self._lives += 1
        calm = name == plan.backends[-1]
        self.backends[name] = self._run(
            "backend", name, f"--port={self.ports[name]}", f"--link={plan.link:g}",
            f"--window={0 if calm else plan.window:g}",
        )  # fmt: skip

    def start_publisher(self, name: str, way: str, channels: list[str], rate: float, mischief: float = 0.0) -> None:
        """Start a publisher of ``channels``, ``rate`` items a second; ``mischief`` is the share of odd ones."""
        self._publisher_arguments[name] = (way, channels, rate, mischief)
        self._lives += 1
        self.publishers[name] = self._run(
            "publisher", name, f"--way={way}", f"--port={self.ports[way]}", f"--channels={','.join(channels)}",
            f"--rate={rate:g}", f"--mischief={mischief:g}",
        )  # fmt: skip

    def restart_publisher(self, name: str) -> None:
        """Start a publisher that was killed; it goes on with its channels."""
        self.start_publisher(name, *self._publisher_arguments[name])

    def _run(self, module: str, name: str, *arguments: str) -> Service:
        return Service(
            [
                sys.executable,
                "-m",
                f"tests.faults.{module}",
                f"--name={name}",
                f"--truth={self.truth}",
                f"--diary={self.folder / f'{module}-{name}.jsonl'}",
                f"--seed={self.plan.seed * 1000 + self._lives}",
                *arguments,
            ]
        )

    def command_backend(self, name: str, form: str, seconds: float) -> bool:
        """Have a backend be in trouble; returns whether it could be told."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=2)
        try:
            connection.request("POST", "/fault", json.dumps({"form": form, "seconds": seconds}))
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def publish(self, channel: str) -> int:
        """Write and publish one item as its publisher would, who must not run; try until it is taken."""
        log = ChannelLog(self.truth, channel)
        log.refresh()
        number = log.append()
        log.close()
        self.history.add("stage", "wrote", channel, number)
        self.publish_again(channel, number)
        return number

    def publish_again(self, channel: str, number: int) -> None:
        """Publish an item that is written; try until it is taken."""
        body = json.dumps({"items": [item(channel, number)]})

        def post() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["control"], timeout=5)
            try:
                connection.request("POST", "/publish", body)
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False
            finally:
                connection.close()

        until(post, f"item {number} of {channel} is not taken")
        self.history.add("stage", "published", channel, number, "sent")

    def lengths(self, channels: list[str]) -> dict[str, int]:
        """Return the number of items of each channel."""
        return {channel: ChannelLog(self.truth, channel).refresh() for channel in channels}

    # --- the end

    def stop_publishers(self) -> None:
        """End the publishers between two items."""
        for publisher in self.publishers.values():
            self._look_at(publisher)
            publisher.stop()
        self.publishers.clear()

    def _look_at(self, service: Service) -> None:
        """Note what a process of ours should not have said."""
        if "Traceback" in service.log:
            self.trouble.append(f"{service.command}:\n{service.log[-4000:]}")

    def wait_for_intake(self) -> None:
        """Return when the service takes items."""

        def answers() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["control"], timeout=5)
            try:
                connection.request("GET", "/")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False
            finally:
                connection.close()

        until(answers, "the control port does not answer")

    def diaries(self) -> list[Record]:
        """Return what backends and publishers have noted."""
        return [record for path in sorted(self.folder.glob("*.jsonl")) for record in read_diary(path)]

    def close(self) -> None:
        """End everything, whatever its state."""
        self.watch()
        services = [self.service] if self.service is not None else []
        for service in [*services, *self.backends.values(), *self.publishers.values()]:
            for pid in descendants(service.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            with contextlib.suppress(FileNotFoundError):  # it was stopped before
                if service is not self.service:
                    self._look_at(service)
                service.stop()
        # Last: without it the service would take its pipe for broken.
        if self.relay is not None:
            assert self.relay.stdin is not None
            assert self.relay.stdout is not None
            self.relay.stdin.close()
            self.relay.stdout.close()
            self.relay.wait(PATIENCE)


def until(condition: Callable[[], Any], complaint: str, patience: float = PATIENCE) -> None:
    """Return when ``condition()`` is true; ask a few times a second. Fails with ``complaint`` after ``patience`` s."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.1)
