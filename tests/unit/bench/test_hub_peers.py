"""Peers: figures from the output of their load programs, and the programs that are not installed."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from bench.hub_peers import PEERS, Etcd, Redis, of_pgbench_log, of_redis_csv
from bench.programs import BenchError

REDIS = """\
WARNING: Could not fetch server CONFIG
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"XADD events * data xxx","35208.48","1.800","0.300","1.367","4.000","7.055","9.000"
"""


def test_the_csv_of_redis() -> None:
    found = of_redis_csv(REDIS)
    assert (found.rate, found.p50, found.p99) == (35208.48, 1.367, 7.055)


@pytest.mark.parametrize("text", ["", "Could not connect\n", REDIS.rsplit("\n", 2)[0]])
def test_a_csv_of_redis_without_figures_is_an_error(text: str) -> None:
    with pytest.raises(BenchError, match="no figures"):
        of_redis_csv(text)


def test_the_log_of_pgbench() -> None:
    lines = [f"{client} 0 {time} 0 1700000000 0" for client, time in enumerate(range(1000, 101_000, 1000))]
    found = of_pgbench_log([*reversed(lines), ""], 2)
    assert (found.rate, found.p50, found.p99) == (50, 50, 99)


def test_a_log_of_pgbench_without_transactions_is_an_error() -> None:
    with pytest.raises(BenchError, match="no transaction"):
        of_pgbench_log([], 2)


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("etcd", "redis-benchmark") else name)
    assert Etcd.missing() == "etcd"
    assert Redis.missing() == "redis-benchmark"


def test_redis_syncs_before_each_answer_and_etcd_stays_in_its_folder(tmp_path: pathlib.Path) -> None:
    words = Redis(tmp_path, tmp_path).command()
    assert words[words.index("--appendfsync") + 1] == "always"
    assert f"--data-dir={tmp_path}/data" in Etcd(tmp_path, tmp_path).command()


def test_names_and_packages_are_distinct() -> None:
    assert len({kind.name for kind in PEERS}) == len({kind.package for kind in PEERS}) == len(PEERS)
