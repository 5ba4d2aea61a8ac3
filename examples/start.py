"""Start an example with one command: its backend, and gripproxy in front of it.

    python examples/start.py demo      (--help lists the others)

A backend is an ordinary web server. It learns from the environment where to listen (``PORT``) and where and with which
key to reach gripproxy (``GRIP_URL`` over HTTP, ``GRIP_ZMQ_URL`` over ZeroMQ); everything else is the example's own.
Ctrl-C ends both, gripproxy first, so that clients get a proper end of their response.

A command may also be a program that ends by itself, with a verdict: it is started when the hub answers, which it finds
by ``HUB_URL``, and its exit status is that of this command. Options unknown here are its own, as ``--seconds``.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import NoReturn

HERE = pathlib.Path(__file__).resolve().parent
START_TIMEOUT = 20.0  # seconds until both ports must answer
STOP_TIMEOUT = 10.0  # seconds until a process that was told to end is killed
PROGRAM = "the program"  # name of the one process that may end by itself

CONF = """\
[global]
rundir={folder}/run

[runner]
http_port={address}:{port}
log_level={log_level}

[proxy]
routesfile={folder}/routes
sig_iss=gripproxy
sig_key={key}

[handler]
push_in_spec=tcp://127.0.0.1:{pull_port}
push_in_sub_specs=tcp://127.0.0.1:{sub_port}
push_in_http_addr=127.0.0.1
push_in_http_port={control_port}
command_spec=tcp://127.0.0.1:{command_port}
"""

HUB_CONF = """
[hub]
store={folder}/events.db
hub_anonymous=all
ballast=0
"""

CALLBACKS_CONF = """\
hub_key={hub_key}
callback_allow=127.0.0.0/8
callback_pause=0.5
"""


@dataclasses.dataclass(frozen=True)
class Example:
    """How to start one backend, and what to tell the person who did."""

    command: tuple[str, ...]
    about: str
    target: str = ""
    """Properties of the route's target, each with its comma."""
    hub: bool = False
    """Whether there is a hub at /hub/, with a store in the temporary folder and without access control."""
    callbacks: bool = False
    """Whether the hub pushes to programs on this machine, whose owners have tokens; ``HUB_KEY`` signs them."""
    verdict: bool = False
    """Whether the command is no web server, but a program that ends by itself. Its exit status is the verdict."""


CHAT = """\
  in two windows        http://localhost:{port}/
  publish directly      curl http://localhost:{control_port}/publish -d \\
      '{{"items": [{{"channel": "{channel}", "formats": {{"ws-message": {{"content":
      "{{\\"kind\\": \\"chat\\", \\"name\\": \\"curl\\", \\"text\\": \\"hello\\"}}"}}}}}}]}}'"""

