"""docs/p3sub.md has every path of subscriptions, every state, reason and class of failure, and every limit."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest

from griphub.api.openapi import OPENAPI
from griphub.client.push_receiver import BODIES_MAX, BODY_MAX, BODY_TIMEOUT, REQUESTS_MAX
from griphub.client.push_server import CONNECTIONS_MAX
from griphub.client.subscriber import BYTES_MAX, EVENTS_MAX
from griphub.client.subscription_actions import OnGone, ReportKind, Strategy
from griphub.sender.delivery_states import RestReason, State
from griphub.sender.failure_class import FailureClass
from gripproxy.config.keys import SECTIONS
from tests.support.architecture import ROOT

TEXT: Final = (ROOT / "docs/p3sub.md").read_text()
PATHS: Final = json.loads(OPENAPI)["paths"]


@pytest.mark.parametrize(
    ("method", "path"),
    [(method.upper(), path) for path, methods in PATHS.items() if "/subscriptions" in path for method in methods],
)
def test_paths(method: str, path: str) -> None:
    shown = path.replace("{topic}", "T").replace("{subscription}", "ID")
    if method != "PARAMETERS":
        assert re.search(rf"(?m)^    {method}\s+{re.escape(shown)}(?![/\w])", TEXT)


@pytest.mark.parametrize("state", [state for state in State if state is not State.CANCELLED])
def test_states(state: State) -> None:
    assert re.search(rf"(?m)^\| `{state.name.lower()}` \|", TEXT)


@pytest.mark.parametrize("reason", RestReason)
def test_reasons(reason: RestReason) -> None:
    assert re.search(rf"(?m)^\| `{reason}` \|", TEXT)


@pytest.mark.parametrize("failure", FailureClass)
def test_failures(failure: FailureClass) -> None:
    assert re.search(rf"(?m)^\| (`[a-z-]+`, )?`{failure}`(, `[a-z-]+`)? \|", TEXT)


@pytest.mark.parametrize("kind", ReportKind)
def test_reports(kind: ReportKind) -> None:
    assert f"| `{kind.value}` |" in TEXT


@pytest.mark.parametrize("name", [each.name for each in (*Strategy, *OnGone)])
def test_names(name: str) -> None:
    assert name in TEXT


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in SECTIONS["hub"].__dataclass_fields__
        if key.startswith(("callback", "subscriptions_")) or key == "rights_ttl"
    ],
)
def test_keys(key: str) -> None:
    assert f"`{key}`" in TEXT


def test_limits_of_the_client() -> None:
    mega = 1024 * 1024
    bodies = f"{BODY_MAX // mega} MB; {BODIES_MAX // mega} MB; {REQUESTS_MAX}; {BODY_TIMEOUT:.0f} s"
    assert bodies in TEXT
    assert f"{EVENTS_MAX:,}; {BYTES_MAX // mega} MB" in TEXT
    assert f"| {CONNECTIONS_MAX} |" in TEXT


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", TEXT))
def test_links(target: str) -> None:
    assert not target or target.startswith("http") or (ROOT / "docs" / target).exists()


@pytest.mark.parametrize(("page", "anchor"), re.findall(r"\]\(([^)#\s]*)#([^)]*)\)", TEXT))
def test_anchors(page: str, anchor: str) -> None:
    text = TEXT if not page else (ROOT / "docs" / page).read_text()
    heads = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"(?m)^#+ (.*)$", text)]
    assert anchor in heads or f'<a id="{anchor}">' in text
