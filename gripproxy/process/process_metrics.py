"""Metrics that each program of this project has: its version, and the figures of its processes.

The names of processes are those that Prometheus' own libraries have, with the label ``process`` beside them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gripproxy import __version__
from gripproxy.process.proc_figures import ProcFigures, proc_figures

__all__ = ["build_info", "process_metrics"]


def build_info() -> Metric:
    """Return the metric that is always 1, with the versions of gripproxy and Python as labels."""
    family = GaugeMetricFamily("gripproxy_build_info", "Version of gripproxy", labels=["version", "python"])
    family.add_metric([__version__, platform.python_version()], 1)
    return family


def process_metrics(processes: Iterable[tuple[str, int]]) -> Iterator[Metric]:
    """Yield the metrics of processes; those that have ended are left out.

    Args:
        processes: names for the label, and process ids. Equal names are one sum, and the earliest start.
    """
    found: dict[str, list[ProcFigures]] = {}
    for name, pid in processes:
        figures = proc_figures(pid)
        if figures is not None:
            found.setdefault(name, []).append(figures)
    cpu = CounterMetricFamily("process_cpu_seconds", "Processor time, of the user and the system", labels=["process"])
    for name, all_figures in found.items():
        cpu.add_metric([name], sum(figures.cpu_seconds for figures in all_figures))
    yield cpu
    for metric, text, field in (
        ("process_resident_memory_bytes", "Memory that is in RAM", "resident_bytes"),
        ("process_virtual_memory_bytes", "Memory that is mapped", "virtual_bytes"),
        ("process_open_fds", "Descriptors in use", "open_files"),
        ("process_max_fds", "Limit of descriptors", "files_max"),
    ):
        family = GaugeMetricFamily(metric, text, labels=["process"])
        for name, all_figures in found.items():
            family.add_metric([name], sum(getattr(figures, field) for figures in all_figures))
        yield family
    start = GaugeMetricFamily("process_start_time_seconds", "Start since 1970", labels=["process"])
    for name, all_figures in found.items():
        start.add_metric([name], min(figures.start_seconds for figures in all_figures))
    yield start
