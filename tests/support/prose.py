"""Measure of prose and structure of source files: words to avoid, gaps in docstrings, long functions, foreign writes.

    python -m tests.support.prose [--counts] [--only KIND,…] PATH…

prints ``file:line: kind: text`` for each finding, then the number of findings of each kind. The kinds and their reasons
are in ``KINDS``; docstrings follow Google's style (``Args:``, ``Returns:``, ``Raises:``).
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import json
import pathlib
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["DOCS", "KINDS", "STRUCTURE", "WORDS", "Finding", "Index", "check", "main", "sources"]

ROOT: Final = pathlib.Path(__file__).parents[2]
PACKAGES: Final = ("gripproxy", "handler", "griphub", "spark_stats")
MAX_LINES: Final = 60
"""Lines of one function, its docstring not counted."""
MAX_BRANCHES: Final = 12
"""McCabe complexity of one function: number of paths through it."""

WORDS: Final[dict[str, str]] = {
    "what-clause": r"\bwhat(?:ever)?\b",
    "who-clause": r"\bwho(?:ever|m)?\b",
    "say-tell": r"\b(?:say|says|said|saying|tell|tells|told|telling)\b",
    "person": r"\b(?:no|some|every|any)body\b|\b(?:some|every|any)one\b|\bno\s+one\b",
    "come": r"\b(?:has|have|had|is|are|was|were)\s+(?:\w+\s+)?come\b|\bcame\b",
    "ours": r"\bof\s+ours\b",
    "diction": r"\bin\s+vain\b|\bat\s+once\b|\bfor\s?ever\b|\bnought\b|\b(?:let|lets|letting)\s+(?:\w+\s+)?go\b",
}
"""Patterns of words in docstrings and comments, by kind."""

_FIRST: Final = re.compile(r"(?:What(?:ever)?|Who(?:ever|se|m)?|Whether|The\s+same|It|Nothing|They)\b")
_ALONE: Final = re.compile(
    r"\bthe\s+same\b(?=\s*(?:[,.;:)]|$|for\b|with\b|without\b|as\s+(?:above|before|there)\b))"
    r"|\bsee\s+(?:above|below)\b|\bthe\s+rest\b",
    re.IGNORECASE,
)
_WORDS: Final = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in WORDS.items()}
_CODE: Final = re.compile(r"``.*?``|`[^`\n]*`|:\w+:`[^`]*`|(?<!\w)\"[^\"\n]{1,120}\"", re.DOTALL)
_PRAGMA: Final = re.compile(r"#\s*(?:noqa|type:|ruff:|mypy:|fmt:|pragma)")

DOCS: Final[dict[str, str]] = {
    "first-word": "a docstring begins with its noun or verb, not What, Who, Whether, The same, It, Nothing, They",
    "stand-alone": "a docstring is complete without another: no 'the same', 'see above', 'the rest'",
    "no-doc": "public module, class, function or method without a docstring",
    "args": "public function with a parameter that `Args:` does not name",
    "returns": "public function with a result and neither `Returns:` nor a first word Return or Yield",
    "raises": "public function with a `raise` that `Raises:` does not name",
    "unit": "number (time, size, limit) whose unit the docstring does not have",
}
"""Rules for docstrings, by kind."""

STRUCTURE: Final[dict[str, str]] = {
    "long": f"function of more than {MAX_LINES} lines without its docstring",
    "complex": f"function with a McCabe complexity over {MAX_BRANCHES} (ruff C901)",
    "private": "access to a private name of another object (ruff SLF001)",
    "late": "attribute set on an object after the call that made it, in the function that made it",
    "foreign": "attribute of another object set from outside",
    "any-dict": "dict[Any, Any]",
    "any-transport": "transport of type Any",
}
"""Rules for structure, by kind."""

KINDS: Final = {**{kind: f"words {pattern}" for kind, pattern in WORDS.items()}, **DOCS, **STRUCTURE}

# Callbacks of asyncio and httptools: their documentation is there.
_CALLBACKS: Final = {
    *("connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing"),
    *("datagram_received", "error_received", "get_buffer", "buffer_updated"),
    *("on_message_begin", "on_url", "on_status", "on_header", "on_headers_complete", "on_body", "on_message_complete"),
    *("on_chunk_header", "on_chunk_complete"),
}
_UNIT: Final = re.compile(
    r"\b(?:seconds?|milliseconds?|microseconds?|nanoseconds?|minutes?|hours?|days?|ms|bytes?|octets?|[KMG]i?B|"
    r"characters?|bits?|lines?|times?|per|percent|share|ratio|factor|number\s+of|count|"
    r"(?:how\s+)?many|items?|messages?|requests?|responses?|connections?|clients?|sessions?|channels?|subscriptions?|"
    r"subscribers?|members?|members|frames?|events?|routes?|targets?|filters?|workers?|process(?:es)?|descriptors?|"
    r"files?|members|entries|attempts?|retries|turns?|rounds?|ids?|queues?|hops?|places?|rows?|columns?|cells?|"
    r"headers?|values?|names?|keys?|index|position|offset|status|code|port|serial|epoch|pid|mode|level|depth|steps?)\b"
    r"|%|\[0",
    re.IGNORECASE,
)
_TIME: Final = re.compile(r"\b(?:(?:milli|micro|nano)?seconds?|minutes?|hours?|days?|ms|clock|per)\b", re.IGNORECASE)
_NUMBERED: Final = re.compile(
    r"(?:^|_)(?:size|length|limit|max|maximum|bytes|timeout|delay|interval|ttl|age|wait|period|spread|rate)(?:_|$)"
)
_RATIO: Final = re.compile(r"\b(?:share|ratio|factor|phase|fraction|probability|percent)\b|\[0|%", re.IGNORECASE)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a source file that breaks a rule.

    Attributes:
        path: The file, as given to ``check``.
        line: Line number, from 1.
        kind: Key of ``KINDS``.
        text: Words found, or the name of the function and its gap.
    """

    path: pathlib.Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"


