"""Dequantizes GGUF files with transformers, and caches them as model folders of safetensors.

A cache entry is named by a hash of the file, FORMAT and the versions of the packages that read it.
A tensor is stored in the first of bfloat16, float16 and float32 that holds its values exactly: a
float32 load gives the same values as transformers' own load of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
import torch
from filelock import FileLock, Timeout

from core.errors import (
    MODEL_FAULTS,
    ModelLoadError,
    OutOfMemoryError,
    SpecScopeError,
    UnsupportedModelError,
    one_line,
)
from core.models.loading.catalog import shown_name
from core.models.loading.gguf_header import GgufHeader, read_header
from core.models.loading.layer_file import rename_durably
from core.models.loading.progress import Say
from core.models.machine import available_bytes, format_bytes

__all__ = [
    "CACHE_VARIABLE",
    "cache_folder",
    "check_complete",
    "dequantize_file",
    "hold_lock",
    "recorded_warnings",
    "sha256_of",
    "sweep_parts",
    "write_error",
]

CACHE_VARIABLE = "SPECSCOPE_CACHE"
FORMAT = 1  # of a cache folder; folders of another format are written again
RECORD = "dequantized.json"
WEIGHTS = "model.safetensors"
# Cached files of up to this many bytes are compared by size and hash, larger files by size only.
SMALL_FILE = 16 << 20
NARROW_DTYPES = (torch.bfloat16, torch.float16)
# The most numbers in a buffer of the model that a file's metadata describes.
LARGEST_BUFFER = 1 << 26
# Bytes that dequantizing takes for each value of the largest tensor, in addition to the float32
# weights.
TEMPORARY_BYTES = 12
# The tensor of factors of the rotary frequencies.
SCALED_ROPE = "rope_freqs.weight"
# Seconds between two calls of `say` while another process holds a lock.
LOCK_POLL_S = 0.5
# A month: an installation with other package versions may still use its folder.
UNUSED_S = 30 * 24 * 3600.0


def cache_folder() -> Path:
    """This program's cache folder."""
    if explicit := os.environ.get(CACHE_VARIABLE):
        return Path(explicit).expanduser()
    return platformdirs.user_cache_path("specscope", appauthor=False)


