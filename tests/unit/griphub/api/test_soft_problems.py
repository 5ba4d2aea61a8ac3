"""Problems of soft topics name the cure."""

from __future__ import annotations

from griphub.api.soft_problems import limit_reached, soft_problem
from griphub.windows.bounds import WindowLimit


def test_a_limit_of_the_configuration_is_named_by_its_key() -> None:
    problem = limit_reached(WindowLimit("soft topics", 20, "owner", "delete some"), 1)
    assert (problem.status, problem.extra) == (429, {"limit": "soft_topics_per_owner_max", "max": 20})
    assert problem.headers == [], "waiting does not help"


def test_a_limit_of_requests_under_way_says_when_to_repeat() -> None:
    problem = limit_reached(WindowLimit("ingest requests", 16, "window", "wait"), 1)
    assert problem.headers == [("Retry-After", "1")]


def test_a_request_that_a_soft_topic_cannot_fulfil_learns_the_ways_that_there_are() -> None:
    problem = soft_problem("t")
    assert problem.status == 409
    assert all(way in problem.detail for way in ("/watch", "snapshot_url", "/ingest"))
