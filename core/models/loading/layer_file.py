"""A cache file of an LLM's layers.

`NAME.layers` holds each layer's matrices, padded to blocks of 4 KiB for O_DIRECT.
`NAME.safetensors` holds norms and biases. Its metadata has a record and a SHA-256 of record, norms
and biases. The record, in JSON, has a layer's `size` in bytes, each layer's `sha256`, and the
entries of `extra_record`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from core.errors import ModelLoadError
from core.models.layer_stream import memory_of, page_aligned

__all__ = [
    "BLOCK_BYTES",
    "FileLayers",
    "pad_to_blocks",
    "read_record",
    "rename_durably",
    "write_layers",
]

BLOCK_BYTES = 4096
RECORD, DIGEST = "layers", "sha256"


class FileLayers:
    """A LayerSource (see layer_stream.py) over a file of `write_layers`. `record`: see
    `read_record`. `direct`: whether reads bypass the page cache. Raises ModelLoadError for a file
    that cannot be opened or has the wrong size. The first read of a layer raises ModelLoadError for
    a wrong hash."""

    def __init__(self, file: Path, record: Mapping[str, Any]) -> None:
        self._path, self._hashes = file, list(record["sha256"])
        self.count, self.size = len(self._hashes), int(record["size"])
        self._unchecked = set(range(self.count))
        self._open(direct=True)
        size, expected = os.fstat(self._file).st_size, self.count * self.size
        if size != expected:
            raise _refusal(file, f"it has {size} bytes, {expected} were written")

    def read(self, layer: int, into: torch.Tensor) -> None:
        bytes_ = memory_of(into)
        num_read, begin = 0, layer * self.size
        while num_read < self.size:
            count = self._pread(bytes_[num_read:], begin + num_read)
            if not count:
                raise _refusal(self._path, f"it ends in layer {layer}")
            num_read += count
        if layer in self._unchecked:
            if hashlib.sha256(bytes_).hexdigest() != self._hashes[layer]:
                raise _refusal(self._path, f"layer {layer} is not what was written")
            self._unchecked.discard(layer)

    def _pread(self, into: memoryview, at: int) -> int:
        try:
            return os.preadv(self._file, [into], at)
        except OSError as error:
            # Some file systems accept O_DIRECT in `open` and refuse it in reads.
            if not self.direct or error.errno != errno.EINVAL:
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
            raise ModelLoadError.of(
                "layer file", str(self._path), f"it cannot be read ({error})"
            ) from error
        weakref.finalize(self, os.close, self._file)


def _refusal(file: Path, reason: str) -> ModelLoadError:
    return ModelLoadError.of(
        "layer file", str(file), f"{reason}; remove it, and the next start writes it again"
    )


def pad_to_blocks(layer: torch.Tensor) -> torch.Tensor:
    """A layer's bytes (uint8), with zeros up to whole blocks; page-aligned."""
    blocks = page_aligned(-(-len(layer) // BLOCK_BYTES) * BLOCK_BYTES)
    blocks[: len(layer)] = layer
    blocks[len(layer) :] = 0
    return blocks


def read_record(file: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """The record of a layer file, and norms and biases by name; None if there is no record file.
    Raises ModelLoadError for a record file that has changed or cannot be read."""
    record_file = file.with_suffix(".safetensors")
    try:
        with safe_open(record_file, framework="pt") as tensors:
            text, digest = tensors.metadata()[RECORD], tensors.metadata()[DIGEST]
            vectors = {name: tensors.get_tensor(name) for name in list(tensors.keys())}
            if _digest(text, vectors) != digest:
                raise _refusal(record_file, "it is not what was written")
            return json.loads(text), vectors
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _refusal(record_file, f"it cannot be read ({error})") from error


def _digest(record: str, vectors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of the record and of each vector's name, type, shape and bytes."""
    digest = hashlib.sha256(record.encode())
    for name, vector in sorted(vectors.items()):
        digest.update(f"\n{name} {vector.dtype} {tuple(vector.shape)}\n".encode())
        digest.update(memory_of(vector.reshape(-1).view(torch.uint8)))
    return digest.hexdigest()


def write_layers(
    file: Path,
    layers: Iterable[tuple[torch.Tensor, Mapping[str, torch.Tensor]]],
    extra_record: Callable[[], Mapping[str, Any]],
) -> None:
    """Writes layers (uint8, padded), one at a time, with their norms and biases by name.
    `extra_record` is called after the last layer for entries of the record. Raises OSError."""
    partial, record_file = file.with_suffix(".part"), file.with_suffix(".safetensors")
    hashes: list[str] = []
    size = 0
    vectors: dict[str, torch.Tensor] = {}
    # The record comes last: a layer file without a record is written again.
    record_file.unlink(missing_ok=True)  # the record of a layer file that was deleted
    try:
        with partial.open("wb") as out:
            for layer, layer_vectors in layers:
                bytes_ = memory_of(layer)
                hashes.append(hashlib.sha256(bytes_).hexdigest())
                out.write(bytes_)
                size = len(layer)
                vectors |= layer_vectors
        rename_durably(partial, file)  # writes the data to the disk, which O_DIRECT reads
        text = json.dumps({"size": size, "sha256": hashes, **extra_record()})
        save_file(vectors, partial, metadata={RECORD: text, DIGEST: _digest(text, vectors)})
        rename_durably(partial, record_file)
    except SafetensorError as error:  # for example, the disk is full
        raise OSError(str(error)) from error
    finally:  # after an error or a cancellation, frees the disk space
        partial.unlink(missing_ok=True)


def rename_durably(partial: Path, target: Path) -> None:
    """Renames a file or folder after writing its contents to the disk: a power cut must not leave a
    target without its data."""
    for path in (partial, *partial.rglob("*")):
        if path.is_dir():
            _sync_folder(path)
        else:
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    partial.rename(target)
    _sync_folder(target.parent)


def _sync_folder(path: Path) -> None:
    with suppress(OSError):  # not every system can open or synchronize a folder
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