def sources(paths: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """Return the Python files among and below ``paths``, sorted."""
    found: set[pathlib.Path] = set()
    for path in paths:
        found.update(path.rglob("*.py") if path.is_dir() else [path])
    return sorted(path for path in found if not {"node_modules", ".venv"} & set(path.parts))


class Index:
    """Method names of every class of the packages, by class: a method that overrides another inherits its docstring.

    Args:
        files: Source files to read.
    """

    def __init__(self, files: Iterable[pathlib.Path]) -> None:
        self._methods: dict[str, set[str]] = {}
        self._bases: dict[str, set[str]] = {}
        self._protocol: set[str] = set(_CALLBACKS)
        self._documented: set[tuple[str, str]] = set()
        for path in files:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    self._add(node)

    def _add(self, node: ast.ClassDef) -> None:
        """Record the methods and bases of one class."""
        functions = [child for child in node.body if isinstance(child, _Function)]
        bases = {_last_name(base) for base in node.bases}
        self._methods.setdefault(node.name, set()).update(child.name for child in functions)
        self._bases.setdefault(node.name, set()).update(bases)
        if "Protocol" in bases or "ABC" in bases:
            self._protocol.update(child.name for child in functions)
            self._documented.update((node.name, child.name) for child in functions)

    def inherits(self, owner: ast.ClassDef, method: str) -> bool:
        """Return whether ``method`` of the class ``owner`` is documented by a base class, a Protocol or a library."""
        if (owner.name, method) in self._documented:
            return False
        if method in self._protocol:
            return True
        seen: set[str] = set()
        todo = {_last_name(base) for base in owner.bases}
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if method in self._methods.get(name, ()):
                return True
            todo |= self._bases.get(name, set())
        return False


def check(path: pathlib.Path, index: Index) -> Iterator[Finding]:
    """Yield each finding of one source file that needs no other program, all kinds but ``complex`` and ``private``.

    Args:
        path: Source file.
        index: Classes of the project, for methods that override others.

    Yields:
        Findings in no particular order.
    """
    source = path.read_text()
    tree = ast.parse(source)
    for line, text in _comments(source):
        yield from _words(path, line, text)
    for line, text in _docstrings(tree):
        yield from _words(path, line, text)
        plain = _without_code(text)
        if first := _FIRST.match(text.strip()):
            yield Finding(path, line, "first-word", _shorten(text[first.start() :]))
        for match in _ALONE.finditer(plain):
            yield Finding(path, line + text[: match.start()].count("\n"), "stand-alone", _around(text, match))
    if ast.get_docstring(tree) is None and tree.body:
        yield Finding(path, 1, "no-doc", "module")
    for owner, node in _members(tree):
        yield from _complete(path, owner, node, index)
    yield from _constants(path, tree)
    yield from _structure(path, tree)


def _words(path: pathlib.Path, line: int, text: str) -> Iterator[Finding]:
    """Yield a finding for each word of ``WORDS`` in a comment or docstring that begins at ``line``."""
    plain = _without_code(text)
    for kind, pattern in _WORDS.items():
        for match in pattern.finditer(plain):
            yield Finding(path, line + text[: match.start()].count("\n"), kind, _around(text, match))


def _without_code(text: str) -> str:
    """Return the text with quoted code blanked, of unchanged length."""
    return _CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _around(text: str, match: re.Match[str]) -> str:
    """Return the match with its neighbourhood, in one line."""
    return " ".join(text[max(0, match.start() - 30) : match.end() + 40].split())


def _shorten(text: str) -> str:
    """Return the beginning of a text in one line."""
    return " ".join(text.split())[:80]


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment, neighbouring lines joined, with the number of its first line."""
    block: list[str] = []
    began = last = -2
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _PRAGMA.match(token.string) or token.string.startswith("#!"):
            continue
        if token.start[0] != last + 1 or not token.line.lstrip().startswith("#"):
            if block:
                yield began, "\n".join(block)
            block, began = [], token.start[0]
        block.append(token.string.lstrip("#"))
        last = token.start[0]
    if block:
        yield began, "\n".join(block)


def _docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each string that stands as a statement: docstrings, and those below attributes and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def _last_name(node: ast.expr) -> str:
    """Return the last name of an expression like ``a.b[c]``: ``b``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _members(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, _Function | ast.ClassDef]]:
    """Yield public classes, functions and methods with their class; nothing of private classes."""
    for node in tree.body:
        if isinstance(node, _Function) and not node.name.startswith("_"):
            yield None, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield None, node
            for child in node.body:
                if isinstance(child, _Function) and (not child.name.startswith("_") or child.name == "__init__"):
                    yield node, child


