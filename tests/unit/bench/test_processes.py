"""Processes: what is started ends with who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

PARENT = """
import os, subprocess, sys
from bench.processes import dying_with_parent

child = subprocess.Popen(["sleep", "600"], preexec_fn=dying_with_parent(os.getpid()))
print(child.pid, flush=True)
child.wait()
"""


def test_a_process_ends_with_its_parent_even_if_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            # The child has the pipe too: its end is that of the pipe.
            assert parent.communicate(timeout=30)[0] == b""
        finally:
            try:
                signal.pidfd_send_signal(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(child)
