"""gripproxy.process.limits: the limit of open files."""

from __future__ import annotations

import resource

import pytest

from gripproxy.process.limits import FILE_LIMIT_MAX, raise_file_limit


def test_the_limit_of_open_files_is_at_its_hard_limit_afterwards() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        limit = raise_file_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert limit == soft
        assert soft == hard or hard == resource.RLIM_INFINITY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), FILE_LIMIT_MAX),
        ((FILE_LIMIT_MAX + 1, resource.RLIM_INFINITY), FILE_LIMIT_MAX + 1),
        ((100, 100), 100),
        ((100, resource.RLIM_INFINITY), FILE_LIMIT_MAX),
        ((100, 200), 200),
    ],
)
def test_limits(limits: tuple[int, int], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert raise_file_limit() == expected


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 200))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_file_limit() == 100
