"""Reads prompts from files of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

from core.errors import ConfigError

__all__ = ["rows_of"]


def rows_of(path: Path, *fields: str) -> list[dict[str, str]]:
    """The `fields` of every line, as text. Raises ConfigError."""
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        rows = [json.loads(line) for line in lines]
        return [{field: str(row[field]) for field in fields} for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError.of(
            "prompts", str(path), f"a file of JSON lines, each with {' and '.join(fields)}"
        ) from error
