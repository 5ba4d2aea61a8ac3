"""Which proxy runs, and the fixtures of the wire cases."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from tests.wire.wirekit import Publisher, Setup, Site
from tests.wire.wirekit.expecting import running

_numbers = itertools.count(1)
_sites: list[Site] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--proxy``."""
    parser.addoption(
        "--proxy",
        choices=("gripproxy", "pushpin"),
        default="gripproxy",
        help="the proxy that the wire cases run against: ours, or the real Pushpin (Debian packages pushpin and zurl)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Remember the proxy; make SIGTERM end the run in the ordinary way, so that every proxy started is ended too."""
    running.proxy = config.getoption("--proxy", "gripproxy")
    config.addinivalue_line("markers", "covers(*ids): rows of tests/wire/rows.toml that the case shows")

    def end(number: int, frame: object) -> NoReturn:
        pytest.exit("ended by SIGTERM", 143)

    signal.signal(signal.SIGTERM, end)


def pytest_report_header() -> str:
    """Say which proxy the wire cases run against."""
    return f"wire cases run against {running.proxy}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the end of the proxies' logs to the report of a failed case."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for site in _sites:
            report.sections.append(("proxy log", site.proxy.log[-4000:]))


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[Setup], Site]]:
    """A function that returns the running site of a setup, started once per module (and again if it died)."""
    sites: dict[Setup, Site] = {}
    problems: list[str] = []

    def get(setup: Setup) -> Site:
        if setup in sites and not sites[setup].proxy.alive:
            dead = sites.pop(setup)
            _sites.remove(dead)
            dead.stop()
        if setup not in sites:
            sites[setup] = Site(setup)
            _sites.append(sites[setup])
        return sites[setup]

    yield get
    for site in sites.values():
        _sites.remove(site)
        problems += site.stop()
    assert not problems, problems


@pytest.fixture
def site(request: pytest.FixtureRequest, start: Callable[[Setup], Site]) -> Site:
    """The running site of the module's ``SETUP``."""
    return start(request.module.SETUP)


@pytest.fixture
def publisher(site: Site) -> Publisher:
    """The publisher of the module's site."""
    return site.publisher


@pytest.fixture
def case() -> str:
    """A name that no other case uses: for channels, and with a slash in front for paths. Digits may follow it."""
    return f"c{next(_numbers)}x"


@pytest.fixture(autouse=True)
def _nothing_went_wrong(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the case if a backend script failed, or a proxy ended, while it ran."""
    yield
    problems = [problem for running_site in _sites for problem in running_site.problems()]
    assert not problems, problems
