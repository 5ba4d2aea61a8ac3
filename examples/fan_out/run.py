"""Fan-out: the stock of a shop's articles is ingested, and consumers keep tables of it, by a broker and by watching.

    HUB_URL=http://localhost:7999/hub python examples/fan_out/run.py [--seconds N] [--without-snapshot | …-collapsing]

In the first act a consumer is away for longer than events are retained. In the second one article changes faster than
its changes can be worked off. Exit status: 0 if watching has no anomaly, and the broker has some in each act.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from statistics import median

from absence import ARTICLES, Absence
from busy_key import BUSY, BusyKey, BusyVerdict
from verdict import AbsenceVerdict

LABEL = 50
COLUMN = 12


def line(label: str, *cells: object) -> str:
    """Return a line of a table.

    Args:
        label: of the line.
        cells: contents, by column.
    """
    return (f"{label:<{LABEL}}" + "".join(f"{cell!s:>{COLUMN}}" for cell in cells)).rstrip()


def absence_table(stream: AbsenceVerdict, watch: AbsenceVerdict) -> str:
    """Return the table of the first act.

    Args:
        stream: verdict about the broker's consumers.
        watch: verdict about the watching ones.
    """
    both = (stream, watch)
    return "\n".join(
        [
            line("A consumer was away", "stream", "watch"),
            line("events that were not retained", *(each.missed for each in both)),
            line("times that it learned of that", *(each.resyncs for each in both)),
            line(f"articles wrong in the end, of {len(ARTICLES)}", *(len(each.wrong) for each in both)),
            line("withdrawn articles that it still sells", *(len(each.withdrawn) for each in both)),
            line("articles wrong at a consumer that stayed", *(len(each.wrong_stayed) for each in both)),
        ]
    )


def busy_table(queue: BusyVerdict, watch: BusyVerdict) -> str:
    """Return the table of the second act.

    Args:
        queue: verdict about the queue's consumer.
        watch: verdict about the watching one.
    """
    both = (queue, watch)
    waits = [each.freshness.waits for each in both]
    seconds = [[wait.seconds for wait in each] for each in waits]
    return "\n".join(
        [
            line("A busy article", "queue", "watch"),
            line(f"changes of {BUSY}", *(each.changes for each in both)),
            line("of these worked off", *(each.worked for each in both)),
            line("changes of others beside it", *map(len, waits)),
            line("their lag, median", *(f"{median(each):.3f} s" for each in seconds)),
            line("their lag, longest", *(f"{max(each):.3f} s" for each in seconds)),
            line("most values of the busy one before one of them", *(max(w.behind for w in each) for each in waits)),
            line("held up behind more than two of them", *(len(each.freshness.held_up) for each in both)),
            line("articles whose newest value is not shown", "-", len(watch.wrong)),
        ]
    )


def story(stream: AbsenceVerdict, queue: BusyVerdict) -> str:
    """Return one anomaly of each act as text.

    Args:
        stream: verdict about the broker's consumers of the first act.
        queue: verdict about the queue's consumer of the second one.
    """
    lines = []
    if stream.withdrawn:
        key = stream.withdrawn[0]
        lines += [
            f"{key} was withdrawn when the stream's consumer had gone with event {stream.place}. It asked behind that,",
            f"was given what began at {stream.first}, and took it for all: it will sell {key} for ever.",
        ]
    if queue.freshness.held_up:
        worst = max(queue.freshness.held_up, key=lambda wait: wait.seconds)
        lines += [
            f"A change of {worst.key} waited {worst.seconds:.1f} s in its partition of the queue, while {worst.behind}",
            f"values of {BUSY} were worked off, which newer ones had replaced long since.",
        ]
    return "\n".join(lines)


async def play(url: str, options: argparse.Namespace) -> bool:
    """Play both acts.

    Args:
        url: of the hub.
        options: of the command line.

    Returns:
        Whether watching has no anomaly, and the broker has some in each act.
    """
    loop = asyncio.get_running_loop()
    begin = loop.time()

    def note(text: str) -> None:
        print(f"{loop.time() - begin:5.1f} s  {text}", flush=True)

    note("first act: a consumer is away for too long")
    stream, watched = await Absence(url, options.seconds / 2, note, not options.without_snapshot).play()
    note("second act: an article changes too fast")
    queue, watch = await BusyKey(url, options.seconds / 2, note, not options.without_collapsing).play()
    print(f"\n{absence_table(stream, watched)}\n\n{busy_table(queue, watch)}\n\n{story(stream, queue)}", flush=True)
    good = True
    for name, act in (("absence", watched), ("busy article", watch)):
        if act.anomalies:
            good = False
            print(f"\nwatch has {act.anomalies} anomalies ({name}): it ought to have none")
    if not watched.resyncs:
        good = False
        print("\nwatch has not learned that events are missing")
    for name, naive in (("absence", stream), ("busy article", queue)):
        if not naive.anomalies:
            good = False
            print(f"\nthe broker has no anomaly ({name}), although the run was long enough for some")
    return good


def main() -> int:
    """Return the exit status, after playing with the options of the command line."""
    parser = argparse.ArgumentParser(description="Ingestion and fan-out, by a broker and by watching.")
    parser.add_argument("--seconds", type=float, default=14.0, help="of both acts (default %(default)s)")
    parser.add_argument(
        "--without-snapshot", action="store_true", help="let the watch go on at the floor after a resync"
    )
    parser.add_argument("--without-collapsing", action="store_true", help="let the watch work off each change of a key")
    return 0 if asyncio.run(play(os.environ["HUB_URL"], parser.parse_args())) else 1


if __name__ == "__main__":
    raise SystemExit(main())
