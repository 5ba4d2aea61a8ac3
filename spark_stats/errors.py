"""Errors: one tree for the recorder and the reports, by whose fault it is.

    SparkStatsError
    ├── OperatorError    the operator's fault: folder, disk, Java, a range of time without data
    └── SenderError      the fault of a program behind a stats socket: its message is no event

Their texts name the file or value that is wrong and, where it helps, the remedy; the command prints them as they are.
"""

from __future__ import annotations

__all__ = ["OperatorError", "SenderError", "SparkStatsError"]


class SparkStatsError(Exception):
    """Base of all exceptions of spark_stats."""


class OperatorError(SparkStatsError):
    """Fault of the operator: printed as one line, with exit status 1."""


class SenderError(SparkStatsError):
    """Fault of the sender of an event: the message is counted, and a sample kept."""
