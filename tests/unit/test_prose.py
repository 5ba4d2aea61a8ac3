"""tests.support.prose: what it finds, and the rooms that have no finding any more."""

from __future__ import annotations

import pathlib
import textwrap

import pytest

from tests.support.prose import DOCS, PACKAGES, ROOT, STRUCTURE, WORDS, Index, check, sources

# Files and folders whose docstrings and comments have no finding.
CLEAN = (
    "gripproxy",
    "handler",
    "griphub",
    "spark_stats",
    "tests/support/changed.py",
    "tests/support/changes.py",
    "tests/support/coverage_gate.py",
    "tests/support/prose.py",
)  # fmt: skip

INDEX = Index(sources(ROOT / package for package in PACKAGES))


@pytest.mark.parametrize("room", CLEAN)
def test_clean_rooms_stay_clean(room: str) -> None:
    kinds = {*WORDS, *DOCS}
    files = sources([ROOT / room])
    assert files, f"{room} does not exist"
    assert [str(finding) for path in files for finding in check(path, INDEX) if finding.kind in kinds] == []


def found(tmp_path: pathlib.Path, source: str) -> list[tuple[str, int]]:
    """Return kind and line of each finding in a source."""
    path = tmp_path / "module.py"
    path.write_text('"""Module."""\n' + textwrap.dedent(source))
    return [(finding.kind, finding.line) for finding in check(path, Index([path]))]


@pytest.mark.parametrize(
    ("comment", "kind"),
    [
        ("# Keep what is left.", "what-clause"),
        ("# A worker tells the handler.", "say-tell"),
        ("# Nobody reads on.", "person"),
        ("# The head has come.", "come"),
        ("# A bug of ours.", "ours"),
        ("# Both are closed at\n# once.", "diction"),
        ("X = 1  # lets clients go", "diction"),
    ],
)
def test_words_in_comments(tmp_path: pathlib.Path, comment: str, kind: str) -> None:
    assert found(tmp_path, comment) == [(kind, 2)]


def test_a_word_is_found_in_its_line_and_not_in_code(tmp_path: pathlib.Path) -> None:
    source = '''
    def f() -> None:
        """Do one thing.

        ``what`` is a name; the rest
        of it was told to the handler.
        """
        print("what is said here counts for nothing")
    '''
    assert found(tmp_path, source) == [("say-tell", 7), ("stand-alone", 6)]


@pytest.mark.parametrize(
    "first", ["Whether it is open", "What is left", "The same, faster", "It waits", "They wait", "Nothing waits"]
)
def test_first_words(tmp_path: pathlib.Path, first: str) -> None:
    assert ("first-word", 3) in found(tmp_path, f'\nX = "{first}"\n"""{first}."""\n'.lstrip("\n"))


def test_gaps_of_docstrings(tmp_path: pathlib.Path) -> None:
    source = '''
    def a() -> None: ...

    def b(host: str, port: int) -> None:
        """Connect to a host."""

    def c() -> int:
        """Answer of the question."""

    def d() -> None:
        """Fail."""
        raise ValueError("x")

    def e(interval: float) -> None:
        """Wait for an interval."""
    '''
    assert found(tmp_path, source) == [("no-doc", 3), ("args", 5), ("returns", 8), ("raises", 11), ("unit", 15)]


def test_complete_docstrings(tmp_path: pathlib.Path) -> None:
    source = '''
    def a(host: str, port: int) -> str:
        """Return the URL of a host and its port."""
        return f"http://{host}:{port}"

    def b(host: str, *, interval: float = 1.0, limit: int | None = None) -> int:
        """Ask a host.

        Args:
            host: Name.
            interval: Time between two
                requests, in seconds.
            limit: Bytes of an answer.

        Returns:
            Number of answers.

        Raises:
            ValueError: The host has no name.
        """
        try:
            raise OSError
        except OSError:
            pass
        raise ValueError(host)

    class C:
        """Connection to ``host``."""

        def __init__(self, host: str) -> None:
            self._host = host

        @property
        def host(self) -> str:
            """Name of the host."""
            return self._host

        def data_received(self, data: bytes) -> None: ...

        def close(self, reason: str) -> None:
            """Close for a reason."""

    class D(C):
        """Connection of another kind."""

        def close(self, reason: str) -> None: ...

    class _Private:
        def method(self, x: int) -> int: ...
    '''
    assert found(tmp_path, source) == []


def test_numbers_of_a_module_have_a_unit(tmp_path: pathlib.Path) -> None:
    source = '''
    TIMEOUT: Final = 10
    MAX_SIZE: Final = 10  # bytes
    WAIT_TIMEOUT: Final = 5
    """Seconds until a client is closed."""
    # Seconds.
    DELAY: Final = 0.5
    '''
    assert found(tmp_path, source) == [("unit", 3)]


def test_structure(tmp_path: pathlib.Path) -> None:
    long = "\n".join(["            x = 1"] * 61)
    source = f"""
    class _A:
        cache: dict[Any, Any]

        def __init__(self, transport: Any, other: _B) -> None:
            self.x = 1
            b = _B()
            b.owner = self
            other.owner = self
            self.other.owner = self

        def f(self) -> None:
{long}
    """
    kinds = [(kind, line) for kind, line in found(tmp_path, source) if kind in STRUCTURE]
    assert sorted(kinds) == [
        ("any-dict", 4),
        ("any-transport", 6),
        ("foreign", 10),
        ("foreign", 11),
        ("late", 9),
        ("long", 13),
    ]
