"""Sentences about the waits of an LLM pass for streamed layers or for other ranks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from core.events import OffloadInfo, RanksInfo
from core.plurals import number_of
from ui.run.view import RoundView

__all__ = ["LEAST_PASSES", "division_words", "offload_words", "ranks_words"]

LEAST_PASSES = 5  # among fewer passes the lower quartile can be an outlier


def offload_words(info: OffloadInfo | None) -> str:
    """How much a pass streams and how long that takes at least; empty if no layer is streamed."""
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
    """How the LLM is divided among ranks; empty if it is in one process."""
    if info is None:
        return ""
    how = "each layer divided" if info.split == "tp" else "some layers each"
    return f"{info.count} ranks ({info.split}), {how}"


def ranks_words(info: RanksInfo | None, rounds: Sequence[RoundView]) -> str:
    """The ranks' exchange in the latest round, and whether the ranks are worth it. Empty if the LLM
    is in one process, or if the latest round has no exchange."""
    traffic = rounds[-1].traffic if rounds else ()
    if info is None or not traffic:
        return ""
    most = max(traffic, key=lambda one: one.bytes)
    waits = ", ".join(f"{one.ms:.1f} ms of rank {one.rank}" for one in traffic)
    times = "once" if most.collectives == 1 else f"{most.collectives} times"
    return (
        f"The LLM is in {division_words(info)}: in the latest pass of {_pass_ms(rounds[-1]):.1f} "
        f"ms they exchanged {times}, {_kilobytes(most.bytes)} a rank, and that took {waits}, "
        f"waiting for each other included. {_worth(info, rounds)}"
    )


def _worth(info: RanksInfo, rounds: Sequence[RoundView]) -> str:
    """With `tp`, compares passes over similar numbers of tokens with a prediction for one process
    that has as many threads as one rank.

    Work that every rank repeats is not measured separately, so the prediction is a range: from
    the work of the slowest rank to the sum of all ranks' work."""
    if info.split == "pp":
        return "They work one after the other, so a pass is no faster than in one process."
    timed = [
        round_ for round_ in rounds if len(round_.traffic) == info.count and _pass_ms(round_) > 0
    ]
    passes = _most_alike(timed)
    if len(passes) < LEAST_PASSES:
        return f"{LEAST_PASSES} passes of about one width tell whether the ranks are worth it."
    pass_ms = statistics.median(map(_pass_ms, passes))
    # An interruption by the system counts as the rank's computing time. The lower quartile leaves
    # most interruptions out.
    computed_ms = [
        _lower_quartile([max(0.0, _pass_ms(round_) - round_.traffic[rank].ms) for round_ in passes])
        for rank in range(info.count)
    ]
    least_ms, most_ms = max(computed_ms), sum(computed_ms)
    computed = ", ".join(f"rank {rank} {ms:.1f} ms" for rank, ms in enumerate(computed_ms))
    sentence = (
        f"The run's {number_of(len(passes), 'pass')} over {_widths(passes)} took {pass_ms:.1f} ms "
        "(median), "
        f"computing in them {computed} (lower quartile). Predicted for one process with a rank's "
        f"threads: {least_ms:.1f} ms if no work is divided, {most_ms:.1f} ms if all is: the ranks "
        "are "
    )
    if most_ms <= pass_ms:
        return f"{sentence}slower, at most {most_ms / pass_ms:.2f} times as fast."
    return (
        f"{sentence}{least_ms / pass_ms:.2f} to {most_ms / pass_ms:.2f} times as fast, slower "
        "where little of a small model's work is divided."
    )


def _most_alike(rounds: Sequence[RoundView]) -> list[RoundView]:
    by_size: dict[int, list[RoundView]] = {}
    for round_ in rounds:
        by_size.setdefault(round_.nodes.bit_length(), []).append(round_)
    return max(by_size.values(), key=len, default=[])


def _pass_ms(round_: RoundView) -> float:
    return sum(span.ms for span in round_.spans if span.name == "forward")


def _lower_quartile(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=4, method="inclusive")[0]


def _widths(rounds: Sequence[RoundView]) -> str:
    # A pass has the root and the tree's nodes.
    widths = [round_.nodes + 1 for round_ in rounds]
    least, most = min(widths), max(widths)
    if least < most:
        return f"{least} to {most} tokens"
    return number_of(most, "token")


def _kilobytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