EXAMPLES = {
    "demo": Example(
        ("demo/app.py",),
        """\
  in a browser          http://localhost:{port}/
  a stream of events    curl -N http://localhost:{port}/events
  a long-poll           curl http://localhost:{port}/poll
  publish by the app    curl -d 'hello' http://localhost:{port}/publish
  publish directly      curl http://localhost:{control_port}/publish -d \\
      '{{"items": [{{"channel": "demo", "formats": {{"http-stream": {{"content": "data: hi\\n\\n"}}}}}}]}}'
  events with a store   http://localhost:{port}/hub.html
  the same in a shell   export GRIPPROXY_HUB_URL=http://localhost:{port}/hub
                        .venv/bin/gripproxy hub topics make fruit
                        .venv/bin/gripproxy hub publish fruit apple
                        .venv/bin/gripproxy hub follow fruit --after 0""",
        hub=True,
    ),
    "flask": Example(
        ("flask_app/app.py",),
        """\
  in a browser          http://localhost:{port}/
  a stream of lines     curl -N http://localhost:{port}/lines
  a stream of events    curl -N http://localhost:{port}/events
  a long-poll           curl http://localhost:{port}/poll
  publish over HTTP     curl -d 'hello' http://localhost:{port}/publish/http
  publish over ZeroMQ   curl -d 'hello' http://localhost:{port}/publish/zmq""",
    ),
    "django": Example(
        ("django_app/manage.py", "runserver", "--noreload", "127.0.0.1:{backend_port}"),
        """\
  in a browser          http://localhost:{port}/
  a stream of events    curl -N http://localhost:{port}/events
  a long-poll           curl http://localhost:{port}/poll
  publish               curl -d 'hello' http://localhost:{port}/publish""",
    ),
    "chat-django": Example(
        ("chat_django/manage.py", "runserver", "--noreload", "127.0.0.1:{backend_port}"),
        """\
  in two windows        http://localhost:{port}/
  in a shell            curl -c ann -d name=Ann http://localhost:{port}/join
                        curl -b ann -N http://localhost:{port}/rooms/kitchen/events
                        curl -b ann -N http://localhost:{port}/rooms/garden/events
                        curl -c bob -d name=Bob http://localhost:{port}/join
                        curl -b bob -d text=hello http://localhost:{port}/rooms/kitchen/say
  Ann is thrown out     curl -b bob -d name=Ann http://localhost:{port}/rooms/kitchen/throw-out
  and stays here        curl -b bob -d text=hello http://localhost:{port}/rooms/garden/say""",
    ),
    "reliable": Example(
        ("reliable/app.py",),
        """\
  in a browser          http://localhost:{port}/
  post a message        curl -d 'hello' http://localhost:{port}/messages
  server-sent events    curl -N http://localhost:{port}/events
  a long-poll           curl 'http://localhost:{port}/poll?after=0'
  a WebSocket           ws://localhost:{port}/ws
  let a process die     kill -9 its id, which stands in the log above, and post on""",
        target=",over_http",
    ),
    "news": Example(
        ("news/app.py",),
        """\
  in a browser          http://localhost:{port}/
  publish a line        curl -d 'hello' http://localhost:{port}/publish
  lose pushes           curl -X POST http://localhost:{port}/readers/one/lossy
  switch one off        curl -X POST http://localhost:{port}/readers/one/off
  and on again          curl -X POST http://localhost:{port}/readers/one/on
  all figures           curl http://localhost:{port}/state
  the hub in a shell    export GRIPPROXY_HUB_URL=http://localhost:{port}/hub
                        .venv/bin/gripproxy hub follow news --after 0""",
        hub=True,
        callbacks=True,
    ),
    "watch": Example(
        ("watch/app.py",),
        """\
  in a browser          http://localhost:{port}/
  change a value        curl -X PUT -H 'Content-Type: text/plain' -d ripe \\
      http://localhost:{port}/hub/topics/table/keys/apple
  delete it             curl -X DELETE http://localhost:{port}/hub/topics/table/keys/apple
  watch it              curl -N http://localhost:{port}/hub/topics/table/watch
  the whole table       curl http://localhost:{port}/hub/topics/table/snapshot
  the hub in a shell    export GRIPPROXY_HUB_URL=http://localhost:{port}/hub
                        .venv/bin/gripproxy hub follow table --after 0""",
        hub=True,
    ),
    "sharded-cache": Example(
        ("sharded_cache/run.py",),
        """\
Cache servers of two kinds have the keys of a topic at http://localhost:{port}/hub, and an auto-sharder moves ranges of
keys between them. One kind drops a key when it gets the message that it has changed; the other one watches.""",
        hub=True,
        verdict=True,
    ),
    "work-queues": Example(
        ("work_queues/run.py",),
        """\
Releases are brought to twelve machines by three crews of workers that die and stand still: two take the changes of
the desired state for steps of a queue, and acknowledge first or last; the third one watches desired and actual state.
  the hub in a shell    export GRIPPROXY_HUB_URL=http://localhost:{port}/hub
                        .venv/bin/gripproxy hub follow actual-watch --after 0""",
        hub=True,
        verdict=True,
    ),
    "replica": Example(
        ("replica/run.py",),
        """\
Groups and documents are in a topic at http://localhost:{port}/hub, and two replicas of it are applied by workers in
parallel. One consumes a stream of events, the other one watches. Readers look at both for a state that never was.""",
        hub=True,
        verdict=True,
    ),
    "fan-out": Example(
        ("fan_out/run.py",),
        """\
The stock of a shop's articles goes to a broker and to the hub. First a consumer of each is away for longer than events
are retained; then one article changes faster than its changes can be worked off.
  the hub in a shell    export GRIPPROXY_HUB_URL=http://localhost:{port}/hub
                        .venv/bin/gripproxy hub snapshot stock""",
        hub=True,
        verdict=True,
    ),
    "chat-express": Example(("chat_express/app.mjs",), CHAT.replace("{channel}", "chat-express"), target=",over_http"),
    "chat-python": Example(("chat_python/app.py",), CHAT.replace("{channel}", "chat-python"), target=",over_http"),
}


