"""Caches broken on purpose, so that the validator of their reads can be seen to notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from griphub.client import snapshot_cache_state
from griphub.client.cached_value import CachedValue, mutation_of
from griphub.client.key_range import KeyRange
from griphub.client.region import Region
from griphub.client.watch_messages import Version
from tests.support.small_hub import EPOCH
from tests.support.watch_hub import WatchHub

__all__ = ["MUTANTS", "PROMISE"]

PROMISE: Final = "region"
"""Promise that all of them break."""

Patch = pytest.MonkeyPatch


def handover_without_overlap(patch: Patch, hub: WatchHub) -> None:
    """A new owner takes the values of the old one for those of now, and watches from now on."""
    init = snapshot_cache_state._Feed.__init__

    def from_now_on(self: Any, number: int, range: KeyRange, regions: Any) -> None:
        now = Version(EPOCH, hub.newest)
        init(self, number, range, [region.raised(region.top, now) for region in regions])

    patch.setattr(snapshot_cache_state._Feed, "__init__", from_now_on)


def clipped_range(patch: Patch, hub: WatchHub) -> None:
    """Knowledge that is divided loses its least key."""
    clip = Region.clip

    def clipped(self: Region[CachedValue], range: KeyRange) -> Region[CachedValue]:
        keys = [key for key, _ in self.items(range, self.top)]
        if range == self.range or not keys:
            return clip(self, range)
        return replace(clip(self, KeyRange(keys[0] + "!", range.high)), range=range)

    patch.setattr(Region, "clip", clipped)


def keeps_deleted_values(patch: Patch, hub: WatchHub) -> None:
    """A deletion changes nothing."""

    def put_only(event: Any) -> Any:
        return mutation_of(event) if event.op == "put" else None

    patch.setattr(snapshot_cache_state, "mutation_of", put_only)


MUTANTS: Final[dict[str, Callable[[Patch, WatchHub], None]]] = {
    "handover-without-overlap": handover_without_overlap,
    "clipped-range": clipped_range,
    "keeps-deleted-values": keeps_deleted_values,
}
"""All mutants by name."""
