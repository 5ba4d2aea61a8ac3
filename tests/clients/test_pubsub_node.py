"""The unmodified @google-cloud/pubsub for Node in REST mode against the hub's push API, with restarts of the hub."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import HubSite, hub_site
from tests.support.hub_restarts import restarts
from tests.support.service import ROOT

SETTINGS = {
    "hub.hub_key": KEY,
    "hub.hub_anonymous": "none",
    "hub.callback_allow": "127.0.0.0/8",
    "hub.push_http": "true",
}
EXAMPLE = ROOT / "examples/pubsub/node/orders.mjs"
SCRIPT = ROOT / "tests/clients/node/pubsub.mjs"
PATIENCE = 150.0


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    # This client's REST mode has no place for a prefix.
    with hub_site(SETTINGS, routes="* hub\n") as site:
        yield site


def command(site: HubSite, node: str, case: str, credentials: str) -> list[str]:
    return [node, str(SCRIPT), str(EXAMPLE), f"127.0.0.1:{site.http}", credentials, case]


@pytest.mark.parametrize("case", ["resources", "messages", "ordered", "pushes"])
def test_calls(site: HubSite, node: str, case: str) -> None:
    done = subprocess.run(
        command(site, node, case, token("o")), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_without_a_token(site: HubSite, node: str) -> None:
    done = subprocess.run(
        command(site, node, "credentials", ""), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_restarts(site: HubSite, node: str) -> None:
    """The hub is killed while messages are published and pulled: none is lost."""
    process = subprocess.Popen(
        command(site, node, "restarts", token("o")), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with restarts(site) as kills:
            output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, output) == (0, "done\n"), errors
    assert kills() >= 3


def test_the_example(site: HubSite, node: str) -> None:
    done = subprocess.run(
        [node, str(EXAMPLE), f"127.0.0.1:{site.http}", token("shop")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    received = [line for line in done.stdout.splitlines() if line.startswith("received")]
    assert received == [f"received order {number} {{ country: 'no' }}" for number in range(3)]
