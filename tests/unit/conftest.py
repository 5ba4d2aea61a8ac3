"""Properties are checked with the same examples each time: what fails here fails everywhere."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("unit")
