"""A model's folder, device, dtype and memory before it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from core.errors import ModelLoadError, OutOfMemoryError
from core.models.loading.catalog import (
    BUNDLED,
    PARAMETERS,
    SMOLLM2,
    SMOLLM2_ID,
    bundled_llm,
    bundled_ssms,
    is_gguf,
    is_path,
    locate,
    shown_name,
    snapshot,
)
from core.models.loading.gguf_header import read_header
from core.models.loading.smollm2 import local_smollm2
from core.models.machine import available_bytes, format_bytes, parameter_count, weight_bytes

__all__ = [
    "DEVICES",
    "DTYPES",
    "Need",
    "auto_dtype_words",
    "check_memory",
    "device_of",
    "dtype_of",
    "free_bytes",
    "resolve_llm",
    "expand_bundled",
    "need_of",
    "shown_name",
]

DTYPES = MappingProxyType({"float32": torch.float32, "bfloat16": torch.bfloat16})
DEVICES = ("auto", "cpu", "cuda")
# Up to this many parameters `auto` on a CPU is float32.
SMALL_ENOUGH_FOR_FLOAT32 = 200_000_000


@dataclass(frozen=True, slots=True)
class Need:
    """Memory for a model's weights: `bytes` in `dtype`. `parameters` and `bytes` are from the
    model's files, else from the catalog; 0 if unknown. `here`: whether the weights are on this
    machine."""

    name: str
    parameters: int
    dtype: str
    bytes: int
    here: bool


# -- device and dtype --


def device_of(name: str) -> torch.device:
    """The device for `auto`, `cpu` or `cuda`. Raises ModelLoadError for `cuda` without a CUDA
    device."""
    cuda = torch.cuda.is_available()
    if name == "cuda" and not cuda:
        raise ModelLoadError("device is 'cuda': no CUDA device is available; choose auto or cpu")
    return torch.device("cuda" if cuda and name != "cpu" else "cpu")


def dtype_of(name: str, source: str, device: torch.device) -> torch.dtype:
    """The dtype for a name; `auto` depends on the model and the device."""
    return DTYPES[name] if name != "auto" else _dtype_for(name, _parameters(source), device)


def _dtype_for(name: str, parameters: int, device: torch.device) -> torch.dtype:
    if name != "auto":
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16
    small = parameters <= SMALL_ENOUGH_FOR_FLOAT32
    return torch.float32 if small or not _cpu_has_bfloat16() else torch.bfloat16


def auto_dtype_words() -> str:
    """A sentence on the dtypes of `auto` on this machine."""
    large = f"above {SMALL_ENOUGH_FOR_FLOAT32 // 10**6}M parameters"
    if _cpu_has_bfloat16():
        cpu = f"float32 on the CPU, bfloat16 {large}"
    else:
        cpu = "float32 on this CPU, which has no bfloat16"
    return f"auto: bfloat16 on CUDA, {cpu}." if torch.cuda.is_available() else f"auto: {cpu}."


def _cpu_has_bfloat16() -> bool:
    mkldnn: Any = torch.backends.mkldnn
    return bool(mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _parameters(source: str) -> int:
    return parameter_count(source) or PARAMETERS.get(source, 0)


# -- from names to folders and hub ids --


def resolve_llm(llm: str) -> str:
    """The bundled LLM's folder for `bundled`; any other name unchanged."""
    return str(bundled_llm()) if llm == BUNDLED else llm


def expand_bundled(ssm: str, llm: str = BUNDLED) -> tuple[str, ...]:
    """For `bundled`, the folders of the LLM's bundled SSMs; for the name of one of them, its
    folder; any other name unchanged."""
    if ssm == BUNDLED:
        return tuple(map(str, bundled_ssms(llm)))
    return (next((str(path) for path in bundled_ssms(llm) if path.name == ssm), ssm),)


# -- memory --


def need_of(name: str, dtype: str, device: torch.device) -> Need:
    """The Need of a folder, GGUF file, hub id or `smollm2`, without a network. Raises ModelError
    for a path without a model."""
    if name == SMOLLM2:
        local = local_smollm2()
        need = need_of(local.name if local else SMOLLM2_ID, dtype, device)
        return replace(need, name=SMOLLM2, here=local is not None)
    if is_path(name):
        name = locate(name).name
        # Dequantized, the weights take the memory of `dtype`, whatever the file's size.
        if is_gguf(name):
            return _need_of_file(name, dtype, device)
    torch_dtype = dtype_of(dtype, name, device)
    size = weight_bytes(name, torch_dtype)
    parameters = _parameters(name)
    return Need(
        name=name,
        parameters=parameters,
        dtype=str(torch_dtype).removeprefix("torch."),
        bytes=size or parameters * torch_dtype.itemsize,
        here=size > 0 or is_path(name) or snapshot(name) is not None,
    )


def _need_of_file(name: str, dtype: str, device: torch.device) -> Need:
    parameters = read_header(Path(name)).parameters
    torch_dtype = _dtype_for(dtype, parameters, device)
    size = parameters * torch_dtype.itemsize
    return Need(name, parameters, str(torch_dtype).removeprefix("torch."), size, here=True)


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device in bytes; None if unknown."""
    return available_bytes(device)


def check_memory(needs: Sequence[Need], device: torch.device) -> None:
    """Raises OutOfMemoryError if these models together do not fit in free memory."""
    size, free = sum(need.bytes for need in needs), free_bytes(device)
    if free is None or size <= free:
        return
    if len(needs) == 1:
        sentence = f"model {needs[0].name} needs {format_bytes(size)} as {needs[0].dtype}"
    else:
        each = ", ".join(
            f"{shown_name(n.name)} {format_bytes(n.bytes)} as {n.dtype}" for n in needs
        )
        sentence = f"models need {format_bytes(size)} ({each})"
    raise OutOfMemoryError(
        f"{sentence}: {format_bytes(free)} are free on {device.type}; choose a smaller model, "
        "dtype=bfloat16 or another device"
    )
