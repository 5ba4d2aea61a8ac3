"""A caller that is refused again and again waits for each further refusal."""

from __future__ import annotations

import pytest

from griphub.api.refusals import BURST, PAUSE, PER_MINUTE, WAITING_MAX, RefusalPace


@pytest.fixture
def spent() -> RefusalPace:
    """One caller has had its share."""
    pace = RefusalPace()
    assert [pace.pause(429, "a", 0.0) for _ in range(BURST)] == [0.0] * BURST
    return pace


def test_further_ones_wait(spent: RefusalPace) -> None:
    assert spent.pause(429, "a", 0.0) == PAUSE
    assert spent.pause(400, "a", 0.0) == PAUSE


def test_others_do_not(spent: RefusalPace) -> None:
    assert spent.pause(429, "b", 0.0) == 0.0


@pytest.mark.parametrize("status", [200, 404, 410, 412, 503, 507])
def test_nor_what_a_sound_client_gets(spent: RefusalPace, status: int) -> None:
    assert spent.pause(status, "a", 0.0) == 0.0


def test_the_share_comes_back(spent: RefusalPace) -> None:
    later = 60 / PER_MINUTE
    assert spent.pause(429, "a", later) == 0.0
    assert spent.pause(429, "a", later) == PAUSE
    assert spent.pause(429, "a", 3600.0) == 0.0


def test_only_so_many_wait(spent: RefusalPace) -> None:
    spent.waiting = WAITING_MAX
    assert spent.pause(429, "a", 0.0) == 0.0
