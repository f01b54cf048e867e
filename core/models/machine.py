"""Settings of the process, free memory, and sizes of models."""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from core.config.checks import integer
from core.errors import MODEL_FAULTS
from core.models.loading.catalog import snapshot

__all__ = [
    "TorchAlone",
    "available_bytes",
    "format_bytes",
    "one_arena",
    "parameter_count",
    "release_memory",
    "shorten_switch_interval",
    "trim_heap",
    "use_threads",
    "weight_bytes",
    "weight_files",
    "without_cudnn_attention",
]

SWITCH_INTERVAL_S = 0.001


def use_threads(count: int | None = None) -> int:
    """Sets torch's threads for this process: `count`, or all cores but one, at least 1. Returns the
    number. Raises ConfigError if `count` is out of range.

    A pass is much slower if one of its threads has to share a core: the threads wait for each other
    by spinning. On two cores with two other busy processes, a pass of the bundled LLM took 3.3 ms
    on one thread, and hundreds of ms on two.
    """
    cores = os.cpu_count() or 1
    if count is not None:
        integer("threads", count, 1, cores)
    threads = count or max(1, cores - 1)
    torch.set_num_threads(threads)
    return threads


def without_cudnn_attention() -> None:
    """Excludes cuDNN from torch's attention kernels, for this process. cuDNN compiles a plan for
    each new number of KV slots."""
    cuda: Any = torch.backends.cuda
    cuda.enable_cudnn_sdp(False)


def shorten_switch_interval() -> None:
    """Shortens Python's switch interval: how long a thread may keep the GIL while another waits.

    A forward pass releases the GIL. After the pass, decoding waits until a thread of the Gradio
    page yields the GIL. With the page open, plain decoding kept 0.83 of its speed at 1 ms, and 0.73
    at 5 ms, in medians of 10 runs on two cores.
    """
    # Never longer than before: the program may have set less.
    sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))


class TorchAlone:
    """Limits torch to one thread while passes run on their own threads.

    Between operations, torch's threads spin on cores that a pass needs. On two cores, plain
    decoding of the bundled LLM at T = 0.8 made 170 tokens/s, and 614 with this limit. Not
    thread-safe.
    """

    def __init__(self, models: Iterable[object]) -> None:
        # A model whose passes run on torch's threads would be slowed down.
        self._useful = all(getattr(model, "own_threads", False) for model in models)
        self._before: int | None = None

    def take(self) -> None:
        """Limits torch to one thread, unless a model's passes run on torch's threads.
        Idempotent."""
        if self._useful and self._before is None and torch.get_num_threads() > 1:
            self._before = torch.get_num_threads()
            torch.set_num_threads(1)

    def release(self) -> None:
        """Restores the number of threads. Idempotent."""
        if self._before is not None:
            torch.set_num_threads(self._before)
            self._before = None


# From glibc's malloc.h.
M_ARENA_MAX = -8


def one_arena() -> None:
    """Makes all threads share malloc's first arena, if malloc is glibc's. Call it before other
    threads start.

    `malloc_trim` never returns the free end of any arena but the first.
    """
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def release_memory() -> None:
    """Returns the memory of unreferenced models to the system."""
    # Reference cycles keep a model's tensors alive until the collector runs.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim_heap()


def trim_heap() -> None:
    """Returns freed heap memory to the system, if malloc is glibc's."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


# transformers loads the first of WEIGHT_FILES that exists, whole or as shards listed in an index.
# WEIGHT_PATTERNS are for folders without these files.
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
WEIGHT_PATTERNS = ("*.safetensors", "*.bin")


def weight_bytes(source: str, dtype: torch.dtype | None = None) -> int:
    """Bytes of a model's weights in `dtype`, or in its files if `dtype` is None; 0 if the files are
    not local."""
    if dtype is not None:
        return parameter_count(source) * dtype.itemsize
    return sum(map(_size, weight_files(source)))


def parameter_count(source: str) -> int:
    """Number of parameters in a model's files; 0 if the files are not local."""
    return sum(map(_stored_parameters, weight_files(source)))


def weight_files(source: str) -> list[Path]:
    """The files of a model's weights; none if the model is not local."""
    folder = Path(source)
    if not folder.is_dir():
        folder = snapshot(source) or folder
    if not folder.is_dir():
        return []  # not downloaded yet
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return [folder / name]
        if files := _indexed_files(folder / f"{name}.index.json"):
            return files
    return next(filter(None, (sorted(folder.glob(pattern)) for pattern in WEIGHT_PATTERNS)), [])


def _indexed_files(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(file for name in names if (file := index.parent / name).is_file())
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return []


def _stored_parameters(file: Path) -> int:
    """Number of parameters in a file. An unreadable file is estimated by its size, in 16-bit
    numbers."""
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, framework="numpy") as tensors:
                names = tensors.keys()
                return sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except (OSError, SafetensorError):
            pass  # an unreadable header is reported by the loader
    elif (count := _pickled_parameters(file)) is not None:
        return count
    return _size(file) // 2


def _pickled_parameters(file: Path) -> int | None:
    """Number of parameters in a pickle of tensors, tied weights counted once; None for other
    contents."""
    try:
        # On `meta`: the tensors are read without their data.
        tensors = torch.load(file, map_location="meta", weights_only=True)
        sizes: dict[int, int] = {t.untyped_storage()._cdata: t.numel() for t in tensors.values()}
        return sum(sizes.values())
    except MODEL_FAULTS:  # reported by the loader
        return None


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # such as a link into an emptied cache; reported by the loader
        return 0


def available_bytes(device: torch.device) -> int | None:
    """Free memory of the device in bytes; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
    if "SC_AVPHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def format_bytes(size: int) -> str:
    """Bytes with a binary unit, such as 3 KiB or 1.5 GiB."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
