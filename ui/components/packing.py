"""Makes a picture's value cheap to send: nested dicts become a few strings.

Gradio's page wraps every object of a value in a proxy and copies, compares and serialises the whole
value at each update. With 110 kB of live values on two shared cores, Gradio's part of an update
took about 90 ms, and about 7 ms if dicts are sent as text. So each dict inside a value is sent as
JSON text, a large dict with number keys in chunks of neighbouring keys. An unchanged chunk is the
same string, so the stream's diff sends changed chunks only. The inverse is `assets/packing.js`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["CHUNK", "pack"]

CHUNK = 32
"""The most keys in one string of a large dict with number keys."""
MARK = "~"
"""The beginning of each string's key."""


def pack(value: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces each dict in `value` by `{"~": text}`. If the dict has more than CHUNK keys that are
    all numbers, replaces it by `{"~0": text, "~1": text, ...}`, with at most CHUNK keys in each
    text. Leaves other values unchanged."""
    return {key: _pack(inner) if isinstance(inner, dict) else inner for key, inner in value.items()}


def _pack(inner: dict[str, Any]) -> dict[str, str]:
    if len(inner) <= CHUNK or not all(key.isascii() and key.isdigit() for key in inner):
        return {MARK: _text(inner)}
    chunks: dict[str, dict[str, Any]] = {}
    for key, item in inner.items():
        chunks.setdefault(f"{MARK}{int(key) // CHUNK}", {})[key] = item
    return {name: _text(chunk) for name, chunk in chunks.items()}


def _text(inner: dict[str, Any]) -> str:
    return json.dumps(inner, separators=(",", ":"))
