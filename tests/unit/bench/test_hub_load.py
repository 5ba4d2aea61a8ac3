"""Load: bytes of requests with their places, and a reader of history that follows links and keeps to its rate."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import threading
from collections.abc import Iterator, Mapping

import pytest

from bench.hub_load import KEY, SIZE, History, Posted, batch, request
from bench.latencies import Latencies
from bench.programs import BenchError


def test_a_request_has_the_length_of_its_body() -> None:
    head, _, body = request("/topics/t/events", b"x" * 7).partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"POST /topics/t/events HTTP/1.1"
    assert b"Content-Type: text/plain" in head
    assert b"Content-Length: 7" in head
    assert body == b"x" * 7


@pytest.mark.parametrize("keys", [False, True])
def test_a_batch_has_a_place_for_each_key(keys: bool) -> None:
    events = json.loads(batch(3, keys=keys))["events"]
    assert [len(event["data"]) for event in events] == [SIZE] * 3
    assert [event.get("key") for event in events] == ([KEY] * 3 if keys else [None] * 3)


def test_the_rate_of_a_poster_is_what_was_taken_in_its_time() -> None:
    posted = Posted(taken=500, refused=1, start=10_000_000_000, end=10_250_000_000, latencies=Latencies())
    assert posted.rate == pytest.approx(2000)


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(*parts: bytes) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks


@contextlib.contextmanager
def serving(path: pathlib.Path, answers: Mapping[str, bytes]) -> Iterator[list[str]]:
    """A server on a Unix socket, which closes a connection after an answer that it does not know."""
    asked: list[str] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as lines:
                    while first := lines.readline():
                        while lines.readline() not in (b"\r\n", b""):
                            pass
                        asked.append(first.split()[1].decode())
                        reply = answers[asked[-1]]
                        connection.sendall(reply)
                        if reply.endswith(b"cut"):
                            break

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
    assert not thread.is_alive()


def test_links_are_followed_relative_to_the_page_that_has_them(tmp_path: pathlib.Path) -> None:
    answers = {
        "/topics/t/events": answer(b"{}\n{}\n", "Grip-Link: <../../follow/a>; rel=next"),
        "/follow/a": answer(b"{}\n", "Grip-Link: <b>; rel=next"),
        "/follow/b": answer(b"{}\n"),
    }
    with serving(tmp_path / "s", answers) as asked:
        assert History(str(tmp_path / "s"), "/topics/t/events").read().events == 4
    assert asked == list(answers)


def test_a_hold_ends_the_history(tmp_path: pathlib.Path) -> None:
    held = answer(b"{}\n", "Grip-Hold: stream", "Grip-Link: </more>; rel=next; timeout=60")
    with serving(tmp_path / "s", {"/h": held}) as asked:
        assert History(str(tmp_path / "s"), "/h").read().events == 1
    assert asked == ["/h"]


def test_lines_are_counted_without_the_frames_of_chunks(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path / "s", {"/h": chunked(b"{}\n{", b"}", b"\n")}):
        assert History(str(tmp_path / "s"), "/h").read().events == 2


def test_a_reader_with_a_time_begins_again_until_it_is_over(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path / "s", {"/h": answer(b"{}\n" * 10)}) as asked:
        read = History(str(tmp_path / "s"), "/h").read(rate=1000, seconds=0.05)
    assert read.seconds >= 0.05
    assert read.events == 10 * len(asked)


def test_a_refusal_is_an_error(tmp_path: pathlib.Path) -> None:
    with (
        serving(tmp_path / "s", {"/h": answer(b"", status="410 Gone")}),
        pytest.raises(BenchError, match="answered with 410: /h"),
    ):
        History(str(tmp_path / "s"), "/h").read()


def test_an_answer_that_is_cut_off_is_an_error(tmp_path: pathlib.Path) -> None:
    with (
        serving(tmp_path / "s", {"/h": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut"}),
        pytest.raises(BenchError, match="in the middle of an answer: /h"),
    ):
        History(str(tmp_path / "s"), "/h").read()
