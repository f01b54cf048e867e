"""Where a drawn picture is kept."""

from __future__ import annotations

from pathlib import Path

from core.errors import ConfigError

__all__ = ["kept"]


def kept(path: Path, picture: str) -> None:
    """Writes it; ConfigError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise ConfigError.of(
            "picture", str(path), f"a file that can be written ({error})"
        ) from error
