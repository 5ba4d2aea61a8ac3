"""Parts of the benchmark: what a held client takes of the memory, and publishers that are refused."""

from __future__ import annotations

import pathlib
from functools import partial

import pytest

from bench import hub_parts
from bench.hub_load import Posted
from bench.hub_parts import checked, held
from bench.latencies import Latencies
from bench.load import Crowd
from bench.programs import BenchError
from tests.support.bench_crowd import write_crowd


def test_the_memory_of_a_client_is_what_all_of_them_add(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(hub_parts, "settled", lambda look, most: look())
    looks = iter([{}, {"hub": 100}, {}, {"hub": 150, "worker": 200}])
    make = partial(Crowd, write_crowd(tmp_path), 1, "stream", "/")
    with held(make, 100, lambda: next(looks), 3.0) as (crowd, grown):
        assert crowd.held == 100
        assert grown == {"hub": 0.5, "worker": 2.0}
    assert next(looks, None) is None


@pytest.mark.parametrize(("taken", "refused"), [(0, 0), (100, 2)])
def test_a_publisher_that_is_refused_measures_nothing(taken: int, refused: int) -> None:
    with pytest.raises(BenchError, match=f"{refused} were refused"):
        checked(Posted(taken, refused, 0, 1, Latencies()))


def test_a_refusal_among_a_hundred_is_borne() -> None:
    posted = Posted(100, 1, 0, 1, Latencies())
    assert checked(posted) is posted
