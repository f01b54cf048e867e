"""The machine, versions, code, weights and arithmetic that a result depends on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch

from core.models.loading.catalog import BUNDLED, bundled_llm

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
GIB = 1 << 30


def machine() -> dict[str, Any]:
    """The machine's properties. Memory is in GiB; None: unknown."""
    return {
        "cores": cores(),
        "processor": _processor(),
        "memory_gib": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **libraries}


def load_average() -> float | None:
    """The load average over the last minute; None if unknown."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def code_digest(family: Path | None = None) -> str:
    """A digest of `core`, of the weights and of bench/prompts.jsonl: 16 hex digits. `family`: the
    folder of weights; None: the bundled weights."""
    weights = bundled_llm().parent if family is None else family
    files = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("core/**/*.py")}
    files |= {
        # Relative paths: copies of the weights have the same digest.
        f"{BUNDLED}/{path.relative_to(weights).as_posix()}": path
        for kind in ("safetensors", "bin")
        for path in weights.glob(f"*/*.{kind}")
    }
    files["bench/prompts.jsonl"] = ROOT / "bench" / "prompts.jsonl"
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode())
        digest.update(files[name].read_bytes())
    return digest.hexdigest()[:16]


def pin_arithmetic() -> None:
    """Disables TF32 and reduced-precision sums: they break the equalities that `laws` checks."""
    torch.set_float32_matmul_precision("highest")
    matmul: Any = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.allow_tf32 = False


def cores() -> int:
    # A container or taskset may allow fewer cores than there are.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        for line in cpu_info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    # On Linux this is just the architecture.
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1)
    except (AttributeError, ValueError, OSError):
        return None
