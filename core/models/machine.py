"""Resources of the machine: cores for CPU passes, allocator arenas, free memory.

Threads of a pass wait for each other by spinning. On two cores with two other busy processes a pass
of the bundled LLM took 3.3 ms on one thread and hundreds of milliseconds on two; with both cores
free two threads gave 2.6 ms. So one core is left free unless a number is given.

glibc gives each allocating thread an arena of its own, and of any but the first `malloc_trim` never
returns the free end: of a model of 85 MB that had gone, up to 47 MB stayed. With one arena all of
it went back in every trial, at the same speed.
"""

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
    "give_back",
    "one_arena",
    "parameter_count",
    "format_bytes",
    "shorten_switch_interval",
    "trim_heap",
    "use_threads",
    "weight_bytes",
    "weight_files",
    "without_cudnn_attention",
]

# Python's switch interval, in seconds.
SWITCH_INTERVAL_S = 0.001


def use_threads(count: int | None = None) -> int:
    """Sets torch's threads for this process: `count`, or all cores but one; returns the number.

    Raises ConfigError where it is out of range.
    """
    cores = os.cpu_count() or 1
    if count is not None:
        integer("threads", count, 1, cores)
    threads = count or max(1, cores - 1)
    torch.set_num_threads(threads)
    return threads


def without_cudnn_attention() -> None:
    """Takes cuDNN out of torch's choice of attention kernels, for this process.

    It compiles a plan for each new number of slots, so for each token of a text that grows: plain
    decoding of the bundled LLM on an H200 made 27 tokens a second so, in passes of one shape 174.
    """
    cuda: Any = torch.backends.cuda
    cuda.enable_cudnn_sdp(False)


def shorten_switch_interval() -> None:
    """Shortens Python's switch interval: how long a thread may keep the GIL while another waits.

    A pass releases the GIL, a page's thread takes it, and the next stage of the round waits.
    Watched by a page, plain decoding had 0.83 of its speed headless with 1 ms, 0.73 with 5, 0.80
    with 0.5 (medians of 10 runs each, interleaved, two cores; an hour later 0.77 with 1 ms).
    """
    # Never longer than it was: a program around this one may have asked for less.
    sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))


class TorchAlone:
    """Keeps torch to one thread while passes have threads of their own.

    Between its operations a thread of torch's spins on a core that a pass then waits for: on two
    cores and two threads plain decoding of the bundled LLM at T = 0.8 made 170 tokens a second, 614
    with this. Taken and given back by one thread, the engine's.
    """

    def __init__(self, models: Iterable[object]) -> None:
        # A model whose passes run on torch's threads would be slowed down.
        self._worth = all(getattr(model, "own_threads", False) for model in models)
        self._before: int | None = None

    def take(self) -> None:
        """Limits torch to one thread; nothing if it has one already. Idempotent."""
        if self._worth and self._before is None and torch.get_num_threads() > 1:
            self._before = torch.get_num_threads()
            torch.set_num_threads(1)

    def give_back(self) -> None:
        """Restores the number of threads. Idempotent."""
        if self._before is not None:
            torch.set_num_threads(self._before)
            self._before = None


# From glibc's malloc.h.
M_ARENA_MAX = -8


def one_arena() -> None:
    """Makes all threads share malloc's first arena. Call it before other threads start."""
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """Returns the memory of models without references to the system."""
    # Reference cycles keep a model's tensors until the collector runs.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim_heap()


def trim_heap() -> None:
    """Returns what was freed to the system."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        # What was freed stays in the heap: 140 MB of a 134 MB model that had gone.
        trim(0)


def _glibc(name: str) -> Any:
    """A function of the C library; None where it has none of that name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


# What transformers loads, in its order: one file, or those that an index names. Other files beside
# them are not read.
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
WEIGHT_PATTERNS = ("*.safetensors", "*.bin")


def weight_bytes(source: str, dtype: torch.dtype | None = None) -> int:
    """Bytes of a model's weights in memory as `dtype`, or as stored; 0 if they are not local."""
    if dtype is not None:
        return parameter_count(source) * dtype.itemsize
    return sum(map(_size, weight_files(source)))


def parameter_count(source: str) -> int:
    """Number of parameters in a model's files, by their headers; of files without a header
    estimated from their size. 0 if they are not local."""
    return sum(map(_stored_parameters, weight_files(source)))


def weight_files(source: str) -> list[Path]:
    """The files that transformers loads; none if they are not local."""
    folder = Path(source)
    if not folder.is_dir():
        folder = snapshot(source) or folder
    if not folder.is_dir():
        return []  # to be downloaded: nothing is known yet
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return [folder / name]
        if files := _indexed_files(folder / f"{name}.index.json"):
            return files
    return next(filter(None, (sorted(folder.glob(pattern)) for pattern in WEIGHT_PATTERNS)), [])


def _indexed_files(index: Path) -> list[Path]:
    """The files that an index names and that are there; an unreadable one is the loader's to
    report."""
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(file for name in names if (file := index.parent / name).is_file())
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return []


def _stored_parameters(file: Path) -> int:
    """From the header; without one estimated from the file's size in 16-bit numbers."""
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, framework="numpy") as stored:
                names = stored.keys()
                return sum(math.prod(stored.get_slice(name).get_shape()) for name in names)
        except (OSError, SafetensorError):
            pass  # an unreadable header is the loader's to report
    elif (count := _pickled_parameters(file)) is not None:
        return count
    return _size(file) // 2


def _pickled_parameters(file: Path) -> int | None:
    """Of tensors without their data, weights that are tied once; None of other contents."""
    try:
        stored = torch.load(file, map_location="meta", weights_only=True)
        sizes: dict[int, int] = {t.untyped_storage()._cdata: t.numel() for t in stored.values()}
        return sum(sizes.values())
    except MODEL_FAULTS:  # whatever is wrong with the file is the loader's to report
        return None


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # a link into a cache that was emptied: the loader's to report
        return 0


def available_bytes(device: torch.device) -> int | None:
    """Free memory of the device; None where the system does not tell."""
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
    """Bytes as a person reads them."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
