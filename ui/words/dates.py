"""Dates and times in the server's local time."""

from __future__ import annotations

from datetime import datetime

__all__ = ["local_time", "short_time"]


def local_time(created_utc: str) -> str:
    """The server's local time, to the second, with its offset from UTC."""
    try:
        at = datetime.fromisoformat(created_utc).astimezone()
    except ValueError:
        return created_utc
    offset = f"{at:%z}" if at.utcoffset() else ""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC{offset}"


def short_time(local: str) -> str:
    """Month, day, hour and minute of a `local_time`."""
    return local[5:16]
