"""How a picture's command ends: kept, or one line saying what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from core.errors import ConfigError, SpecScopeError

__all__ = ["kept"]


def kept(path: Path, draw: Callable[[], str]) -> int:
    """Draws, writes the picture and prints where; exit status 0, or 2 with one line on standard
    error."""
    try:
        _write(path, draw())
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(path)
    return 0


def _write(path: Path, picture: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise ConfigError.of(
            "picture", str(path), f"a file that can be written ({error})"
        ) from error
