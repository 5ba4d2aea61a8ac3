"""Requests about soft topics to a hub, and readings of the answers."""

from __future__ import annotations

import json
from typing import Any

from tests.support.hub_api import HubApi, Response

__all__ = ["append", "ingest", "objects", "progress", "reset"]


def append(key: str, version: int, data: Any = None, **members: Any) -> dict[str, Any]:
    """Return the line of an event."""
    return {"append": {"key": key, "version": str(version), "data": version if data is None else data, **members}}


def progress(version: int, low: str | None = None, high: str | None = None) -> dict[str, Any]:
    """Return the line of progress."""
    return {"progress": {"low": low, "high": high, "version": str(version)}}


def reset(low: str | None = None, high: str | None = None) -> dict[str, Any]:
    """Return the line of a reset."""
    return {"reset": {"low": low, "high": high}}


async def ingest(hub: HubApi, topic: str, *lines: dict[str, Any], epoch: str = "", **headers: str) -> Response:
    """Send lines to a soft topic."""
    body = "".join(json.dumps(line) + "\n" for line in lines)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    query = f"?epoch={epoch}" if epoch else ""
    return await hub.request(
        "POST", f"/topics/{topic}/ingest{query}", body, {"Content-Type": "application/x-ndjson", **named}
    )


def objects(answer: Response) -> list[Any]:
    """Return the objects of a watch, of an event stream too."""
    if answer.headers["content-type"] == "text/event-stream":
        return [json.loads(block["data"]) for block in answer.blocks]
    return answer.lines
