"""Command lines: parser, completion scripts and manual pages of all programs (docs/cli.md).

``parser`` has one line for an error, with the nearest name that is known; ``command_tree`` reads the parsers of a
program; ``completion`` and ``man_page`` make the scripts of the shells and the manual page of the tree.

Knows no command: those of ``gripproxy`` are in ``gripproxy.cli``, those of ``gripproxy-stats`` in ``spark_stats``.
"""
