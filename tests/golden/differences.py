"""Compares plain values. Processors add in different orders: floats up to 1 may differ by `CLOSE`,
larger floats by `CLOSE` times their size."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["differences"]

CLOSE = 1e-4
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


def differences(golden: Any, now: Any, at: str = "") -> Iterator[str]:
    """A message for each place where two plain values differ. The order of fields counts."""
    if isinstance(golden, float) and isinstance(now, float):
        if abs(golden - now) > CLOSE * max(1.0, abs(golden)):
            yield f"{at}: {golden} became {now}"
    elif isinstance(golden, dict) and isinstance(now, dict):
        if list(golden) != list(now):
            yield f"{at}: fields {list(golden)} became {list(now)}"
        for name in golden.keys() & now.keys():
            yield from differences(golden[name], now[name], f"{at}/{name}")
    elif isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        for index, (one, other) in enumerate(zip(golden, now, strict=True)):
            yield from differences(one, other, f"{at}/{index}")
    elif golden != now and _is_object(golden) and _skeleton(golden) == _skeleton(now):
        yield from differences(json.loads(golden), json.loads(now), at)
    elif golden != now:
        yield f"{at}: {golden!r} became {now!r}"


def _is_object(value: Any) -> bool:
    """A JSON object as text."""
    return isinstance(value, str) and value.startswith('{"')


def _skeleton(text: Any) -> str:
    """Numbers become "#"."""
    return NUMBER.sub("#", str(text))
