"""Clients and publishers: the load programs with their commands, and what they report."""

from __future__ import annotations

import pathlib
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from bench.latencies import Latencies
from bench.programs import BenchError, Program

__all__ = ["BROWSER", "QUIET", "Crowd", "Publisher", "Seen", "Sent"]

BROWSER = (
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "Accept-Language: en-GB,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br",
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Cookie: session=0123456789abcdef0123456789abcdef; theme=dark",
    "Cache-Control: no-cache",
    "Referer: http://bench.example/index.html",
    "Sec-Fetch-Mode: cors",
)
"""Headers as a browser sends them."""


QUIET = 30.0
"""Seconds without a message after which the rest is lost. Short ones would take a server on a busy machine, which only
thinks, for one that loses."""


TRIES, FEW = 3, 5
"""How often clients that were refused try again, and how many of them at a time."""


@dataclass(frozen=True)
class Seen:
    """What a crowd reports. Times are nanoseconds of the monotonic clock, as everywhere here."""

    held: int
    refused: int
    seconds: float
    """Since the command."""
    count: int
    """Marked messages, or answers."""
    reads: int
    bytes: int
    """Of messages and answers, with their frames."""
    first: int
    last: int
    cpu: float
    """Processor time of the clients since they were started, in seconds."""
    latencies: Latencies


