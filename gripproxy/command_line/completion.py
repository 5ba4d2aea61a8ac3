"""Completion scripts for bash, zsh and fish, made of the command tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gripproxy.command_line.command_tree import Command, Option

__all__ = ["SHELLS", "bash", "fish", "zsh"]


def bash(root: Command) -> str:
    """Return the script for bash.

    Args:
        root: the program.
    """
    function = f"_{root.name.replace('-', '_')}"
    cases = [
        f'        "{" ".join(path)}") words="{_words(command)}"; files="{_takes_files(command)}" ;;'
        for path, command in root.walk()
    ]
    values = [
        f"        {'|'.join(option.names)}) {_bash_value(option)} ;;" for option in _distinct(root) if option.value
    ]
    steps = " | ".join(sorted({f'"{" ".join(path)}"' for path, _ in root.walk()}))
    return "\n".join(
        [
            f"# bash completion of {root.name}: put it into /usr/share/bash-completion/completions/{root.name}",
            f"{function}() {{",
            '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path words files word',
            "    COMPREPLY=()",
            '    case "$before" in',
            *values,
            "    esac",
            f'    path="{root.name}"',
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            f'        case "$path $word" in {steps}) path="$path $word" ;; esac',
            "    done",
            '    case "$path" in',
            *cases,
            "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            '    if [[ $files && $current != -* ]]; then COMPREPLY+=($(compgen -f -- "$current")); fi',
            "}",
            f"complete -o filenames -F {function} {root.name}",
            "",
        ]
    )


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); return'
    return 'COMPREPLY=($(compgen -f -- "$current")); return' if option.is_path else "return"


def zsh(root: Command) -> str:
    """Return the script for zsh.

    Args:
        root: the program.
    """
    lines = [f"#compdef {root.name}", ""]
    for path, command in root.walk():
        lines += _zsh_function(path, command)
    # The same text serves as a file of fpath, and in `source <(…)`.
    lines += [f'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then {_function(root.name)} "$@"']
    lines += [f"else compdef {_function(root.name)} {root.name}; fi", ""]
    return "\n".join(lines)


def _function(*path: str) -> str:
    return "_" + "_".join(path).replace("-", "_")


def _zsh_function(path: tuple[str, ...], command: Command) -> Iterator[str]:
    yield f"{_function(*path)}() {{"
    arguments = [_zsh_option(option, name) for option in command.options for name in option.names]
    operands = [
        f"'{'*' if each.several else ''}:{_quoted(each.name)}:{_zsh_kind(each.is_path, each.choices)}'"
        for each in command.operands
    ]
    if command.commands:
        yield "    local -a commands; local state line curcontext=$curcontext"
        yield "    commands=("
        for each in command.commands:
            yield f"        '{each.name}:{_quoted(each.summary)}'"
        yield "    )"
        yield f"    _arguments -C {' '.join(arguments)} '1: :->command' '*:: :->rest'"
        yield "    case $state in"
        yield "        command) _describe command commands ;;"
        yield "        rest) case $line[1] in"
        for each in command.commands:
            yield f"            {each.name}) {_function(*path, each.name)} ;;"
        yield "        esac ;;"
        yield "    esac"
    else:
        yield f"    _arguments {' '.join([*arguments, *operands])}"
    yield "}"
    yield ""


def _zsh_option(option: Option, name: str) -> str:
    repeat = "*" if option.repeatable else ""
    value = ""
    if option.value:
        value = f":{_quoted(option.value)}:{_zsh_kind(option.is_path, option.choices)}"
        name += "=" if name.startswith("--") else "+"
    return f"'{repeat}{name}[{_quoted(option.help)}]{value}'"


def _zsh_kind(path: bool, choices: tuple[str, ...]) -> str:
    return f"({' '.join(choices)})" if choices else "_files" if path else " "


def _quoted(text: str) -> str:
    """Return text for a specification of zsh within single quotes."""
    text = text.replace("\\", "\\\\").replace("'", "'\\''")
    for character in "[]:":
        text = text.replace(character, "\\" + character)
    return text


def fish(root: Command) -> str:
    """Return the script for fish.

    Args:
        root: the program.
    """
    lines = [f"# fish completion of {root.name}", f"complete -c {root.name} -f"]
    for path, command in root.walk():
        words = path[1:]
        if not words:
            here = f"not __fish_seen_subcommand_from {' '.join(each.name for each in root.commands)}"
        else:
            seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
            below = " ".join(each.name for each in command.commands)
            here = seen + (f"; and not __fish_seen_subcommand_from {below}" if below else "")
        start = f"complete -c {root.name} -n '{here}'"
        lines += [f"{start} -a {each.name} -d '{_fish_quoted(each.summary)}'" for each in command.commands]
        lines += [f"{start}{_fish_option(option)}" for option in command.options]
        lines += [f"{start} -a '{' '.join(each.choices)}'" for each in command.operands if each.choices]
        if _takes_files(command):
            lines.append(f"{start} -F")
    return "\n".join([*lines, ""])


def _fish_option(option: Option) -> str:
    text = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option.names)
    if option.value:
        text += " -r -F" if option.is_path else " -x"
        if option.choices:
            text += f" -a '{' '.join(option.choices)}'"
    return f"{text} -d '{_fish_quoted(option.help)}'"


def _fish_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _words(command: Command) -> str:
    names = [each.name for each in command.commands] + [name for option in command.options for name in option.names]
    return " ".join([*names, *(choice for operand in command.operands for choice in operand.choices)])


def _takes_files(command: Command) -> str:
    return "yes" if any(operand.is_path for operand in command.operands) else ""


def _distinct(root: Command) -> Iterator[Option]:
    """Yield the options of all commands that take a value, each name once: the first one that has it."""
    seen: set[str] = set()
    for _, command in root.walk():
        for option in command.options:
            if option.value and not seen & set(option.names):
                seen.update(option.names)
                yield option


SHELLS: Final[dict[str, Callable[[Command], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""Scripts by shell."""
