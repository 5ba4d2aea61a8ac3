"""gripproxy.cli.footprint: what each process may use, from the configuration, and what the documents say about it."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest

from gripproxy.cli.footprint import PUBLISHERS, Footprint, footprints
from gripproxy.config import Config, load_config
from gripproxy.config.keys import SECTIONS

ROOT = pathlib.Path(__file__).parents[3]
KEYS = {item.name for section in SECTIONS.values() for item in dataclasses.fields(section)}
SHIPPED = str(ROOT / "conf" / "gripproxy.conf")


def configured(path: pathlib.Path, **keys: object) -> Config:
    """Return a configuration of two workers with these keys, each in its own section."""
    lines = []
    for name, section in SECTIONS.items():
        own = {item.name for item in dataclasses.fields(section)}
        lines.append(f"[{name}]")
        lines += [f"{key}={value}" for key, value in ({"workers": 2} | keys).items() if key in own]
    path.write_text("\n".join(lines) + "\n")
    return load_config(str(path))


def size(footprint: Footprint, what: str) -> int:
    (found,) = [term.size for term in footprint.terms if term.what == what]
    return found


class TestTerms:
    def test_the_total_is_their_sum(self) -> None:
        for footprint in footprints(load_config(None)).values():
            assert footprint.total == sum(term.size for term in footprint.terms)
            assert footprint.greatest.size == max(term.size for term in footprint.terms)

    @pytest.mark.parametrize("kind", ["worker", "handler"])
    def test_each_names_the_keys_that_it_depends_on_and_no_others(self, kind: str, tmp_path: pathlib.Path) -> None:
        given = {
            "push_in_spec": "tcp://127.0.0.1:5560",
            "push_in_sub_specs": "tcp://127.0.0.1:5562",
            "command_spec": "tcp://127.0.0.1:5563",
            "push_in_http_port": 5561,
            "https_ports": 8443,
            "id_cache_ttl": 60,
            "push_in_buffer_max": 2**30,
            "push_in_http_max_body_size": 2**25,
            "ws_over_http_message_max": 400_000,
        }
        before = footprints(configured(tmp_path / "a", **given))[kind]
        config = configured(tmp_path / "a", **given)
        values = {
            **dataclasses.asdict(config.runner),
            **dataclasses.asdict(config.proxy),
            **dataclasses.asdict(config.handler),
        }
        named: dict[str, set[str]] = {}
        for term in before.terms:
            keys = set(re.findall(r"`([a-z_]+)", term.how)) | (
                {"client_maxconn", "workers"} if "clients" in term.how else set()
            )
            assert keys <= KEYS
            for name in keys - {"id_cache_ttl", "item_max", "https_ports", "message_rate", "store"}:
                named.setdefault(name, set()).add(term.what)
        for name, terms in named.items():
            after = footprints(configured(tmp_path / "b", **given | {name: 2 * values[name]}))[kind]
            changed = {old.what for old, new in zip(before.terms, after.terms, strict=True) if old.size != new.size}
            assert terms <= changed, name

    def test_a_client_is_one_of_those_of_its_worker(self, tmp_path: pathlib.Path) -> None:
        one = footprints(configured(tmp_path / "a", client_maxconn=1000, workers=1))["worker"]
        four = footprints(configured(tmp_path / "b", client_maxconn=1000, workers=4))["worker"]
        assert size(one, "heads") == 4 * size(four, "heads") == 1000 * 2 * 8192

    def test_what_is_not_configured_costs_nothing(self, tmp_path: pathlib.Path) -> None:
        handler = footprints(configured(tmp_path / "a", id_cache_ttl=0))["handler"]
        assert {term.what for term in handler.terms if not term.size} == {
            "ids of items",
            "requests on the control port",
            "messages of 4 PULL publishers",
            "messages of 4 SUB publishers",
            "requests of 4 peers of the command port",
            "requests of the hub",
        }

    def test_deliveries_wait_only_where_their_rate_is_limited(self, tmp_path: pathlib.Path) -> None:
        what = "deliveries at a limited rate"
        assert size(footprints(configured(tmp_path / "a", message_rate=-1))["worker"], what) == 0
        limited = footprints(configured(tmp_path / "b", message_rate=100, item_max=2000))["worker"]
        assert size(limited, what) == 32 * 1024 * 1024 + 2000

    def test_what_zeromq_keeps_is_bounded_in_bytes_by_its_key(self, tmp_path: pathlib.Path) -> None:
        ports = {"push_in_spec": "tcp://127.0.0.1:5560", "item_max": 250_000}
        free = footprints(configured(tmp_path / "a", **ports))["handler"]
        bound = footprints(configured(tmp_path / "b", **ports, push_in_buffer_max=8_000_000))["handler"]
        assert size(bound, "messages of 4 PULL publishers") == PUBLISHERS * 9_000_000
        assert size(free, "messages of 4 PULL publishers") == PUBLISHERS * 2001 * 1_000_000


def rows() -> list[str]:
    """Return the table of docs/guarantees.md#memory as it must be."""
    lines = []
    config = load_config(SHIPPED)
    config = dataclasses.replace(config, proxy=dataclasses.replace(config.proxy, workers=2))
    for kind, footprint in footprints(config).items():
        if kind != "runner":
            lines += [
                f"| {kind} | {term.what} | {term.how} | {-(-term.size // 1_000_000):,} |" for term in footprint.terms
            ]
            lines.append(f"| **{kind}** | | | **{-(-footprint.total // 1_000_000):,}** |")
    return lines


def test_the_document_has_every_term() -> None:
    part = (ROOT / "docs" / "guarantees.md").read_text().partition("\n## Memory\n")[2].partition("\n## ")[0]
    table = [line for line in part.splitlines() if line.startswith(("| worker", "| handler", "| **"))]
    assert table == rows(), "the table should be:\n" + "\n".join(rows())