class Stop(BaseException):
    """A signal asked us to end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one example until a signal comes or one of its processes ends; returns the exit status."""
    parser = argparse.ArgumentParser(description="Start an example behind gripproxy.")
    parser.add_argument("example", choices=sorted(EXAMPLES))
    parser.add_argument("--address", default="127.0.0.1", help="where clients connect (default %(default)s)")
    parser.add_argument("--port", type=int, default=7999, help="port for clients (default %(default)s)")
    parser.add_argument("--control-port", type=int, default=5561, help="HTTP port for publishers (default %(default)s)")
    parser.add_argument("--pull-port", type=int, default=5560, help="ZeroMQ PULL port (default %(default)s)")
    parser.add_argument("--sub-port", type=int, default=5562, help="ZeroMQ SUB port (default %(default)s)")
    parser.add_argument(
        "--command-port", type=int, default=5563, help="port of the command socket (default %(default)s)"
    )
    parser.add_argument("--backend-port", type=int, default=8000, help="port of the backend (default %(default)s)")
    known, others = parser.parse_known_args(argv)
    options = vars(known)
    example = EXAMPLES[options.pop("example")]
    if others and not example.verdict:
        parser.error(f"unrecognized arguments: {' '.join(others)}")

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _stop)
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="gripproxy-") as folder:
            try:
                environment = _configure(example, options, pathlib.Path(folder))
                command = _command(example, options)
                if not example.verdict:
                    _spawn("the backend", command, environment, children)
                    _wait_for_port("the backend", children["the backend"], int(options["backend_port"]))
                _start_gripproxy(example, options, pathlib.Path(folder), environment, children)
                heading = "" if example.verdict else "Running. Try:\n\n"
                print(f"\n{heading}{example.about.format(**options)}\n\nCtrl-C ends it.\n", flush=True)
                if example.verdict:
                    _spawn(PROGRAM, [*command, *others], environment, children)
                return _wait(children)
            finally:
                for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(name, signal.SIG_IGN)
                for child in reversed(children.values()):
                    _end(child)
    except Stop:
        print("Ended.", flush=True)
        return 0
    except Failed as failed:
        print(f"examples/start.py: {failed}", file=sys.stderr)
        return 1


class Failed(Exception):
    """A process did not start, or ended by itself."""


def _stop(_number: int, _frame: object) -> NoReturn:
    raise Stop


