"""Token files of a prepared folder. `manifest.json` is written last: with it, the folder is
complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import ConfigError
from core.models.loading.gguf_cache import sha256_of
from zoo.files import replace_file, write_json
from zoo.token_bytes import byte_lengths
from zoo.tokenizer import open_tokenizer

__all__ = [
    "HELD_OUT_FRACTION",
    "DomainTokens",
    "Manifest",
    "TokenStore",
    "open_tokens",
    "held_out_start",
    "tokenizer_file",
    "mark_incomplete",
    "write_domain",
    "write_manifest",
]

HELD_OUT_FRACTION = 0.005
HELD_OUT_LEAST = 256
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class DomainTokens:
    """A domain in the manifest; `sources` have counts, a hash, a licence and an origin."""

    num_tokens: int
    num_held_out_tokens: int
    num_held_out_bytes: int
    sha256: str
    sources: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a folder was prepared."""

    preset: str
    seed: int
    vocab_size: int
    tokenizer_sha256: str
    domains: Mapping[str, DomainTokens]
    separator: int = 0  # the id before each text
    format: int = _FORMAT

    def identity(self) -> dict[str, str]:
        """Hashes of the domains and of the tokenizer; a resumed run must have the same hashes."""
        hashes = {name: domain.sha256 for name, domain in self.domains.items()}
        # A domain may be called `tokenizer`; no domain's name has a slash.
        if "tokenizer" in hashes:
            hashes["tokens/tokenizer"] = hashes.pop("tokenizer")
        return {"tokenizer": self.tokenizer_sha256, **hashes}


@dataclass(frozen=True, slots=True)
class TokenStore:
    """The open token files: token ids by domain, memory-mapped."""

    folder: Path
    manifest: Manifest
    train: Mapping[str, np.ndarray]
    held_out: Mapping[str, np.ndarray]
    byte_lengths: np.ndarray

    @property
    def tokenizer_folder(self) -> Path:
        return self.folder / "tokenizer"


def held_out_start(num_tokens: int) -> int:
    """The index of a domain's first held-out token. The domain's last tokens are held out. Their
    number is the largest of three numbers: 1, HELD_OUT_FRACTION of the domain, and HELD_OUT_LEAST
    (but at most a tenth of the domain)."""
    least = min(HELD_OUT_LEAST, num_tokens // 10)
    return num_tokens - max(1, least, round(num_tokens * HELD_OUT_FRACTION))


def mark_incomplete(folder: Path) -> None:
    """Creates `folder` if needed and removes its manifest."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _manifest_path(folder).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError.of("out", str(folder), "a folder that can be written") from error


def write_domain(folder: Path, name: str, ids: np.ndarray) -> str:
    """Writes one domain's ids and returns the file's hash."""
    path = _tokens_path(folder, name)
    replace_file(path, lambda file: np.save(file, ids))
    return sha256_of(path)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, which marks the folder as complete."""
    write_json(_manifest_path(folder), asdict(manifest))


def open_tokens(folder: Path) -> TokenStore:
    """Opens token files. Raises ConfigError if `folder` was not prepared, or files changed."""
    manifest = _read_manifest(folder)
    train, held_out = {}, {}
    for name, domain in manifest.domains.items():
        ids = _read_domain(folder, name, domain)
        begin = held_out_start(len(ids))
        train[name], held_out[name] = ids[:begin], ids[begin:]
    if _hash_or_empty(tokenizer_file(folder)) != manifest.tokenizer_sha256:
        raise _changed_file_error(tokenizer_file(folder))
    lengths = byte_lengths(open_tokenizer(folder / "tokenizer"))
    return TokenStore(folder, manifest, train, held_out, lengths)


def tokenizer_file(folder: Path) -> Path:
    """The tokenizer of a prepared folder, as one file."""
    return folder / "tokenizer" / "tokenizer.json"


def _read_manifest(folder: Path) -> Manifest:
    try:
        value = json.loads(_manifest_path(folder).read_text(encoding="utf-8"))
        domains = {
            name: DomainTokens(**{**domain, "sources": tuple(domain["sources"])})
            for name, domain in value.pop("domains").items()
        }
        manifest = Manifest(**value, domains=domains)
    except FileNotFoundError:
        raise ConfigError.of(
            "out", str(folder), "a folder made by `python -m zoo prepare`"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _changed_file_error(_manifest_path(folder)) from error
    if manifest.format != _FORMAT:
        raise ConfigError.of(
            "format", manifest.format, f"{_FORMAT}; run `python -m zoo prepare` again"
        )
    return manifest


def _read_domain(folder: Path, name: str, domain: DomainTokens) -> np.ndarray:
    path = _tokens_path(folder, name)
    if _hash_or_empty(path) != domain.sha256:
        raise _changed_file_error(path)
    # Memory-mapped: the file may be larger than memory, and a step reads only a few windows.
    ids: np.ndarray = np.load(path, mmap_mode="r")
    return ids


def _hash_or_empty(path: Path) -> str:
    return sha256_of(path) if path.is_file() else ""


def _changed_file_error(path: Path) -> ConfigError:
    return ConfigError.of(
        "out", str(path), "the file that `python -m zoo prepare` wrote; run it again"
    )


def _manifest_path(folder: Path) -> Path:
    return folder / "manifest.json"


def _tokens_path(folder: Path, name: str) -> Path:
    return folder / "tokens" / f"{name}.npy"
