"""Report of a run: the table of anomalies, and one of them as a small story. Sans-I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from judge import Verdict

LABEL = 44
COLUMN = 11
NONE = "-"

ROWS: list[tuple[str, Callable[[Verdict], int]]] = [
    ("changes of the desired state", lambda verdict: verdict.asked),
    ("writes of the actual state", lambda verdict: verdict.written),
    ("releases written again", lambda verdict: len(verdict.repeated)),
    ("newer release overwritten by an older one", lambda verdict: len(verdict.overwritten)),
    ("machines wrong in the end", lambda verdict: len(verdict.wrong)),
]


def table(verdicts: Mapping[str, Verdict], counts: Mapping[str, int]) -> str:
    """Return the table.

    Args:
        verdicts: by title, first those of the queues, then that of the watching crew.
        counts: of the watching crew.
    """
    *queues, watch = verdicts.values()
    none = [NONE] * len(queues)
    lines = [line("", *(["queue,"] * len(queues)), ""), line("", *verdicts)]
    lines += [line(label, *(count(verdict) for verdict in verdicts.values())) for label, count in ROWS]
    lines.insert(4, line("steps lost", *(len(verdict.skipped) for verdict in queues), NONE))
    lines.append(line("changes skipped, as a later one was there", *none, len(watch.skipped)))
    lines.append(line("late writes refused (412)", *none, counts.get("refused", 0)))
    lines.append(line("actions cancelled with a lost range", *none, counts.get("cancelled", 0)))
    return "\n".join(lines)


def line(label: str, *cells: object) -> str:
    """Return a line of the table.

    Args:
        label: of the line.
        cells: contents, by column.
    """
    return (f"{label:<{LABEL}}" + "".join(f"{cell!s:>{COLUMN}}" for cell in cells)).rstrip()


def story(title: str, verdict: Verdict, clock: datetime) -> list[str]:
    """Return the lines of one anomaly, of a machine that is wrong in the end if there is one.

    Args:
        title: of the crew.
        verdict: about it.
        clock: time at which the program's seconds begin.
    """
    if not verdict.overwritten:
        return []
    wrong = {wish.key: wish for wish in verdict.wrong}
    late, before = max(verdict.overwritten, key=lambda pair: (pair[0].key in wrong, pair[0].time))

    def at(time: str) -> str:
        return f"  {(datetime.fromisoformat(time) - clock).total_seconds():5.1f} s "

    lines = [
        f"One of them ({title}), as the history has it: {late.key}",
        f"{at(late.began)} {late.worker} begins to install release {late.version}",
        f"{at(before.time)} {before.worker}, to which the range was given, has installed release {before.version}",
        f"{at(late.time)} {late.worker}, late, has installed release {late.version}",
    ]
    if late.key in wrong:
        lines.append(f"           {wrong[late.key].version} is desired, and no step is left that would repair it")
    return lines


def ours(title: str, counts: Mapping[str, int]) -> list[str]:
    """Return the lines about late writes of the watching crew.

    Args:
        title: of the crew.
        counts: of the crew.
    """
    refused = counts.get("refused", 0)
    if not refused:
        return [f"No late write was refused ({title})."]
    return [
        f"The same faults ({title}): {refused} late writes were refused. A write names the state from which its worker",
        "went out, and the machine was in another one.",
    ]


def complaints(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return the lines about verdicts that are not as they ought to be: a watch without anomalies, queues with some.

    Args:
        verdicts: by title, first those of the queues, then that of the watching crew.
    """
    *queues, watch = verdicts
    lines = [
        f"{title} has no anomaly, although the run was long enough for some"
        for title in queues
        if not verdicts[title].anomalies(steps=True)
    ]
    if number := verdicts[watch].anomalies(steps=False):
        lines.append(f"{watch} has {number} anomalies: it ought to have none")
    return lines