def _decorators(node: _Function) -> set[str]:
    """Return the names of a function's decorators."""
    return {_last_name(item.func if isinstance(item, ast.Call) else item) for item in node.decorator_list}


def _complete(
    path: pathlib.Path, owner: ast.ClassDef | None, node: _Function | ast.ClassDef, index: Index
) -> Iterator[Finding]:
    """Yield the gaps in the docstring of one public class, function or method."""
    doc = ast.get_docstring(node) or ""
    name = f"{owner.name}.{node.name}" if owner else node.name
    if isinstance(node, ast.ClassDef):
        if not doc:
            yield Finding(path, node.lineno, "no-doc", f"class {name}")
        return
    decorators = _decorators(node)
    if decorators & {"overload", "setter", "deleter", "override"}:
        return
    if owner is not None and node.name != "__init__" and index.inherits(owner, node.name):
        return
    if owner is not None and node.name == "__init__":
        # Parameters of a constructor are described with the class.
        doc = f"{ast.get_docstring(owner) or ''}\n\n{doc}"
        yield from _parameters(path, name, node, doc, constructor=True)
        yield from _raises(path, name, node, doc)
        return
    if not doc:
        yield Finding(path, node.lineno, "no-doc", name)
        return
    plain_property = decorators & {"property", "cached_property"}
    if not plain_property:
        yield from _parameters(path, name, node, doc, constructor=False)
        yield from _returns(path, name, node, doc)
    yield from _raises(path, name, node, doc)
    if _type_of(node.returns) == "float" and not (_TIME.search(doc) or _RATIO.search(doc) or _NOT_TIME.search(doc)):
        yield Finding(path, node.lineno, "unit", f"{name}: result")


