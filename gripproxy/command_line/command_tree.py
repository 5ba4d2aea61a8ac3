"""Command tree: commands, options and operands of a command line as records, read from its parsers.

Completion scripts and manual pages are made of it: they cannot differ from the parsers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Command", "Operand", "Option", "command_of"]

FILES = ("FILE", "STORE", "COPY", "DIR", "ITEMS")
"""Names of values that are paths."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option.

    Attributes:
        names: as ``-h`` and ``--help``.
        value: name of its value; empty if it has none.
        choices: all values that it may have; empty if any.
        help: the help text.
        repeatable: it may be given more than once.
    """

    names: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    help: str
    repeatable: bool = False

    @property
    def is_path(self) -> bool:
        """True if the value is the path of a file or folder."""
        return self.value in FILES


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument without a name.

    Attributes:
        name: as usage texts have it.
        help: the help text.
        optional: it may be left out.
        several: there may be more than one.
        choices: all values that it may have; empty if any.
    """

    name: str
    help: str
    optional: bool
    several: bool
    choices: tuple[str, ...] = ()

    @property
    def is_path(self) -> bool:
        """True if it is the path of a file or folder."""
        return self.name in FILES


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        name: the word of the command; that of the program for the first one.
        summary: one line about it.
        epilog: text behind the options.
        options: in the order of the help.
        operands: in order.
        commands: those below it.
    """

    name: str
    summary: str
    epilog: str = ""
    options: tuple[Option, ...] = ()
    operands: tuple[Operand, ...] = ()
    commands: tuple[Command, ...] = field(default=())

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
        """Yield each command with the words that lead to it, this one first.

        Args:
            path: words that lead to this one.
        """
        here = (*path, self.name)
        yield here, self
        for command in self.commands:
            yield from command.walk(here)


def command_of(
    name: str, parser: argparse.ArgumentParser, summary: str = "", below: Mapping[str, Command] | None = None
) -> Command:
    """Return the command of a parser, with those of its subparsers.

    Args:
        name: of the command.
        parser: its parser.
        summary: one line about it; by default the parser's description.
        below: further commands, which the parser does not know.
    """
    options: list[Option] = []
    operands: list[Operand] = []
    commands: list[Command] = []
    # argparse has no public way to its actions; these names have been the same since Python 2.7.
    for action in parser._actions:  # noqa: SLF001
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            summaries = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
            commands += [command_of(word, each, summaries.get(word, "")) for word, each in action.choices.items()]
            continue
        text = (action.help or "") % {"prog": parser.prog, "default": action.default} if action.help else ""
        choices = tuple(str(choice) for choice in action.choices or ())
        if action.option_strings:
            value = "" if action.nargs == 0 else _metavar(action)
            repeatable = isinstance(action, argparse._AppendAction)  # noqa: SLF001
            options.append(Option(tuple(action.option_strings), value, choices, text, repeatable))
        else:
            several = action.nargs in ("*", "+")
            operands.append(Operand(_metavar(action), text, action.nargs in ("?", "*"), several, choices))
    commands += list((below or {}).values())
    about = summary or parser.description or ""
    return Command(name, about, parser.epilog or "", tuple(options), tuple(operands), tuple(commands))


def _metavar(action: argparse.Action) -> str:
    metavar = action.metavar
    if isinstance(metavar, tuple):
        return " ".join(metavar)
    return metavar or action.dest.upper().replace("_", "-")