class Crowd:
    """Many clients of one kind, in one process or several."""

    def __init__(
        self,
        programs: pathlib.Path,
        port: int,
        kind: str,
        path: str,
        *,
        headers: Sequence[str] = (),
        processes: int = 1,
        buffer: int = 0,
        width: int = 0,
        body: str = "",
        text: str = "",
    ) -> None:
        """``kind``: stream, poll, ws, plain or once; "#####" in ``path`` becomes each client's number.

        ``buffer``: bytes that the kernel keeps for a client that does not read, 0 for as many as it likes. ``width``:
        added to the number where it comes again in ``path``. ``body``: of a POST; empty for GET. ``text``: counts in
        place of a mark; its first character is in it only once.
        """
        lines = "".join(f"{line}\r\n" for line in headers)
        self.members: list[Program] = []
        for _ in range(processes):
            # Addresses of their own, so that no port of an earlier run is in the way and each has all ports.
            source = f"127.{random.randint(1, 250)}.{random.randint(0, 250)}.{random.randint(2, 250)}"
            command = [f"{programs}/crowd", "-p", str(port), "-k", kind, "-u", path, "-s", source, "-H", lines]
            command += ["-b", str(buffer), "-w", str(width)]
            command += (["-d", body] if body else []) + (["-t", text] if text else [])
            self.members.append(Program(command))
        self.held = 0

    def tell(self, commands: Sequence[str] | str) -> None:
        """The same command to all processes, or each its own."""
        for number, member in enumerate(self.members):
            member.tell(commands if isinstance(commands, str) else commands[number])

    def seen(self, seconds: float) -> Seen:
        """The answers of all, added up."""
        answers = [member.answer(seconds) for member in self.members]
        if any(answer["strange"] for answer in answers):
            raise BenchError("a message came before it was sent")
        latencies = Latencies(pair for answer in answers for pair in answer["histogram"])
        self.held = sum(answer["held"] for answer in answers)
        return Seen(
            held=self.held,
            refused=sum(answer["refused"] for answer in answers),
            seconds=max(answer["seconds"] for answer in answers),
            count=sum(answer["count"] for answer in answers),
            reads=sum(answer["reads"] for answer in answers),
            bytes=sum(answer["bytes"] for answer in answers),
            first=min((answer["first"] for answer in answers if answer["first"]), default=0),
            last=max(answer["last"] for answer in answers),
            cpu=sum(answer["cpu"] for answer in answers),
            latencies=latencies,
        )

    def open(self, number: int, *, window: int = 50, rate: int = 0) -> Seen:
        """``number`` more clients, ``window`` being opened at a time, at most ``rate`` a second.

        Who is refused tries again, some times and with few others. Returns what came of the first try. Raises
        BenchError if more than a twentieth is refused in the end.
        """
        before, parts = self.held, len(self.members)
        self.tell([f"open {share} {max(1, window // parts)} {rate // parts}" for share in self._shares(number)])
        seen = last = self.seen(120 + number / 200)
        for _ in range(TRIES):
            if last.held >= before + number or last.held == before:
                break
            self.tell(f"again {FEW}")
            last = self.seen(120 + number / 200)
        if last.held - before < 0.95 * number:
            raise BenchError(f"only {last.held - before} of {number} clients were let in")
        return seen

    def ask(self, number: int, *, rate: int, seconds: float) -> Seen:
        """``number`` more clients of the kind once, ``rate`` a second; what was seen when all have their answers.

        After ``seconds`` anyway. ``count`` are the answers with the text, and times begin with the connection.
        """
        shares = self._shares(number)
        self.tell([f"open {share} {max(1, share)} {max(1, rate // len(self.members))}" for share in shares])
        self.seen(120 + number / 200)
        self.tell([f"wait {share} {int(seconds * 1000)} {int(seconds * 1000)}" for share in shares])
        return self.seen(seconds + 30)

    def _shares(self, number: int) -> list[int]:
        """``number`` divided among the processes."""
        parts = len(self.members)
        return [number // parts + (number % parts > index) for index in range(parts)]

    def zero(self) -> Seen:
        """What was counted so far; begin anew."""
        self.tell("zero")
        return self.seen(60)

    def look(self) -> Seen:
        """What was counted so far."""
        self.tell("look")
        return self.seen(60)

    def expect(self, each: int, *, seconds: float = 90, quiet: float = QUIET) -> None:
        """Begin to wait until each client has got ``each`` messages since `zero`, or for ``quiet`` seconds none."""
        shares = self._shares(self.held)
        self.tell([f"wait {share * each} {int(seconds * 1000)} {int(quiet * 1000)}" for share in shares])

    def wait_for(self, each: int, *, seconds: float = 90, quiet: float = QUIET) -> Seen:
        """`expect`, and what was seen then."""
        self.expect(each, seconds=seconds, quiet=quiet)
        return self.seen(seconds + 30)

    def rest(self, *, quiet: float = 2, seconds: float = 120) -> Seen:
        """What was seen when none has come for ``quiet`` seconds, or after ``seconds``."""
        self.tell(f"wait {1 << 60} {int(seconds * 1000)} {int(quiet * 1000)}")
        return self.seen(seconds + 30)

    def talk(self, seconds: float, size: int = 64) -> Seen:
        """Everybody sends again when answered, for so long."""
        self.tell(f"talk {int(seconds * 1000)} {size}")
        return self.seen(seconds + 30)

    def close(self) -> None:
        """End all, with their connections."""
        for member in self.members:
            member.close()


@dataclass(frozen=True)
class Sent:
    """What a publisher reports."""

    sent: int
    """What the server has taken over from the publisher, or answered."""
    refused: int
    start: int
    end: int

    @property
    def seconds(self) -> float:
        """How long it took to get rid of them."""
        return (self.end - self.start) / 1e9


class Publisher:
    """Sends messages one way, on ``channels`` channels in turn."""

    def __init__(
        self,
        programs: pathlib.Path,
        port: int,
        way: str,
        message: bytes,
        *,
        channels: int = 1,
        buffer: int = 0,
        connections: int = 8,
    ) -> None:
        """``way``: zmq, http or line; ``message``: a template from `bench.items`.

        ``buffer``: bytes that the kernel keeps on this side when the server does not read, 0 for as many as it
        likes. ``connections``: of http, at most 64.
        """
        with tempfile.NamedTemporaryFile(prefix="bench-item-") as file:
            file.write(message)
            file.flush()
            number = connections if way == "http" else 1
            command = [f"{programs}/publisher", str(port), way, str(number), str(channels), file.name, str(buffer)]
            self._program = Program(command)
            self.send(0)  # it has read the file when it answers

    def begin(self, count: int, *, rate: int = 0, seconds: float = 60) -> None:
        """Begin to send ``count`` messages, at ``rate`` a second or (0) as fast as they go, for ``seconds`` at most."""
        self._seconds = seconds
        self._program.tell(f"send {count} {rate} {int(seconds * 1000)}")

    def sent(self) -> Sent:
        """What became of them."""
        answer = self._program.answer(self._seconds + 90)
        return Sent(answer["taken"], answer["refused"], answer["start"], answer["end"])

    def send(self, count: int, *, rate: int = 0, seconds: float = 60) -> Sent:
        """`begin`, and what became of them."""
        self.begin(count, rate=rate, seconds=seconds)
        return self.sent()

    def close(self) -> None:
        """End it."""
        self._program.close()
