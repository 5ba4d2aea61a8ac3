"""Options of the sender on its command line."""

from __future__ import annotations

from griphub.processes.sender_commands import SenderOptions


def test_options_are_the_same_behind_the_command_line() -> None:
    for options in (
        SenderOptions(),
        SenderOptions(("10.0.0.0/8",), ("10.1.0.0/16", "::1"), "/etc/ca.pem", 2.5, 3, 0.1, 9.0, 1, 2, 3),
    ):
        assert SenderOptions.of(options.text) == options
