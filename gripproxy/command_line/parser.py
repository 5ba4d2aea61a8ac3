"""Parser of the command lines of all commands: errors are one line, with the nearest name that is known."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from gripproxy import __version__
from gripproxy.grip.nearest_name import nearest, nearest_of

__all__ = ["USAGE_ERROR", "CommandParser"]

USAGE_ERROR: Final = 2
"""Exit status of a command line that cannot be used."""

_CHOICE: Final = re.compile(r"(invalid choice: '(?P<given>[^']*)') \(choose from (?P<known>.*)\)", re.DOTALL)
_UNKNOWN: Final = re.compile(r"unrecognized arguments: (?P<first>\S+).*", re.DOTALL)


class CommandParser(argparse.ArgumentParser):
    """Parser whose errors are one line with the help to read, exit status 2, and that has ``--version``.

    Args:
        words: those of ``argparse.ArgumentParser``.
        words_known: names of commands, one of which may have been meant by an argument that is none.
        version_flags: options that print the version; none where the name has another meaning.
        options: those of ``argparse.ArgumentParser``.
    """

    def __init__(
        self,
        *words: Any,
        words_known: Iterable[str] = (),
        version_flags: Sequence[str] = ("--version",),
        **options: Any,
    ) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(*words, **options)
        self._words_known = tuple(words_known)
        if self.add_help and version_flags:
            version = f"%(prog)s {__version__}"
            self.add_argument(*version_flags, action="version", version=version, help="print the version, and end")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            if self._words_known:
                return f"there is no command '{word}'{nearest(word, self._words_known)}"
            return f"unexpected argument '{word}'"
        name = word.partition("=")[0]
        # Without the dashes, which all names have and which would make each one like any other.
        bare = {option.lstrip("-"): option for option in self.offered() if option.startswith("--")}
        meant = nearest_of(name.lstrip("-"), bare)
        return f"there is no option '{name}'" + (f": did you mean '{bare[meant]}'?" if meant else "")

    def offered(self) -> Iterable[str]:
        """Yield the options that the help shows, those of commands below too."""
        for action in self._actions:
            if action.help is not argparse.SUPPRESS:
                yield from action.option_strings
            if isinstance(action.choices, dict):
                for below in action.choices.values():
                    if isinstance(below, CommandParser):
                        yield from below.offered()

    def error(self, message: str) -> NoReturn:
        """End the process.

        Args:
            message: the fault, as ``argparse`` has it.
        """
        unknown, choice = _UNKNOWN.fullmatch(message), _CHOICE.search(message)
        if unknown is not None:
            message = self._unknown(unknown["first"])
        if choice is not None:
            known = [name.strip().strip("'") for name in choice["known"].split(",")]
            near = nearest(choice["given"], known)
            message = f"{message[: choice.end(1)]}{near} (choose from {', '.join(known)})"
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message} (see {self.prog} --help)\n")
