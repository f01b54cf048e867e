"""How much memory a model needs before it is loaded, and how much is free."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from core.models.loading.catalog import snapshot

__all__ = ["available_bytes", "parameter_count", "readable", "weight_bytes"]

WEIGHT_PATTERNS = ("*.safetensors", "*.bin")


def weight_bytes(source: str, dtype: torch.dtype | None = None) -> int:
    """Bytes of a model's weights in memory as `dtype`, or as stored; 0 where they are not here."""
    files = _weight_files(source)
    size = sum(file.stat().st_size for file in files)
    return int(size * dtype.itemsize / _stored_itemsize(files[0])) if dtype and files else size


def parameter_count(source: str) -> int:
    """How many parameters a model's files hold, by their headers; of files without one about how
    many, by their size. 0 where they are not here."""
    try:
        return sum(_stored_parameters(file) for file in _weight_files(source))
    except (OSError, SafetensorError):
        return weight_bytes(source, torch.int8)  # an unreadable header is the loader's to report


def _weight_files(source: str) -> list[Path]:
    folder = Path(source)
    if not folder.is_dir():
        folder = snapshot(source) or folder
    if not folder.is_dir():
        return []  # to be downloaded: nothing is known yet
    return next(filter(None, (sorted(folder.glob(pattern)) for pattern in WEIGHT_PATTERNS)), [])


def _stored_parameters(file: Path) -> int:
    if file.suffix != ".safetensors":
        return file.stat().st_size // _stored_itemsize(file)
    with safe_open(file, framework="numpy") as stored:
        names = stored.keys()
        return sum(math.prod(stored.get_slice(name).get_shape()) for name in names)


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


def readable(size: int) -> str:
    """Bytes as a person reads them."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _stored_itemsize(file: Path) -> int:
    if file.suffix != ".safetensors":
        return 2
    try:
        with file.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            header = json.loads(handle.read(min(length, 100_000_000)))
        kinds = {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, struct.error):
        return 2  # an unreadable header is the loader's to report
    return 4 if "F32" in kinds else 8 if "F64" in kinds else 2
