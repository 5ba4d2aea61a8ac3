"""A worker and a handler that does not want it, as two versions meeting may be: it tries on, with pauses."""

from __future__ import annotations

import pathlib
import socket
import sys
import time

from tests.support.ports import free_port
from tests.support.service import running

TRIES = 6
LEAST = 0.3
"""Seconds that so many tries take at least, were each pause half of what it should be."""
PATIENCE = 40.0


def test_a_handler_that_hangs_up_at_once_is_asked_again_with_growing_pauses(tmp_path: pathlib.Path) -> None:
    port = free_port()
    config = tmp_path / "gripproxy.conf"
    config.write_text(f"[global]\nrundir={tmp_path}\n[runner]\nhttp_port=127.0.0.1:{port}\n")
    with socket.socket(socket.AF_UNIX) as handler:
        handler.bind(str(tmp_path / "pushpin-pipe"))
        handler.settimeout(PATIENCE)
        handler.listen()
        command = [sys.executable, "-m", "gripproxy", "worker", f"--config={config}", "--route=* test"]
        with running(command, port) as worker:
            handler.accept()[0].close()
            begun = time.monotonic()
            for _ in range(TRIES):
                handler.accept()[0].close()
            assert time.monotonic() - begun > LEAST
            assert worker.log.count("handler gone") <= TRIES + 1
