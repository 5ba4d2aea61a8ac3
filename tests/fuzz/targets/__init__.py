"""The targets, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets.frames import FRAMES
from tests.fuzz.targets.http1 import REQUEST, RESPONSE
from tests.fuzz.targets.ingest_lines import INGEST_LINES
from tests.fuzz.targets.items import ITEM_JSON, TNETSTRING
from tests.fuzz.targets.pipe import PIPE
from tests.fuzz.targets.websocket_events import EVENTS, OUTBOX

__all__ = ["TARGETS"]

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (REQUEST, RESPONSE, FRAMES, TNETSTRING, ITEM_JSON, PIPE, EVENTS, OUTBOX, INGEST_LINES)
}
