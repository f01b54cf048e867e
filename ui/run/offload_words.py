"""What the streaming of an offloaded LLM's layers means for a round, in a sentence."""

from __future__ import annotations

from core.events import OffloadInfo

__all__ = ["offload_words"]


def offload_words(info: OffloadInfo | None) -> str:
    """Says how many bytes a pass streams, how long that takes at least, and that a tree costs one
    transfer; empty where all layers are in memory."""
    if info is None or not info.streamed:
        return ""
    place = "host memory" if info.mode == "host" else info.mode
    streamed = f"Each pass streams {_megabytes(info.bytes_a_pass)} from {place}"
    if info.streamed < info.layers:
        streamed += f" ({info.streamed} of {info.layers} layers)"
    if info.mbps:
        streamed += f" at {info.mbps:g} MB/s: at least {info.least_ms / 1000:.2g} s"
    return f"{streamed}; a tree of 16 nodes costs one transfer, as one token does."


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
