"""gripproxy.cli.reload: the client of the runner's admin socket."""

from __future__ import annotations

import pathlib
import select
import socket
import threading

import pytest

from gripproxy.cli import reload
from gripproxy.cli.reload import NotRunning, send_request


class TestSending:
    """The client against a runner whose answers the test sends."""

    def send(self, path: pathlib.Path, answers: bytes, *, wait: bool = True) -> tuple[str, list[str], bytes]:
        """Return the outcome, the progress, and the request that arrived."""
        progress: list[str] = []
        arrived: list[bytes] = []
        with socket.socket(socket.AF_UNIX) as runner:
            runner.bind(str(path))
            runner.listen()

            def serve() -> None:
                sock, _ = runner.accept()
                with sock:
                    arrived.append(sock.recv(100))
                    sock.sendall(answers)

            thread = threading.Thread(target=serve)
            thread.start()
            outcome = send_request(str(path), "reload", progress.append, wait=wait)
            thread.join()
        return outcome, progress, arrived[0]

    def test_done(self, tmp_path: pathlib.Path) -> None:
        assert self.send(tmp_path / "r", b"progress a\nprogress b c\ndone \n") == ("", ["a", "b c"], b"reload\n")

    def test_failed(self, tmp_path: pathlib.Path) -> None:
        assert self.send(tmp_path / "r", b"progress a\nfailed it was\n")[0] == "it was"

    def test_the_runner_ends_meanwhile(self, tmp_path: pathlib.Path) -> None:
        assert self.send(tmp_path / "r", b"progress a\n")[0] == "the runner ended"

    def test_not_to_wait(self, tmp_path: pathlib.Path) -> None:
        assert self.send(tmp_path / "r", b"progress a\nprogress b\n", wait=False)[:2] == ("", ["a"])
        assert self.send(tmp_path / "s", b"failed it was\n", wait=False)[0] == "it was"

    def test_nobody(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(NotRunning, match=f"no running gripproxy has its runtime files there .{tmp_path}/r."):
            send_request(str(tmp_path / "r"), "reload", lambda text: None)

    def test_a_runner_that_is_stopped(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reload, "ANSWER_TIME", 0.05)
        with socket.socket(socket.AF_UNIX) as runner:
            runner.bind(str(tmp_path / "r"))
            runner.listen()
            outcome = send_request(str(tmp_path / "r"), "reload", lambda text: None)
        assert outcome == "the runner does not answer within 0.05 s"

    def test_a_path_that_is_no_socket(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "r").write_text("")
        with pytest.raises(NotRunning, match="r/r: Not a directory"):
            send_request(str(tmp_path / "r" / "r"), "reload", lambda text: None)

    def test_a_reset_is_the_end_of_the_runner(self, tmp_path: pathlib.Path) -> None:
        with socket.socket(socket.AF_UNIX) as runner:
            runner.bind(str(tmp_path / "r"))
            runner.listen()

            def serve() -> None:
                sock, _ = runner.accept()
                select.select([sock], [], [])
                sock.close()  # with the request unread: a reset

            thread = threading.Thread(target=serve)
            thread.start()
            assert send_request(str(tmp_path / "r"), "reload", lambda text: None) == "the runner ended"
            thread.join()