_NOT_TIME: Final = re.compile(r"\bbytes\b|\bnumber of\b|\bcount\b", re.IGNORECASE)


def _type_of(annotation: ast.expr | None) -> str:
    """Return ``int`` or ``float`` for an annotation of that type, None allowed beside it; else an empty string."""
    if annotation is None:
        return ""
    names = [part.strip() for part in ast.unparse(annotation).split("|")]
    names = [part for part in names if part != "None"]
    return names[0] if len(names) == 1 and names[0] in {"int", "float"} else ""


def _section(doc: str, *titles: str) -> str | None:
    """Return the text of a section such as ``Args:``, None if there is none."""
    match = re.search(rf"^[ ]*(?:{'|'.join(titles)}):\s*$(.*?)(?=^\S|\Z)", doc, re.MULTILINE | re.DOTALL)
    return match[1] if match else None


def _entry(section: str, name: str) -> str | None:
    """Return the entry of a parameter in a section, None if it has none."""
    match = re.search(
        rf"^(\s*)\*{{0,2}}{re.escape(name)}(?:\s*\([^)\n]*\))?:(.*?)(?=^\1\S|\Z)", section, re.MULTILINE | re.DOTALL
    )
    return match[2] if match else None


def _parameters(path: pathlib.Path, name: str, node: _Function, doc: str, *, constructor: bool) -> Iterator[Finding]:
    """Yield a finding for parameters without an entry, and one for each number without a unit.

    One line that names all of at most two parameters needs no section; a class may name those of its constructor in
    double backquotes in its text.
    """
    spec = node.args
    parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    parameters += [extra for extra in (spec.vararg, spec.kwarg) if extra is not None]
    if parameters and parameters[0].arg in {"self", "cls"}:
        parameters = parameters[1:]
    parameters = [parameter for parameter in parameters if not parameter.arg.startswith("_")]
    if not parameters:
        return
    sections = "\n".join(part for part in (_section(doc, "Args"), _section(doc, "Attributes")) if part)
    short = not constructor and "\n" not in doc.strip() and len(parameters) <= 2
    missing = []
    for parameter in parameters:
        entry = _entry(sections, parameter.arg)
        if entry is None:
            quoted = constructor and f"``{parameter.arg}``" in doc
            if not quoted and not (short and _named(doc, parameter.arg)):
                missing.append(parameter.arg)
            entry = doc if short else ""
        kind = _type_of(parameter.annotation)
        if not entry or not kind:
            continue
        timed = kind == "float" and not (_TIME.search(entry) or _RATIO.search(entry) or _NOT_TIME.search(entry))
        sized = kind == "int" and _NUMBERED.search(parameter.arg) and not _UNIT.search(entry)
        if timed or sized:
            yield Finding(path, node.lineno, "unit", f"{name}: {parameter.arg}")
    if missing:
        yield Finding(path, node.lineno, "args", f"{name}: {', '.join(missing)}")


def _named(doc: str, name: str) -> bool:
    """Return whether a line has the name of a parameter, whole or as separate words."""
    words = name.strip("_").replace("_", "[ _-]")
    return re.search(rf"\b{words}(?:s|es|'s)?\b", doc, re.IGNORECASE) is not None


def _returns(path: pathlib.Path, name: str, node: _Function, doc: str) -> Iterator[Finding]:
    """Yield a finding if a result is not described."""
    if node.returns is None or ast.unparse(node.returns) in {"None", "NoReturn", "Never", "Self"}:
        return
    if "contextmanager" in " ".join(_decorators(node)):
        return
    if _section(doc, "Returns", "Yields") is None and not re.match(r"(?:Return|Yield)s?\b", doc):
        yield Finding(path, node.lineno, "returns", name)


def _raises(path: pathlib.Path, name: str, node: _Function, doc: str) -> Iterator[Finding]:
    """Yield a finding for errors that the function raises itself and ``Raises:`` does not name."""
    section = _section(doc, "Raises") or ""
    missing = sorted(error for error in _raised(node) if not re.search(rf"\b{re.escape(error)}\b", section))
    if missing:
        yield Finding(path, node.lineno, "raises", f"{name}: {', '.join(missing)}")


