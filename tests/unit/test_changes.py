"""tests.support.changes: fragments are well-formed, and become the section of a version."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.changes import ROOT, FragmentError, bullet, fragments, release, unreleased

LOG = """# Changes

For the person who upgrades.

## Unreleased

First version.

- One
  thing.

## 0.0.9

- Old.
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("How.\n\nIt works.\n")
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    return tmp_path


def test_the_fragments_of_this_repository() -> None:
    assert [text for path in fragments(ROOT) if not (text := bullet(path)).startswith("- ")] == []
    assert unreleased(ROOT)


def test_a_long_paragraph_is_folded(root: pathlib.Path) -> None:
    path = root / "changes" / "new-key.md"
    path.write_text("New key `a`:\nit is " + "very " * 40 + "new.\n")
    lines = bullet(path).splitlines()
    assert [line[:2] for line in lines] == ["- ", "  "]
    assert max(map(len, lines)) <= 140
    assert " ".join(line[2:] for line in lines).startswith("New key `a`: it is very")


@pytest.mark.parametrize("text", ["", "- A bullet.", "# Heading\n", "One.\n\nTwo.", "No sentence"])
def test_what_is_no_fragment(root: pathlib.Path, text: str) -> None:
    path = root / "changes" / "bad.md"
    path.write_text(text)
    with pytest.raises(FragmentError, match=r"bad\.md"):
        unreleased(root)


@pytest.mark.parametrize("name", ["Bad.md", "bad.txt", "a_b.md", "-a.md"])
def test_names(root: pathlib.Path, name: str) -> None:
    (root / "changes" / name).write_text("A change.\n")
    with pytest.raises(FragmentError, match="small letters"):
        unreleased(root)


def test_fragments_are_in_front_of_the_bullets_that_are_there(root: pathlib.Path) -> None:
    (root / "changes" / "b.md").write_text("Second.\n")
    (root / "changes" / "a.md").write_text("First.\n")
    assert unreleased(root) == "First version.\n\n- First.\n- Second.\n- One\n  thing.\n"


def test_a_release(root: pathlib.Path) -> None:
    (root / "changes" / "a.md").write_text("First.\n")
    release(root, "0.1.0")
    assert (root / "CHANGELOG.md").read_text() == LOG.replace(
        "## Unreleased\n\nFirst version.\n\n", "## Unreleased\n\n## 0.1.0\n\nFirst version.\n\n- First.\n"
    )
    assert fragments(root) == []
    with pytest.raises(FragmentError, match="no change"):
        release(root, "0.1.1")
    (root / "changes" / "b.md").write_text("Later.\n")
    release(root, "0.2.0")
    assert "## Unreleased\n\n## 0.2.0\n\n- Later.\n\n## 0.1.0\n\nFirst" in (root / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("version", ["", "1", "1.0", "v1.0.0", "1.0.0-beta"])
def test_what_is_no_version(root: pathlib.Path, version: str) -> None:
    with pytest.raises(FragmentError, match="not a version"):
        release(root, version)


def test_no_section(root: pathlib.Path) -> None:
    (root / "CHANGELOG.md").write_text("# Changes\n")
    with pytest.raises(FragmentError, match="Unreleased"):
        unreleased(root)
