"""Makes a picture's value cheap to send: nested dicts become a few strings.

Gradio's page copies, compares and serialises every object of a value at each update. Chunks of a
large dict are separate strings, since an unchanged string is not sent again.
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
    """Replaces each dict in `value` by `{"~": text}`. If a dict has more than CHUNK keys and all of
    them are numbers, replaces it by `{"~0": text, "~1": text, ...}`, with at most CHUNK keys in
    each text. Leaves other values unchanged."""
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
