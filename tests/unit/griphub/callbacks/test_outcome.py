"""Outcomes: each failure has a class, or is this machine's."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from griphub.callbacks.outcome import class_of, is_shortage
from griphub.sender.failure_class import FailureClass
from gripproxy.backend.outages import DESCRIPTORS
from gripproxy.backend.pool import kind_of
from gripproxy.grip.stats_format import FAILURES


def test_each_kind_of_failure_has_a_class() -> None:
    for kind in FAILURES:
        assert (class_of(kind) is None) == (kind == DESCRIPTORS)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), FailureClass.UNREACHABLE),
        (ConnectionResetError(errno.ECONNRESET, "reset"), FailureClass.UNREACHABLE),
        (OSError(errno.ENETUNREACH, "unreachable"), FailureClass.UNREACHABLE),
        (TimeoutError("late"), FailureClass.TIMEOUT),
        (ssl.SSLCertVerificationError("another name"), FailureClass.TLS),
        (ssl.SSLError("another protocol"), FailureClass.TLS),
        (socket.gaierror(socket.EAI_NONAME, "no name"), FailureClass.UNRESOLVED),
    ],
)
def test_a_failed_connect_has_the_class_of_its_cause(error: Exception, failure: FailureClass) -> None:
    assert class_of(kind_of(error), error) is failure
    assert not is_shortage(error)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_lack_of_means_is_this_machines_fault(number: int) -> None:
    error = OSError(number, "short")
    assert is_shortage(error)
    assert class_of(kind_of(error), error) is None
