"""Limit of open files of a process."""

from __future__ import annotations

import resource
from typing import Final

from gripproxy.process.log import log

__all__ = ["FILE_LIMIT_MAX", "raise_file_limit"]

FILE_LIMIT_MAX: Final = 1_048_576
"""Descriptors asked for when the hard limit is unlimited: the kernel's own default ceiling (fs.nr_open)."""


def raise_file_limit() -> int:
    """Return the limit of open files, in descriptors, after raising it to the hard limit.

    Children inherit it. Source: setrlimit(2); a held client costs one descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return FILE_LIMIT_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("limit of open files not raised", limit=soft, wanted=wanted, reason=error)
        return soft
    return wanted
