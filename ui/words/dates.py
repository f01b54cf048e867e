"""Dates and times in the server's local time."""

from __future__ import annotations

from datetime import datetime

__all__ = ["local_time", "short_time"]


def local_time(created_utc: str) -> str:
    """The server's local time, to the second, with its offset from UTC. A text that is no ISO 8601
    time is returned unchanged."""
    try:
        local = datetime.fromisoformat(created_utc).astimezone()
    except ValueError:
        return created_utc
    offset = f"{local:%z}" if local.utcoffset() else ""
    return f"{local:%Y-%m-%d %H:%M:%S} UTC{offset}"


def short_time(local: str) -> str:
    """Month, day, hour and minute of a `local_time`."""
    return local[5:16]