def _raised(node: _Function) -> set[str]:
    """Return the names of errors raised in a function, without those that it handles or raises again."""
    found: set[str] = set()

    def visit(child: ast.AST, caught: frozenset[str]) -> None:
        if isinstance(child, ast.Lambda | ast.ClassDef | _Function):
            return
        if isinstance(child, ast.Try):
            names = {_last_name(part) for handler in child.handlers for part in _types(handler.type)}
            for statement in child.body:
                visit(statement, caught | names)
            for part in (*child.handlers, *child.orelse, *child.finalbody):
                visit(part, caught)
            return
        if isinstance(child, ast.Raise) and child.exc is not None:
            error = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            name = _last_name(error)
            if name[:1].isupper() and name not in caught | {"AssertionError", "NotImplementedError"}:
                found.add(name)
        for part in ast.iter_child_nodes(child):
            visit(part, caught)

    for statement in node.body:
        visit(statement, frozenset())
    return found


def _types(node: ast.expr | None) -> list[ast.expr]:
    """Return the exception types of an ``except`` clause."""
    if node is None:
        return []
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _constants(path: pathlib.Path, tree: ast.Module) -> Iterator[Finding]:
    """Yield a finding for each public numeric limit or time of a module without a unit in its docstring or comment."""
    lines = path.read_text().splitlines()
    for place, node in enumerate(tree.body):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None):
            continue
        name = node.target.id
        number = isinstance(node.value, ast.Constant) and type(node.value.value) in (int, float)
        if name.startswith("_") or not number or not _NUMBERED.search(name.lower()):
            continue
        follower = tree.body[place + 1] if place + 1 < len(tree.body) else None
        text = " ".join(lines[node.lineno - 1 : node.end_lineno])
        if isinstance(follower, ast.Expr) and isinstance(follower.value, ast.Constant):
            text += f" {follower.value.value!s}"
        above = node.lineno - 2
        while above >= 0 and lines[above].startswith("#"):
            text += lines[above]
            above -= 1
        words = text.partition("=")[2]
        if not _UNIT.search(words):
            yield Finding(path, node.lineno, "unit", name)


def _structure(path: pathlib.Path, tree: ast.Module) -> Iterator[Finding]:
    """Yield long functions, attributes set from outside, ``dict[Any, Any]`` and transports of type Any."""
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            yield from _length(path, node)
            yield from _writes(path, node, modules)
        elif isinstance(node, ast.Subscript) and ast.unparse(node) == "dict[Any, Any]":
            yield Finding(path, node.lineno, "any-dict", ast.unparse(node))
        named: list[tuple[str, ast.expr | None, int]] = []
        if isinstance(node, ast.arg):
            named.append((node.arg, node.annotation, node.lineno))
        elif isinstance(node, ast.AnnAssign):
            named.append((_last_name(node.target), node.annotation, node.lineno))
        elif isinstance(node, _Function):
            named.append((node.name, node.returns, node.lineno))
        for name, annotation, line in named:
            loose = annotation is not None and ast.unparse(annotation) in {"Any", "Any | None"}
            if loose and name.strip("_").endswith("transport"):
                yield Finding(path, line, "any-transport", name)


