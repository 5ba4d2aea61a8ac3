"""gripproxy with one cure against hostile peers undone, so that the tests can be seen to notice.

Each mutant changes classes of gripproxy in the process that calls it; tests.faults.launcher does that in workers and in
the handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gripproxy.backend import frame_reader
from gripproxy.backend.destination import Destination
from gripproxy.backend.frame_reader import FrameReader
from gripproxy.backend.frame_turns import FrameTurns
from gripproxy.delivery.sharing import Sharing
from gripproxy.delivery.turns import Turns
from gripproxy.grip import item, json_patch
from gripproxy.grip.bounds import Bounds
from gripproxy.grip.item_cache import Shared
from gripproxy.grip.template import Template
from gripproxy.process import zmq_reader
from gripproxy.routing.route import Route
from handler.dispatch import dedupe

__all__ = ["MUTANTS", "Mutant"]

BOUNDLESS: Final = 2**60
"""A bound that is none."""


class Mutant(NamedTuple):
    """One cure undone.

    ``undo`` does it, and the ``attack`` of that ``role`` has a complaint with ``sign`` in it after so many
    ``seconds``.
    """

    undo: Callable[[], None]
    role: str
    attack: str
    sign: str
    seconds: float = 5.0


def _work_alone() -> None:
    """Each session's work on an item is done anew, and all of it in one turn."""
    Sharing.of = lambda self, item: Shared(BOUNDLESS)  # type: ignore[method-assign]
    Turns.late = lambda self: False  # type: ignore[method-assign]


def patches_each_anew() -> None:
    """A patch of any size is applied for each long-poll, however many hold the same document."""
    _work_alone()
    json_patch.OPS_MAX = json_patch.PATCH_MAX = json_patch.WORK_MAX = BOUNDLESS  # type: ignore[misc]


def parses_each_anew() -> None:
    """A template of any number of directives is parsed for each session."""
    _work_alone()
    make = Template.__init__

    def init(self: Template, text: bytes, most: int = BOUNDLESS, more: bool = False, offset: int = 0) -> None:
        make(self, text, BOUNDLESS, more, offset)

    Template.__init__ = init  # type: ignore[method-assign]


def sends_any_result() -> None:
    """What a filter makes of an item has no bound."""
    parses_each_anew()


def inflates_at_once() -> None:
    """All that a client has sent is inflated, whether the other side takes it or not."""
    hold = FrameReader._hold

    def keep_on(self: FrameReader, why: int) -> None:
        if why != frame_reader.STOPPED:
            hold(self, why)

    FrameReader._hold = keep_on  # type: ignore[method-assign]
    FrameTurns.spend = lambda self, cost: True  # type: ignore[method-assign]
    frame_reader.SHARE = BOUNDLESS  # type: ignore[attr-defined]


def keeps_long_ids() -> None:
    """Ids of any length are taken, and remembered whole."""
    dedupe.KEY_MAX = BOUNDLESS  # type: ignore[misc]
    make = Bounds.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[Bounds], settings: Any) -> Bounds:
        known = make(cls, settings)
        return cls(BOUNDLESS, BOUNDLESS, BOUNDLESS, known.item)

    Bounds.of = classmethod(of)  # type: ignore[method-assign,assignment]


def reads_by_number() -> None:
    """A turn of a ZeroMQ socket is 500 messages, of any length."""
    zmq_reader.TURN_BYTES = BOUNDLESS  # type: ignore[misc]


def follows_any_link() -> None:
    """Links of untrusted targets lead where those of trusted ones do."""
    make = Destination.__init__

    def init(self: Destination, route: Route, base: bytes, link: bytes, untrusted: bool, sign_foreign: bool) -> None:
        make(self, route, base, link, False, sign_foreign)

    Destination.__init__ = init  # type: ignore[method-assign]


def sends_any_status() -> None:
    """A publisher's status code is what the client gets, whatever it is."""
    item.FINAL_MIN = 0  # type: ignore[attr-defined]


MUTANTS: Final[dict[str, Mutant]] = {
    "patches-each-anew": Mutant(patches_each_anew, "publisher", "costly-patch", "late: "),
    "parses-each-anew": Mutant(parses_each_anew, "publisher", "template-of-percents", "late: "),
    "sends-any-result": Mutant(sends_any_result, "publisher", "template-that-grows", " bytes, its bound is "),
    "inflates-at-once": Mutant(inflates_at_once, "client", "compression-bombs", " bytes, its bound is "),
    "keeps-long-ids": Mutant(keeps_long_ids, "publisher", "long-names", " bytes, its bound is ", 12.0),
    "reads-by-number": Mutant(reads_by_number, "publisher", "bursts-sub", "late: "),
    "follows-any-link": Mutant(follows_any_link, "backend", "forbidden-links", "127.0.0.2 was asked"),
    "sends-any-status": Mutant(sends_any_status, "publisher", "statuses", "a client got"),
}
"""All mutants by name."""
