"""Compares plain values. Processors add floats in different orders, so floats may differ
slightly."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["CLOSE", "MODEL_CLOSE", "differences"]

CLOSE = 1e-5
"""Largest relative difference of floats. Sums over small tables differed by up to 5e-7 between
processors."""
MODEL_CLOSE = 5e-4
"""Largest relative difference after passes of the bundled models in float32. Probabilities in the
golden file `bundled-specinfer-paper`, which another processor recorded, differ by up to 2e-5. Small
probabilities may differ more on a third processor."""
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


def differences(golden: Any, now: Any, at: str = "", close: float = CLOSE) -> Iterator[str]:
    """A message for each place where two plain values differ."""
    if type(golden) is not type(now):
        yield f"{at}: {golden!r} became {now!r}"
    elif isinstance(golden, float):
        same = math.isclose(golden, now, rel_tol=close) or (math.isnan(golden) and math.isnan(now))
        if not same:
            yield f"{at}: {golden} became {now}"
    elif isinstance(golden, dict):
        if list(golden) != list(now):
            yield f"{at}: fields {list(golden)} became {list(now)}"
        for name in golden.keys() & now.keys():
            yield from differences(golden[name], now[name], f"{at}/{name}", close)
    elif isinstance(golden, list) and len(golden) == len(now):
        for index, (one, other) in enumerate(zip(golden, now, strict=True)):
            yield from differences(one, other, f"{at}/{index}", close)
    elif golden != now and _is_object(golden) and _skeleton(golden) == _skeleton(now):
        yield from differences(json.loads(golden), json.loads(now), at, close)
    elif golden != now:
        yield f"{at}: {golden!r} became {now!r}"


def _is_object(value: Any) -> bool:
    return isinstance(value, str) and value.startswith('{"')


def _skeleton(text: Any) -> str:
    return NUMBER.sub("#", str(text))
