"""Start two services that follow each other's state; one that dies is started again. Ctrl-C ends both.

python examples/two_services/run.py [--ports LEFT RIGHT]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import NoReturn

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("left", "right")
PAUSE = 1.0  # seconds until one that has ended is started again
STOP_TIMEOUT = 5.0  # seconds until one that was told to end is killed

ABOUT = """
Running. Try:

  set a value           curl -X PUT -d blue http://127.0.0.1:{left}/state/colour
  see it in the other   curl http://127.0.0.1:{right}/
  let one die           kill -9 its "pid", which stands there
  and set another       curl -X PUT -d red http://127.0.0.1:{left}/state/colour

Ctrl-C ends both.
"""


class Stop(BaseException):
    """A signal asked us to end."""


def stop(_number: int, _frame: object) -> NoReturn:
    """End the program by an exception."""
    raise Stop


def start(ports: dict[str, int], name: str) -> subprocess.Popen[bytes]:
    """Start one of the services."""
    other = next(each for each in NAMES if each != name)
    environment = os.environ | {
        "NAME": name,
        "PORT": str(ports[name]),
        "PEER": f"http://127.0.0.1:{ports[other]}",
    }
    # A session of its own: Ctrl-C in the terminal then reaches only this process, which ends the others.
    command = [sys.executable, str(HERE / "service.py")]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)


def main() -> int:
    """Run both until a signal comes; returns the exit status."""
    parser = argparse.ArgumentParser(description="Start two services that follow each other's state.")
    parser.add_argument("--ports", type=int, nargs=2, default=[8001, 8002], help="of the services (default 8001 8002)")
    ports = dict(zip(NAMES, parser.parse_args().ports, strict=True))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    services: dict[str, subprocess.Popen[bytes]] = {}
    try:
        services |= {name: start(ports, name) for name in NAMES}
        print(ABOUT.format(**ports), flush=True)
        while True:
            pid, _ = os.wait()
            name = next(name for name, service in services.items() if service.pid == pid)
            print(f"{name} has ended, and is started again", flush=True)
            time.sleep(PAUSE)
            services[name] = start(ports, name)
    except Stop:
        return 0
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for service in services.values():
            service.terminate()
        for service in services.values():
            try:
                service.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


if __name__ == "__main__":
    raise SystemExit(main())
