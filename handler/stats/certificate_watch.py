"""Certificate watch: validity of the TLS certificates in use, for the log and the metrics.

Certificates are read from their files, by the handler and not by the workers: there is one handler, and a parser of
certificates costs megabytes that each worker would need. Files that cannot be used are the business of the processes
that use them; here they only have no validity.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from cryptography import x509

from gripproxy.process.log import log

__all__ = ["CertificateWatch", "Validity", "ValidityLog", "certificate_files", "read_validity"]

FILES_MAX: Final = 1000
"""Greatest number of certificate files that are read."""

SIZE_MAX: Final = 1_000_000
"""Bytes of the largest file that is read; a chain has some thousand."""

INTERVAL: Final = 2.0
"""Seconds between two looks."""

SOON: Final = 14 * 86400.0
"""Seconds before the end of a certificate from which on it expires soon, or the last tenth of its life, if that is
shorter: a certificate of six days is renewed on its last."""

REMIND_SOON: Final = 86400.0
REMIND_INVALID: Final = 3600.0
"""Seconds between two warnings of one certificate."""

Stamp = tuple[int, int]


class Validity(NamedTuple):
    """Validity of a certificate and its chain, in seconds since 1970.

    Attributes:
        name: server name, ``default_<port>``, or the key of the configuration.
        path: file of the certificate.
        begins: when all certificates of the file have become valid.
        ends: when the first one of them expires.
    """

    name: str
    path: str
    begins: float
    ends: float


def certificate_files(directory: str) -> dict[str, str]:
    """Return the certificates with a key in ``directory``, by name; none if it cannot be read."""
    names: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        names.update(entry.name for entry in entries)
    stems = sorted(name.removesuffix(".crt") for name in names if name.endswith(".crt"))
    found = [stem for stem in stems if f"{stem}.key" in names][:FILES_MAX]
    return {stem: os.path.join(directory, f"{stem}.crt") for stem in found}


def read_validity(name: str, path: str) -> Validity | None:
    """Return the validity of a certificate file.

    Args:
        name: that the validity gets.
        path: of the file, PEM.

    Returns:
        None if it holds no certificate that can be read.
    """
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > SIZE_MAX:
            return None
        with open(path, "rb") as file:
            chain = x509.load_pem_x509_certificates(file.read())
    except (OSError, ValueError):
        return None
    begins = max(each.not_valid_before_utc for each in chain).timestamp()
    ends = min(each.not_valid_after_utc for each in chain).timestamp()
    return Validity(name, path, begins, ends)


class ValidityLog:
    """Log events about certificates: each condition when it begins, and again after a while."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], tuple[float, float]] = {}
        """End of the certificate, and time of the last event, by name and event."""

    def look(self, found: Iterable[Validity], now: float) -> None:
        """Log the events that are due.

        Args:
            found: certificates in use.
            now: seconds since 1970.
        """
        told: dict[tuple[str, str], tuple[float, float]] = {}
        for each in found:
            event = _event(each, now)
            if not event:
                continue
            last = self._told.get((each.name, event))
            pause = REMIND_SOON if event == "certificate expires soon" else REMIND_INVALID
            if last is None or last[0] != each.ends or now - last[1] >= pause:
                last = each.ends, now
                _tell(each, event)
            told[each.name, event] = last
        self._told = told


def _event(each: Validity, now: float) -> str:
    """Return the name of the event for the state of a certificate, empty if it is valid for long."""
    if now >= each.ends:
        return "certificate expired"
    if now < each.begins:
        return "certificate not valid yet"
    if each.ends - now < min(SOON, (each.ends - each.begins) / 10):
        return "certificate expires soon"
    return ""


def _tell(each: Validity, event: str) -> None:
    """Write the log line of ``event``."""
    fields = {"name": each.name, "file": each.path}
    if event == "certificate expires soon":
        log.warning(event, "renew it", **fields, expires=_date(each.ends))
    elif event == "certificate expired":
        log.error(event, "clients refuse it: renew it", **fields, expired=_date(each.ends))
    else:
        log.error(event, "clients refuse it: look at the clock of this machine", **fields, begins=_date(each.begins))


def _date(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class CertificateWatch:
    """Reads certificates again when they change, and logs and reports their validity.

    Args:
        files: returns the files in use, by name; called in a thread.
    """

    def __init__(self, files: Callable[[], Mapping[str, str]]) -> None:
        self._files = files
        self._known: dict[str, tuple[Stamp, Validity | None]] = {}
        self._log = ValidityLog()
        self._task: asyncio.Task[None] | None = None
        self.validities: Sequence[Validity] = ()
        """Certificates found by the last look, the first to expire first."""

    def open(self) -> None:
        """Look now, and every INTERVAL from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="certificate watch")

    def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()

    def read(self) -> list[Validity]:
        """Return the certificates in use, the first to expire first. Reads files that have changed."""
        known: dict[str, tuple[Stamp, Validity | None]] = {}
        for name, path in self._files().items():
            try:
                status = os.stat(path)
            except OSError:
                continue
            stamp = (status.st_ino, status.st_ctime_ns)
            before = self._known.get(path)
            known[path] = before if before and before[0] == stamp else (stamp, read_validity(name, path))
        self._known = known
        return sorted((each for _, each in known.values() if each is not None), key=lambda each: each.ends)

    async def _run(self) -> None:
        while True:
            # In a thread: the file system of the certificates may stall.
            self.validities = await asyncio.to_thread(self.read)
            self._log.look(self.validities, time.time())
            await asyncio.sleep(INTERVAL)
