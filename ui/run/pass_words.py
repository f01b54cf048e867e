"""What an LLM pass waits for besides its arithmetic: streamed layers, or the other ranks."""

from __future__ import annotations

from collections.abc import Sequence

from core.events import OffloadInfo, RanksInfo, RankTraffic

__all__ = ["division_words", "offload_words", "ranks_words"]


def offload_words(info: OffloadInfo | None) -> str:
    """Says how many bytes a pass streams, how long that takes at least, and that a tree costs one
    transfer; empty where all layers are in memory."""
    if info is None or not info.streamed:
        return ""
    place = "host memory" if info.mode == "host" else info.mode
    sentence = f"Each pass streams {_megabytes(info.bytes_a_pass)} from {place}"
    if info.streamed < info.layers:
        sentence += f" ({info.streamed} of {info.layers} layers)"
    if info.mbps:
        sentence += f" at {info.mbps:g} MB/s: at least {info.least_ms / 1000:.2g} s"
    return f"{sentence}; a tree of 16 nodes costs one transfer, as one token does."


def division_words(info: RanksInfo | None) -> str:
    """How the LLM is divided, in a few words; empty where it is in one process."""
    if info is None:
        return ""
    how = "each layer divided" if info.split == "tp" else "some layers each"
    return f"{info.count} ranks ({info.split}), {how}"


def ranks_words(info: RanksInfo | None, traffic: Sequence[RankTraffic], pass_ms: float) -> str:
    """What the ranks exchanged in a round's pass, and the time of each in it."""
    if info is None or not traffic:
        return ""
    most = max(traffic, key=lambda one: one.bytes)
    waits = ", ".join(f"{one.ms:.1f} ms of rank {one.rank}" for one in traffic)
    times = "once" if most.collectives == 1 else f"{most.collectives} times"
    return (
        f"The LLM is in {division_words(info)}: in the latest pass of {pass_ms:.1f} ms they "
        f"exchanged {times}, {_kilobytes(most.bytes)} a rank, and that took {waits}, waiting for "
        f"each other included. {_worth(info, traffic, pass_ms)}"
    )


def _worth(info: RanksInfo, traffic: Sequence[RankTraffic], pass_ms: float) -> str:
    """What one process with a rank's threads would take. What all ranks compute, such as norms and
    the calls themselves, is not measured apart, so there is a range."""
    if info.split == "pp":
        return "They work one after the other, so a pass is no faster than in one process."
    # The rank that waited least has computed longest.
    least_ms = max(0.0, pass_ms - min(one.ms for one in traffic))
    most_ms = info.count * least_ms
    spread = (
        f"Predicted for one process with a rank's threads: {most_ms:.1f} ms if all work is "
        f"divided, {least_ms:.1f} ms if none is"
    )
    if most_ms <= pass_ms:
        return f"{spread}: the ranks are slower."
    return (
        f"{spread}: the ranks are at most {most_ms / pass_ms:.1f} times as fast, and slower where "
        "little of a small model's work is divided."
    )


def _kilobytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
