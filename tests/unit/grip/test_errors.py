"""gripproxy.grip.errors: five faults, each below one base and below no other; every exception has its place."""

from __future__ import annotations

import ast
import builtins
import importlib
import re

import pytest

from gripproxy.grip import errors
from tests.support.service import ROOT

FAULTS = (
    errors.ClientError,
    errors.BackendError,
    errors.PublisherError,
    errors.OperatorError,
    errors.InternalError,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_one_base_and_is_none_of_the_others(fault: type[errors.GripproxyError]) -> None:
    assert fault.__bases__ == (errors.GripproxyError,)
    assert [other for other in FAULTS if issubclass(fault, other)] == [fault]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_module_opens_with_the_tree(fault: type[errors.GripproxyError]) -> None:
    assert errors.__doc__ is not None
    assert f"── {fault.__name__} " in errors.__doc__


def _classes() -> list[tuple[str, str]]:
    """Module and name of each class of gripproxy and handler whose name or base looks like an exception's."""
    found = []
    for package in ("gripproxy", "handler"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found += [
                (module, node.name)
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ClassDef) and any(_is_exception(base) for base in node.bases)
            ]
    return found


def _is_exception(base: ast.expr) -> bool:
    name = ast.unparse(base).rpartition(".")[2]
    builtin = getattr(builtins, name, None)
    return name.endswith("Error") or (isinstance(builtin, type) and issubclass(builtin, BaseException))


@pytest.mark.parametrize(("module", "name"), _classes())
def test_each_exception_has_its_place_in_the_tree(module: str, name: str) -> None:
    error = getattr(importlib.import_module(module), name)
    assert issubclass(error, errors.GripproxyError)
    assert len([fault for fault in FAULTS if issubclass(error, fault)]) <= 1
    if name == "GripproxyError":
        return
    assert errors.__doc__ is not None
    lines = errors.__doc__.splitlines()
    [place] = [i for i, line in enumerate(lines) if re.search(rf"── (?:\w+, )*{name}\b", line)]
    depth = lines[place].index("── ")
    # The next line above with less indentation is the base.
    [parent, *_] = [line for line in reversed(lines[:place]) if line.strip(" │") and _depth(line) < depth]
    assert parent.strip(" │├└─").split()[0].rstrip(",") == error.__mro__[1].__name__


def _depth(line: str) -> int:
    return line.index("── ") if "── " in line else 0
