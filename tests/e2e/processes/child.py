"""A child process that is nothing but that: it serves its sockets, beats, and obeys, or misbehaves as it is told.

Run as ``child.py KIND NUMBER LOGFILE BEHAVIOUR``. Each client gets the line ``kind number pid`` and is held until it
goes or the process ends. Behaviours: ``good``; ``exit:N`` ends with status N before it is ready; ``deaf`` does not end
when told; ``hang`` blocks its event loop when a client sends anything; ``file:PATH`` is what the file says.
Unlike a real worker it ends at once when told, and its clients get nothing more. One that is to retire ends after the
time that its clients may stay.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import sys
import time

from gripproxy.process.handover import Handover
from gripproxy.process.listening_sockets import inherited
from gripproxy.process.log import log
from gripproxy.process.supervised import Child


def hang() -> None:
    log.error("hanging")
    time.sleep(3600)  # blocks the event loop, which is the point of it


async def serve(kind: str, number: str, behaviour: str) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    log.attach(loop)
    held: list[asyncio.StreamWriter] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        writer.write(f"{kind} {number} {os.getpid()}\n".encode())
        if await reader.read(1) and behaviour == "hang":
            hang()
        writer.close()

    handover = Handover.take()
    servers = [await asyncio.start_server(client, sock=listener.sock) for listener in inherited(handover)]
    child = Child(handover)

    def retire(hold_time: float, spread: float) -> None:
        log.info("retiring", hold_time=hold_time, spread=spread)
        for server in servers:
            server.close()
        loop.call_later(hold_time, over.set)

    on_stop = over.set if behaviour != "deaf" else lambda: None
    child.start(loop, on_stop, lambda: log.info("hung up"), on_retire=retire)
    await over.wait()
    for server in servers:
        server.close()
    for writer in held:
        writer.close()
    log.info("ended", reason=child.stop_reason)
    log.attach(None)


def main() -> int:
    kind, number, file, behaviour = sys.argv[1:]
    log.configure(2, file or None, process=f"{kind} {number}")
    if behaviour.startswith("file:"):
        behaviour = pathlib.Path(behaviour[5:]).read_text()
    if behaviour.startswith("exit:"):
        return int(behaviour[5:])
    asyncio.run(serve(kind, number, behaviour))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
