"""A cache file of an LLM's layers, from which they are read again in every pass.

`KEY.layers` holds the layers' matrices in the layout of the pass, one after another, each padded to
whole blocks of 4 KiB, so that O_DIRECT reads one in one call and past the page cache. Beside it
`KEY.safetensors` holds norms and biases, which stay in memory, and in its metadata sizes and
SHA-256 of every layer, and a SHA-256 of all that. The key is a hash of the weights' files and of
the layout.
"""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from core.errors import ModelLoadError
from core.models.layer_stream import memory_of, page_aligned

__all__ = ["BLOCK_BYTES", "FileLayers", "pad_to_blocks", "read_record", "write_layers"]

BLOCK_BYTES = 4096
RECORD, DIGEST = "layers", "sha256"


class FileLayers:
    """A LayerSource over a file that `write_layers` has written. A file of another size is refused
    at once, a layer with another hash when it is first read: loading makes one pass. `direct`: read
    past the page cache."""

    def __init__(self, file: Path, record: Mapping[str, Any]) -> None:
        self._path, self._hashes = file, list(record["sha256"])
        self.count, self.size = len(self._hashes), int(record["size"])
        self._unchecked = set(range(self.count))
        self._open(direct=True)
        found, wanted = os.fstat(self._file).st_size, self.count * self.size
        if found != wanted:
            raise _refusal(file, f"it has {found} bytes, {wanted} were written")

    def read(self, layer: int, into: torch.Tensor) -> None:
        bytes_ = memory_of(into)
        done, begin = 0, layer * self.size
        while done < self.size:
            count = self._pread(bytes_[done:], begin + done)
            if not count:
                raise _refusal(self._path, f"it ends in layer {layer}")
            done += count
        if layer in self._unchecked:
            if hashlib.sha256(bytes_).hexdigest() != self._hashes[layer]:
                raise _refusal(self._path, f"layer {layer} is not what was written")
            self._unchecked.discard(layer)

    def _pread(self, into: memoryview, at: int) -> int:
        try:
            return os.preadv(self._file, [into], at)
        except OSError:
            # Some file systems open with O_DIRECT, and refuse to read so.
            if not self.direct:
                raise
            self._open(direct=False)
            return os.preadv(self._file, [into], at)

    def _open(self, *, direct: bool) -> None:
        self.direct = direct and hasattr(os, "O_DIRECT")
        flags = os.O_RDONLY | (os.O_DIRECT if self.direct else 0)
        try:
            self._file = os.open(self._path, flags)
        except OSError as error:
            if self.direct:
                return self._open(direct=False)
            raise ModelLoadError(
                f"layer file is {str(self._path)!r}: it cannot be read ({error})"
            ) from error
        weakref.finalize(self, os.close, self._file)


def _refusal(file: Path, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"layer file is {str(file)!r}: {reason}; remove it, and the next start writes it again"
    )


def pad_to_blocks(layer: torch.Tensor) -> torch.Tensor:
    """A layer's bytes in whole blocks."""
    whole = page_aligned(-(-len(layer) // BLOCK_BYTES) * BLOCK_BYTES)
    whole[: len(layer)] = layer
    whole[len(layer) :] = 0
    return whole


def read_record(file: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """What `write_layers` recorded beside the layer file, and norms and biases; None if there is
    none."""
    beside = file.with_suffix(".safetensors")
    try:
        with safe_open(beside, framework="pt") as kept:
            text, digest = kept.metadata()[RECORD], kept.metadata()[DIGEST]
            vectors = {name: kept.get_tensor(name) for name in list(kept.keys())}
            if _digest(text, vectors) != digest:
                raise _refusal(beside, "it is not what was written")
            return json.loads(text), vectors
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _refusal(beside, f"it cannot be read ({error})") from error


def _digest(record: str, vectors: Mapping[str, torch.Tensor]) -> str:
    """Of the record and of each vector's name, type, shape and bytes."""
    digest = hashlib.sha256(record.encode())
    for name, vector in sorted(vectors.items()):
        digest.update(f"\n{name} {vector.dtype} {tuple(vector.shape)}\n".encode())
        digest.update(memory_of(vector.reshape(-1).view(torch.uint8)))
    return digest.hexdigest()


def write_layers(
    file: Path,
    layers: Iterable[tuple[torch.Tensor, Mapping[str, torch.Tensor]]],
    more: Callable[[], Mapping[str, Any]],
) -> None:
    """Writes layers, each padded, with their norms and biases by name; what `more` says after
    the last one is recorded with them. One layer at a time is in memory. Raises OSError."""
    partial, hashes, size = file.with_suffix(".part"), [], 0
    vectors: dict[str, torch.Tensor] = {}
    try:
        with partial.open("wb") as out:
            for layer, own in layers:
                bytes_ = memory_of(layer)
                hashes.append(hashlib.sha256(bytes_).hexdigest())
                out.write(bytes_)
                size = len(layer)
                vectors |= own
            out.flush()
            os.fsync(out.fileno())  # O_DIRECT reads what is on the disk
        partial.rename(file)
        # Last: a layer file without its record is written again.
        text = json.dumps({"size": size, "sha256": hashes, **more()})
        save_file(vectors, partial, metadata={RECORD: text, DIGEST: _digest(text, vectors)})
        partial.rename(file.with_suffix(".safetensors"))
    except SafetensorError as error:  # the disk is full, among others
        raise OSError(str(error)) from error
    finally:  # cancelled, or the disk is full: the room is needed for the next try
        partial.unlink(missing_ok=True)