def _length(path: pathlib.Path, node: _Function) -> Iterator[Finding]:
    """Yield a finding if a function is longer than ``MAX_LINES`` without its docstring."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        documented = (first.end_lineno or first.lineno) - first.lineno + 1
    else:
        documented = 0
    lines = (node.end_lineno or node.lineno) - node.lineno + 1 - documented
    if lines > MAX_LINES:
        yield Finding(path, node.lineno, "long", f"{node.name}: {lines} lines")


def _writes(path: pathlib.Path, node: _Function, modules: set[str]) -> Iterator[Finding]:
    """Yield assignments to attributes of other objects than ``self``: ``late`` if made here, else ``foreign``."""
    made: set[str] = set()
    for child in _own_nodes(node):
        targets: list[ast.expr] = []
        if isinstance(child, ast.Assign):
            targets = [part for target in child.targets for part in _unpacked(target)]
        elif isinstance(child, ast.AnnAssign | ast.AugAssign):
            targets = [child.target]
        value = getattr(child, "value", None)
        # A class is called: `connection = Connection(…)`.
        is_made = isinstance(value, ast.Call) and _last_name(value.func).lstrip("_")[:1].isupper()
        for target in targets:
            if isinstance(target, ast.Name | ast.Attribute) and is_made:
                made.add(ast.unparse(target))
            if not isinstance(target, ast.Attribute):
                continue
            owner = ast.unparse(target.value)
            if owner in {"self", "cls"} or owner.partition(".")[0] in modules:
                continue
            kind = "late" if owner in made else "foreign"
            yield Finding(path, child.lineno, kind, f"{ast.unparse(target)} = …")


def _unpacked(target: ast.expr) -> list[ast.expr]:
    """Return the single targets of an assignment."""
    if isinstance(target, ast.Tuple | ast.List):
        return [part for element in target.elts for part in _unpacked(element)]
    return [target]


def _own_nodes(node: _Function) -> Iterator[ast.stmt]:
    """Yield the statements of a function in the order of their lines, nested functions excluded."""
    found: list[ast.stmt] = []
    todo: list[ast.AST] = list(node.body)
    while todo:
        child = todo.pop()
        if isinstance(child, _Function | ast.ClassDef):
            continue
        if isinstance(child, ast.stmt):
            found.append(child)
        todo.extend(ast.iter_child_nodes(child))
    yield from sorted(found, key=lambda child: child.lineno)


def _by_ruff(files: list[pathlib.Path]) -> Iterator[Finding]:
    """Yield the findings of ruff: complexity, and private names of other objects."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--exit-zero", "--no-cache", "--ignore-noqa"]
    command += ["--select", "C901,SLF001", "--config", f"lint.mccabe.max-complexity={MAX_BRANCHES}"]
    command += ["--output-format", "json", *map(str, files)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    for entry in found:
        kind = "complex" if entry["code"] == "C901" else "private"
        path = pathlib.Path(entry["filename"])
        path = path.relative_to(pathlib.Path.cwd()) if path.is_relative_to(pathlib.Path.cwd()) else path
        yield Finding(path, entry["location"]["row"], kind, entry["message"])


def main(arguments: list[str] | None = None) -> int:
    """Print the findings in the files of a command line.

    Args:
        arguments: Command line without the program's name; that of the process if None.

    Returns:
        Exit status: 1 if there is a finding, else 0.
    """
    parser = argparse.ArgumentParser(description="Measure prose and structure of Python files.")
    parser.add_argument("paths", nargs="*", type=pathlib.Path, help=f"files and folders ({' '.join(PACKAGES)})")
    parser.add_argument("--counts", action="store_true", help="print the numbers only")
    parser.add_argument("--only", default="", help="kinds, with commas: " + ", ".join(KINDS))
    options = parser.parse_args(arguments)
    only = {"words": set(WORDS), "docs": set(DOCS), "structure": set(STRUCTURE)}
    kinds = {kind for name in options.only.split(",") if name for kind in only.get(name, {name})} or set(KINDS)
    if kinds - set(KINDS):
        parser.error(f"unknown kind: {', '.join(sorted(kinds - set(KINDS)))}")
    files = sources(options.paths or [pathlib.Path(name) for name in PACKAGES])
    index = Index(sources(path for path in map(pathlib.Path, PACKAGES) if path.is_dir()) + files)
    found = [finding for path in files for finding in check(path, index)]
    if kinds & {"complex", "private"}:
        found += _by_ruff(files)
    found = sorted((one for one in found if one.kind in kinds), key=lambda one: (one.path, one.line, one.kind))
    if not options.counts:
        for finding in found:
            print(finding)
    numbers = collections.Counter(finding.kind for finding in found)
    print(
        f"{len(files)} files, {len(found)} findings: "
        + ", ".join(f"{kind} {numbers[kind]}" for kind in KINDS if kind in kinds)
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
