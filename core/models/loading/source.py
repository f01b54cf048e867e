"""Source: where a named model's files are. A folder, the hub, or the local cache of the hub.

Reads no model. The hub's client tries five times, 23 s in all, for every file of every model; one
short question beforehand spares that where there is no network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub import errors as hub_errors

from core.errors import ModelLoadError
from core.models.loading.catalog import snapshot

__all__ = ["Source", "is_folder", "located", "unreachable"]

PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Source:
    """`name`: a folder or a hub id. `local`: it is read from this machine alone."""

    name: str
    local: bool

    def __str__(self) -> str:
        return self.name


def located(name: str) -> Source:
    """The folder or hub id of this name. Raises ModelLoadError where nobody has it."""
    if not name.strip():
        raise ModelLoadError(f"model is {name!r}: bundled, a folder or a hub id is allowed")
    if is_folder(name):
        name = _at_home(name)
        _check_folder(Path(name), name)
        return Source(name, local=True)
    return Source(name, local=_only_in_the_cache(name))


def is_folder(name: str) -> bool:
    """Whether a name means a folder of this machine, be it there or not, and no hub id."""
    name = _at_home(name)
    return name.startswith((".", "/")) or name.count("/") > 1 or Path(name).exists()


def _at_home(name: str) -> str:
    return str(Path(name).expanduser()) if name.startswith("~") else name


def unreachable() -> tuple[type[Exception], ...]:
    """What the hub's client raises where it gets no answer, or no such model."""
    # Its HTTP library changed more than once; its own errors derive from that library's.
    http_error: Any = vars(hub_errors)["HTTPError"]
    return (http_error, OSError)


def _check_folder(folder: Path, name: str) -> None:
    allowed = "a folder with config.json, weights and tokenizer is allowed"
    if not folder.is_dir():
        raise ModelLoadError(f"model is {name!r}: no such folder; {allowed}")
    if not (folder / "config.json").is_file():
        raise ModelLoadError(f"model is {name!r}: config.json is missing; {allowed}")


def _only_in_the_cache(hub_id: str) -> bool:
    """Whether the hub does not answer for an id that the local cache holds."""
    allowed = "bundled, a folder or a hub id is allowed"
    try:
        HfApi().model_info(hub_id, timeout=PATIENCE_S)
    except hub_errors.HFValidationError as error:
        raise ModelLoadError(f"model is {hub_id!r}: no folder and no hub id; {allowed}") from error
    except unreachable() as error:
        if snapshot(hub_id) is not None:
            return True
        known = isinstance(error, hub_errors.RepositoryNotFoundError)
        reason = "the hub shows none of this name" if known else "the hub cannot be reached"
        raise ModelLoadError(
            f"model is {hub_id!r}: no such folder, not in the local cache, and {reason}; {allowed}"
        ) from error
    return False
