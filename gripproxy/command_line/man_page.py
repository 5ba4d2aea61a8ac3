"""Manual page in the man macros of roff (man(7)), made of the command tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gripproxy.command_line.command_tree import Command, Option

__all__ = ["man_page"]


def man_page(root: Command, version: str, sections: Sequence[tuple[str, str]] = ()) -> str:
    """Return the page of section 1 of a program.

    Args:
        root: the program.
        version: of the program.
        sections: further sections, as heading and text.
    """
    lines = [
        f'.TH {root.name.upper()} 1 "" "{_escaped(f"{root.name} {version}")}" "User Commands"',
        ".SH NAME",
        f"{_escaped(root.name)} \\- {_escaped(_first(root.summary))}",
        ".SH SYNOPSIS",
        f".B {_escaped(root.name)}",
        "[\\fIOPTION\\fR]...",
    ]
    if root.commands:
        lines += [".br", f".B {_escaped(root.name)}", "\\fICOMMAND\\fR [\\fIOPTION\\fR]..."]
    lines += [".SH DESCRIPTION", _escaped(root.summary), ".SH OPTIONS", *_options(root.options)]
    if root.commands:
        lines.append(".SH COMMANDS")
        for path, command in root.walk():
            if len(path) > 1:
                lines += _command(path[1:], command)
    for heading, text in sections:
        lines += [f".SH {heading}", *_text(text)]
    return "\n".join([*lines, ""])


def _command(path: tuple[str, ...], command: Command) -> Iterator[str]:
    operands = [f"[{each.name}]" if each.optional else each.name for each in command.operands]
    several = ["..." if each.several else "" for each in command.operands]
    words = "".join(f" {name}{more}" for name, more in zip(operands, several, strict=True))
    yield f'.SS "{_escaped(" ".join(path))}{_escaped(words)}"'
    yield _escaped(command.summary)
    for operand in command.operands:
        if operand.help:
            yield ".TP"
            yield f"\\fI{_escaped(operand.name)}\\fR"
            yield _escaped(operand.help)
    yield from _options([option for option in command.options if option.names[0] != "-h"])
    if command.epilog:
        yield ".PP"
        yield from _text(command.epilog)


def _options(options: Sequence[Option]) -> Iterator[str]:
    for option in options:
        value = f" \\fI{_escaped(option.value)}\\fR" if option.value else ""
        yield ".TP"
        yield ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names) + value
        yield _escaped(option.help)


def _text(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield _escaped(line.strip()) or ".PP"


def _first(text: str) -> str:
    """Return the first sentence, without its full stop."""
    return text.partition(". ")[0].rstrip(".")


def _escaped(text: str) -> str:
    """Return text in which no character means something to roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return "\\&" + text if text[:1] in (".", "'") else text