def _configure(example: Example, options: dict[str, int | str], folder: pathlib.Path) -> dict[str, str]:
    """Write config and routes files; returns the environment of the example's command."""
    for name in ("port", "control_port") if example.verdict else ("port", "control_port", "backend_port"):
        _check_free(int(options[name]), "--" + name.replace("_", "-"))
    key = secrets.token_urlsafe(32)  # of this run: no other process can sign requests to the backend with it
    hub_key = secrets.token_urlsafe(32)
    conf = CONF + (HUB_CONF if example.hub else "") + (CALLBACKS_CONF if example.callbacks else "")
    # Lines of each request would bury those of the program.
    levels = {"log_level": 1 if example.verdict else 2}
    (folder / "gripproxy.conf").write_text(conf.format(folder=folder, key=key, hub_key=hub_key, **levels, **options))
    routes = "" if example.verdict else f"* 127.0.0.1:{options['backend_port']}{example.target}\n"
    (folder / "routes").write_text(routes + "*,path_beg=/hub/ hub\n" if example.hub else routes)
    environment = os.environ | {
        "PORT": str(options["backend_port"]),
        "GRIP_URL": f"http://127.0.0.1:{options['control_port']}?iss=gripproxy&key={key}",
        "GRIP_ZMQ_URL": f"tcp://127.0.0.1:{options['command_port']}",
    }
    if example.hub:
        environment |= {"HUB_URL": f"http://127.0.0.1:{options['port']}/hub"}
    if example.callbacks:
        environment |= {"HUB_KEY": hub_key}
    if example.verdict:
        environment |= {"PYTHONUNBUFFERED": "1"}  # each line is shown when it is printed, in a pipe too
    return environment


def _command(example: Example, options: dict[str, int | str]) -> list[str]:
    script, *arguments = [part.format(**options) for part in example.command]
    program = "node" if script.endswith(".mjs") else sys.executable
    if shutil.which(program) is None:
        raise Failed(f"{program} not found: apt-get install nodejs npm")
    return [program, str(HERE / script), *arguments]


def _start_gripproxy(
    example: Example,
    options: dict[str, int | str],
    folder: pathlib.Path,
    environment: dict[str, str],
    children: dict[str, subprocess.Popen[bytes]],
) -> None:
    command = [sys.executable, "-m", "gripproxy", "--config", str(folder / "gripproxy.conf")]
    _spawn("gripproxy", command, environment, children)
    for port in ("port", "control_port"):
        _wait_for_port("gripproxy", children["gripproxy"], int(options[port]))
    if example.hub:
        _wait_for_hub(f"http://127.0.0.1:{options['port']}/hub/topics")


def _spawn(
    name: str, command: list[str], environment: dict[str, str], children: dict[str, subprocess.Popen[bytes]]
) -> None:
    # A session of its own: Ctrl-C in the terminal then reaches only this process, which ends the others in order.
    children[name] = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)


def _check_free(port: int, option: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise Failed(f"port {port} cannot be used ({error.strerror}): choose another with {option}") from error


def _wait_for_port(name: str, child: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + START_TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise Failed(f"{name} did not answer on port {port} within {START_TIMEOUT:.0f} s") from error
        try:
            raise Failed(f"{name} did not start (exit status {child.wait(timeout=0.1)}): its message stands above")
        except subprocess.TimeoutExpired:
            continue


def _wait_for_hub(url: str) -> None:
    """Wait until the hub answers; until then gripproxy answers for it, with 503."""
    end = time.monotonic() + START_TIMEOUT
    while True:
        try:
            urllib.request.urlopen(url, timeout=START_TIMEOUT).close()
            return
        except urllib.error.HTTPError as error:
            error.close()
            if time.monotonic() > end:
                raise Failed(f"the hub did not answer within {START_TIMEOUT:.0f} s: {url} is {error.code}") from error
        time.sleep(0.1)


def _wait(children: dict[str, subprocess.Popen[bytes]]) -> int:
    """Wait until a process ends; returns the exit status of a program. No other may end."""
    pid, status = os.wait()
    for name, child in children.items():
        if child.pid == pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            if name == PROGRAM and child.returncode >= 0:
                return child.returncode
            raise Failed(f"{name} ended by itself with exit status {child.returncode}")
    raise Failed(f"an unknown process {pid} ended")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


if __name__ == "__main__":
    raise SystemExit(main())
