"""Offload: layers of an LLM are streamed to its device in each pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.config.checks import choice, integer, number
from core.errors import ConfigError

__all__ = ["FASTEST_MBPS", "MODES", "Offload", "offload_of"]

MODES = ("host", "disk")
# 1 PiB and 1 TB/s.
LARGEST_BYTES, FASTEST_MBPS = 1 << 50, 1e6


@dataclass(frozen=True, slots=True)
class Offload:
    """`mode`: layers are streamed from host memory or from a file. `resident`: bytes of layers that
    stay on the device. `mbps`: a limit of the stream in 10^6 bytes a second; 0: no limit."""

    mode: str
    resident: int = 0
    mbps: float = 0.0

    def __post_init__(self) -> None:
        choice("offload", self.mode, MODES)
        integer("resident", self.resident, 0, LARGEST_BYTES)
        number("offload_mbps", self.mbps, 0, FASTEST_MBPS)


def offload_of(mode: str | None, resident: Any, mbps: Any) -> Offload | None:
    """An Offload from command-line arguments; None without `mode`. Raises ConfigError."""
    # An argument without effect is refused, not ignored.
    if mode is None:
        for field, value in (("resident", resident), ("offload_mbps", mbps)):
            if value is not None:
                raise ConfigError.of(field, value, "only with --offload host or disk")
        return None
    return Offload(mode, resident or 0, mbps or 0.0)
