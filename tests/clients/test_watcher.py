"""The watcher for browsers in Node: its decisions, its connections, its types, and whether the model sees faults."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

import pytest

from tests.support.service import ROOT

SOURCE: Final = ROOT / "griphub/client/javascript"
TESTS: Final = ROOT / "tests/clients/watcher"
COMPILER: Final = TESTS / "node_modules/.bin/tsc"

MUTANTS: Final = {
    "progress before the events that it covers": ("return [...messages, progress];", "return [progress, ...messages];"),
    "progress leaves events waiting": ("      messages = this.#close(group);\n", ""),
    "a version is given in parts": ("return event.cursor === event.version_cursor ?", "return true ?"),
    "the least key is left out": ("compareKeys(this.low, key) <= 0", "compareKeys(this.low, key) < 0"),
    "the end is part of the range": ("compareKeys(key, this.high) < 0)", "compareKeys(key, this.high) <= 0)"),
    "keys in the order of UTF-16": ("return rank(left) - rank(right);", "return left - right;"),
    "versions are numbers": ("number: BigInt(match[2])", "number: BigInt(Number(match[2]))"),
    "events of another epoch are believed": (
        "if (!this.#epochs.has(version.epoch)) throw new OtherEpoch(version.epoch);",
        "",
    ),
    "repetitions are given": ("if (version.number < reached.number || (", "if (version.number < 0n || ("),
    "a torn snapshot counts": ("  complete = false;", "  complete = true;"),
    "a snapshot adds to the range": ("    this.#place(begin, version);\n    const { low", "    const { low"),
}
"""Faults by their text: a piece of the source, and its replacement."""


def node_test(node: str, file: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node, "--test", "--test-reporter=tap", str(TESTS / file)],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("name", ["lines", "state", "model", "watcher"])
def test_transcripts(node: str, name: str) -> None:
    """The cases of ``tests/clients/watcher/NAME.test.mjs``."""
    done = node_test(node, f"{name}.test.mjs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout
    assert "Warning" not in done.stdout + done.stderr


@pytest.mark.parametrize("fault", MUTANTS)
def test_the_model_sees(node: str, fault: str, tmp_path: pathlib.Path) -> None:
    source, (piece, replacement) = (SOURCE / "watcher.js").read_text(), MUTANTS[fault]
    assert source.count(piece) == 1, "the piece is not in the source once: adapt the mutant"
    mutant = tmp_path / "watcher.mjs"
    mutant.write_text(source.replace(piece, replacement))
    done = node_test(node, "model.test.mjs", {"WATCHER": str(mutant)})
    assert done.returncode != 0, "the fault was not seen"
    assert "SEED=" in done.stdout, done.stdout


CHECK: Final = """\
import * as implementation from "./implementation.js";
import type * as declared from "./watcher.js";

const checked: typeof declared = implementation;

export async function use(token: () => Promise<string>): Promise<bigint> {
  const table = new Map<string, unknown>();
  const watcher = new checked.Watcher("/hub", {
    topic: "prices", low: "a", token,
    onSnapshot: ({ events }) => events.forEach((event) => event.key && table.set(event.key, event.data)),
    onResync: async (resync) => resync.floorCursor,
  });
  for await (const message of watcher) {
    if (message.type === "change") return BigInt(message.version);
    // @ts-expect-error A resync has no version.
    if (message.type === "resync") return message.version;
  }
  // @ts-expect-error The topic is missing.
  new checked.Watcher("/hub", {});
  return 0n;
}
"""
OPTIONS: Final = {
    "strict": True,
    "noEmit": True,
    "allowJs": True,
    "checkJs": True,
    "noImplicitReturns": True,
    "noUnusedLocals": True,
    "target": "es2022",
    "lib": ["es2022", "dom", "dom.iterable", "dom.asynciterable"],
    "module": "esnext",
    "moduleResolution": "bundler",
    "types": [],
}


def test_types(tmp_path: pathlib.Path) -> None:
    """The source has the types that its declarations promise, and a program is checked by them."""
    for name in ("watcher.d.ts", "watcher.js", "package.json"):
        shutil.copy(SOURCE / name, tmp_path)
    # Beside declarations of its own name a source is not looked at.
    shutil.copy(SOURCE / "watcher.js", tmp_path / "implementation.js")
    (tmp_path / "check.ts").write_text(CHECK)
    (tmp_path / "tsconfig.json").write_text(
        json.dumps({"compilerOptions": OPTIONS, "files": ["check.ts", "watcher.d.ts"]})
    )
    done = subprocess.run([COMPILER, "-p", tmp_path], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
