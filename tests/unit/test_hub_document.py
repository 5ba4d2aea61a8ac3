"""docs/hub.md and its further pages have every path, parameter, problem and limit of the hub's OpenAPI document."""

from __future__ import annotations

import json
import re

import pytest

from griphub.api.openapi import OPENAPI
from griphub.api.problem import STATUSES
from gripproxy.config.keys import SECTIONS
from tests.support.architecture import ROOT

PAGES = ("hub.md", "mailboxes.md", "p3sub.md", "push.md", "watch.md", "soft-topics.md")
TEXT = "".join((ROOT / "docs" / name).read_text() for name in PAGES)
DOCUMENT = json.loads(OPENAPI)

INTERNAL = ("/follow/{capability}", "/snapshot/{capability}")
"""Paths that only a GRIP proxy requests, by links."""

GRIP = ("Grip-Last",)
"""Parameters that only a GRIP proxy sends."""


def operations() -> list[tuple[str, str]]:
    return [
        (method.upper(), path)
        for path, methods in DOCUMENT["paths"].items()
        if path not in INTERNAL
        for method in methods
        if method in ("get", "put", "post", "patch", "delete")
    ]


@pytest.mark.parametrize(("method", "path"), operations())
def test_paths(method: str, path: str) -> None:
    shown = path
    letters = {"topic": "T", "key": "K", "cursor": "CURSOR", "subscriber": "S", "subscription": "ID"}
    for name, letter in letters.items():
        shown = shown.replace(f"{{{name}}}", letter)
    assert re.search(rf"(?m)\b{method}\b[A-Z|]*\s+{re.escape(shown)}(?![/\w])", TEXT), f"{method} {shown}"


@pytest.mark.parametrize(
    "name", sorted({parameter["name"] for parameter in DOCUMENT["components"]["parameters"].values()})
)
def test_parameters(name: str) -> None:
    if name in ("topic", "key", "cursor", "capability", "subscriber", "subscription", *GRIP):
        return
    assert re.search(rf"[`?&{{]{re.escape(name)}[`=:&]", TEXT), name


@pytest.mark.parametrize(("name", "status"), STATUSES.items())
def test_problems(name: str, status: int) -> None:
    assert f"| {status} | `{name}` |" in TEXT


@pytest.mark.parametrize("key", [key for key in SECTIONS["hub"].__dataclass_fields__ if key.endswith(("_max", "_ttl"))])
def test_limits(key: str) -> None:
    assert f"`{key}`" in TEXT


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", TEXT))
def test_links(target: str) -> None:
    assert not target or target.startswith("http") or (ROOT / "docs" / target).exists()


@pytest.mark.parametrize("anchor", re.findall(r"\]\(#([^)]*)\)", TEXT))
def test_anchors(anchor: str) -> None:
    heads = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"(?m)^#+ (.*)$", TEXT)]
    assert anchor in heads or f'<a id="{anchor}">' in TEXT