def sha256_of(file: Path) -> str:
    """The file's SHA-256, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def dequantize_file(file: Path, say: Say) -> Path:
    """The folder with the file's weights, tokenizer and chat template, written unless it is in the
    cache. Raises ModelError if the file cannot be loaded or does not fit."""
    header = read_header(file)
    if not _is_recorded(file):
        _check_memory(file, header)  # before hashing a file that cannot be dequantized
    say("hashing the GGUF file")  # seconds for gigabytes
    entry = _entry_of(_digest(file))
    sweep_parts(entry.parent)
    try:
        if (folder := _complete_folder(entry)) is not None:
            with contextlib.suppress(OSError):  # a read-only folder serves as well
                os.utime(folder / RECORD)  # the time of its last use
            return folder
        entry.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(entry.with_suffix(".lock"), say, "dequantizes it"):
            # Another process may have written the folder meanwhile.
            return _complete_folder(entry) or _write(file, header, entry, say)
    except OSError as error:
        raise write_error(str(file), "dequantized", error) from error


def _entry_of(digest: str) -> Path:
    """The folder of the cache entry for a file with this SHA-256."""
    key = f"{digest} {json.dumps(_versions())}"
    return cache_folder() / "gguf" / hashlib.sha256(key.encode()).hexdigest()


def _digest(file: Path) -> str:
    try:
        return sha256_of(file)
    except OSError as error:  # such as a disk error past the header
        raise ModelLoadError.of(
            "model", str(file), f"it cannot be read ({one_line(error)})"
        ) from error


def write_error(model: str, done: str, error: OSError) -> ModelLoadError:
    """The error for a model that cannot be `done` (downloaded or dequantized) into the cache
    folder."""
    return ModelLoadError.of(
        "model",
        model,
        f"it cannot be {done} into {str(cache_folder())!r} "
        f"({one_line(error)}); {CACHE_VARIABLE} names another folder",
    )


def sweep_parts(folder: Path) -> None:
    """Removes parts that killed processes left in a folder of the cache: each `NAME.part` whose
    lock `NAME.lock` is free. Errors are ignored."""
    for part in folder.glob("*.part"):
        with (
            contextlib.suppress(OSError, NotImplementedError, Timeout),
            FileLock(part.with_suffix(".lock"), timeout=0),
        ):
            _remove(part)


def recorded_warnings(name: str) -> tuple[str, ...]:
    """Warnings about the GGUF file dequantized into folder `name`; none if it is no such folder."""
    return tuple(map(str, _record_of(Path(name)).get("warnings", ())))


@contextlib.contextmanager
def hold_lock(lock: Path, say: Say, doing: str) -> Iterator[None]:
    """Holds the lock file. While another process holds the lock, `say` repeats what that process
    does (`doing`). An error of `say` ends the wait. Raises OSError."""
    file_lock = FileLock(lock)
    while True:
        try:
            file_lock.acquire(timeout=LOCK_POLL_S)
            break
        except Timeout:
            say(f"waiting for another process that {doing}")
        except NotImplementedError as error:  # a file system without flock
            raise OSError(str(error)) from error
    try:
        yield
    finally:
        file_lock.release()


# -- what is in the cache --


def _record_of(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    except (OSError, ValueError):
        return {}


def _is_recorded(file: Path) -> bool:
    """Whether the cache has a folder for a file of this name."""
    records = (cache_folder() / "gguf").glob(f"*/*/{RECORD}")
    return any(_record_of(record.parent).get("file") == file.name for record in records)


def _complete_folder(entry: Path) -> Path | None:
    return next(
        (path.parent for path in entry.glob(f"*/{RECORD}") if _is_complete(path.parent)), None
    )


def _is_complete(folder: Path) -> bool:
    try:
        files = _record_of(folder)["files"].items()
        return all(_size_and_hash(folder / name) == mark for name, mark in files)
    except (OSError, AttributeError, KeyError):
        return False


def _versions() -> dict[str, Any]:
    packages = ("transformers", "gguf")
    return {"format": FORMAT} | {name: importlib.metadata.version(name) for name in packages}


def _size_and_hash(file: Path) -> list[Any]:
    size = file.stat().st_size
    return [size, sha256_of(file) if size <= SMALL_FILE else ""]


# -- writing --


def _write(file: Path, header: GgufHeader, entry: Path, say: Say) -> Path:
    partial = entry.with_suffix(".part")
    folder = partial / shown_name(str(file))
    _remove(partial)  # left by a killed process, since this process holds the lock
    try:
        folder.mkdir(parents=True)
        warnings = _dequantize(file, header, folder, say)
        digest = _digest(file)
        if _entry_of(digest) != entry:
            raise ModelLoadError.of(
                "model",
                str(file),
                "it changed while it was dequantized; a file that no program is writing is allowed",
            )
        record = {
            "file": file.name,
            "digest": digest,
            "warnings": list(warnings),
            "files": {path.name: _size_and_hash(path) for path in sorted(folder.iterdir())},
        }
        (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        _remove(entry)  # if there is one, it is incomplete
        rename_durably(partial, entry)
        _remove_unused(entry, digest)
    finally:
        _remove(partial)
    return entry / folder.name


def _remove_unused(entry: Path, digest: str) -> None:
    """Removes other entries of the file with this digest, if they have not been used for UNUSED_S
    seconds. Errors are ignored."""
    for record in entry.parent.glob(f"*/*/{RECORD}"):
        other = record.parents[1]
        with contextlib.suppress(OSError, NotImplementedError, Timeout):
            is_unused = time.time() - record.stat().st_mtime > UNUSED_S
            if is_unused and _record_of(record.parent).get("digest") == digest:
                with FileLock(other.with_suffix(".lock"), timeout=0):
                    _remove(other)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _dequantize(file: Path, header: GgufHeader, folder: Path, say: Say) -> tuple[str, ...]:
    """Writes the model folder; returns warnings for the user."""
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    _check_memory(file, header)
    _check_disk(file, header, folder)
    try:
        with _isolate_file(file, folder) as link:
            say("reading the GGUF file's configuration")
            config = AutoConfig.from_pretrained(**link)
            unread = header.parameters - _parameters_described(file, header, config)
            say("reading the GGUF file's tokenizer")
            tokenizer = AutoTokenizer.from_pretrained(**link)
            with _report_shares(say):
                result: Any = AutoModelForCausalLM.from_pretrained(
                    config=config, dtype=torch.float32, output_loading_info=True, **link
                )
        module, report = result
        check_complete(report)
    except MODEL_FAULTS as error:
        if isinstance(error, SpecScopeError):  # raised in this module or by `say`
            raise
        reason = one_line(error) or type(error).__name__
        if isinstance(error, KeyError):  # its text is the key alone
            reason = f"it has no {reason}"
        raise UnsupportedModelError(
            f"model is {str(file)!r} ({header}): transformers cannot load it ({reason}); a GGUF "
            "file of a decoder-only model that transformers can dequantize is allowed"
        ) from error
    say(f"writing {format_bytes(4 * header.parameters)} into the cache")
    weights = _exact_weights(module)
    try:
        tokenizer.save_pretrained(folder)
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
        config.save_pretrained(folder)
        module.generation_config.save_pretrained(folder)
    except MODEL_FAULTS as error:  # each library has its own error for a full disk
        raise OSError(one_line(error)) from error
    return _warnings(file, header, unread)


@contextlib.contextmanager
def _isolate_file(file: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Arguments with which transformers reads the file alone. From the file's own folder it would
    also read tokenizer settings."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        (Path(place) / file.name).symlink_to(file.resolve())
        yield {
            "pretrained_model_name_or_path": place,
            "gguf_file": file.name,
            "local_files_only": True,
            "trust_remote_code": False,
        }


def _warnings(file: Path, header: GgufHeader, unread: int) -> tuple[str, ...]:
    if not unread:
        return ()
    rope = f", among them {SCALED_ROPE}," * (SCALED_ROPE in header.tensors)
    return (
        f"transformers reads {unread} of the {header.parameters} values in {file.name}{rope} into "
        "no weight: its text may not be the original model's",
    )


def _check_memory(file: Path, header: GgufHeader) -> None:
    peak = 4 * header.parameters + TEMPORARY_BYTES * header.largest
    free = available_bytes(torch.device("cpu"))
    if free is not None and peak > free:
        raise _no_room(file, peak, free, "in memory")


def _check_disk(file: Path, header: GgufHeader, folder: Path) -> None:
    weights, free = 4 * header.parameters, shutil.disk_usage(folder).free
    if weights > free:
        raise _no_room(file, weights, free, f"on the disk of {cache_folder()}")


def _no_room(file: Path, size: int, free: int, place: str) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"model {file.name} needs {format_bytes(size)} to be dequantized: "
        f"{format_bytes(free)} are free {place}; choose a smaller model"
    )


def _parameters_described(file: Path, header: GgufHeader, config: Any) -> int:
    """The number of weights in the model that the metadata describe. Raises ModelLoadError if the
    file has fewer values, or if a buffer of the model has more than LARGEST_BUFFER numbers:
    metadata may claim any size."""
    from transformers import AutoModelForCausalLM

    model_class: Any = AutoModelForCausalLM
    with torch.device("meta"):  # no memory, whatever the sizes
        module = model_class.from_config(config)
    count: int = sum(weight.numel() for weight in module.parameters())
    buffers = max((buffer.numel() for buffer in module.buffers()), default=0)
    if count > header.parameters or buffers > LARGEST_BUFFER:
        raise ModelLoadError.of(
            "model",
            str(file),
            f"its metadata describes {count} weights and tables of {buffers} numbers, its "
            f"tensors hold {header.parameters}; a whole GGUF file is allowed",
        )
    return count


def _exact_weights(module: Any) -> dict[str, torch.Tensor]:
    """The module's parameters and saved buffers by name, tied parameters once, narrowed by
    `narrow_exactly`. The narrowed parameters replace the module's: memory may not suffice for a
    second copy."""
    weights: dict[str, torch.Tensor] = {}
    for name, weight in module.named_parameters():  # tied weights under their first name
        weight.data = weights[name] = narrow_exactly(weight.data)
    buffers = module.state_dict().keys() - dict(module.named_parameters(remove_duplicate=False))
    return weights | {name: narrow_exactly(module.get_buffer(name)) for name in sorted(buffers)}


def check_complete(report: dict[str, Any]) -> None:
    """Raises ValueError if weights are missing or misshapen: transformers fills them with random
    numbers and only warns."""
    missing = sorted(report.get("missing_keys") or ())
    mismatched = sorted(str(key) for key in report.get("mismatched_keys") or ())
    if missing or mismatched:
        first = (missing or mismatched)[0]
        raise ValueError(
            f"{len(missing)} weights are missing and {len(mismatched)} have another shape, "
            f"first {first}"
        )


def narrow_exactly(weight: torch.Tensor) -> torch.Tensor:
    """The tensor in a two-byte dtype if that is exact, else unchanged."""
    # A tensor with a NaN, which equals nothing, is not narrowed.
    for dtype in NARROW_DTYPES:
        narrow = weight.to(dtype)
        if torch.equal(narrow.to(weight.dtype), weight):
            return narrow.contiguous()
    return weight.contiguous()


@contextlib.contextmanager
def _report_shares(say: Say) -> Iterator[None]:
    """Reports the share of dequantized tensors, instead of transformers' progress bar."""
    from transformers import modeling_gguf_pytorch_utils as reader

    def reporting_progress(tensors: Iterable[Any], **_: Any) -> Iterator[Any]:
        all_tensors, last = list(tensors), -1
        for i, tensor in enumerate(all_tensors):
            if (share := 100 * i // len(all_tensors)) > last:
                say(f"dequantizing {share} %")
            last = share
            yield tensor

    before = vars(reader).get("tqdm")
    vars(reader)["tqdm"] = reporting_progress
    try:
        yield
    finally:
        vars(reader)["tqdm"] = before
