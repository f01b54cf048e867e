"""Data to predict the speed-up with another acceptance, drafting cost, LLM or connection.

Let a be the probability that a drafted token is accepted, given that all tokens before it are
accepted. Then a draft of k tokens gives 1 + a + ... + a^k tokens a pass (Leviathan et al. 2023,
equation 1). The round costs k drafting steps, one pass of the LLM, one round trip, and the other
time of the round. The formula is in ui/components/assets/what_if.js.

The range of a prediction comes from resampled rounds, each resample with the speed-up of one block
(`Baseline.blocks`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ui.run.budget import depth_bounds
from ui.run.frame import Baseline, Frame
from ui.run.times import stage_times
from ui.run.view import RoundView

__all__ = ["LONGEST", "what_if_value"]

LONGEST = 16
"""The deepest draft that is predicted."""
RESAMPLES = 100
DIGITS = 4


def what_if_value(frame: Frame, baseline: Baseline | None) -> dict[str, Any]:
    """The measured run, from which the sliders start; {} without measured drafts.

    `acceptance`: a drafted token's chance of being accepted; `step_ms`, `pass_ms`, `plain_ms`,
    `other_ms`: times of a drafting step, an LLM pass, a plain pass and the rest of a round;
    `length`: mean drafted depth of a round; `tokens`: mean number of tokens written in a round.
    `speedup`: the measured speed-up, the median of `blocks` blocks; `low`, `high`: its range.
    `speedup` is None without a baseline and while the blocks are being measured (`measuring`).
    Then a plain pass is assumed to last as long as a pass over a tree.

    `most`: the deepest draft that the node budget allows; `takes`: the `max_tree_nodes` that deeper
    drafts need; `samples`: see `_samples`. Before the run is complete `takes` and `samples` are
    empty, and `most` is LONGEST."""
    stats, rounds = frame.view.stats, frame.view.stats.num_rounds
    if not rounds or not stats.num_draft_tokens or not stats.tokens_per_second:
        return {}
    length = stats.num_draft_tokens / rounds
    pass_ms, draft_ms = stats.verify_ms / rounds, stats.draft_ms / rounds
    round_ms = 1000 * stats.num_new_tokens / stats.tokens_per_second / rounds
    measured = None if frame.measuring else baseline  # no speed-up before all blocks are measured
    ratio = measured.speed_up(stats.tokens_per_second) if measured else None
    # A round ends in a rejection unless its whole draft was accepted: a token's chance is estimated
    # by accepted / (accepted + rejected).
    rejected = sum(round_.accepted < round_.depth for round_ in frame.view.rounds)
    most, takes = depth_bounds(frame.view, LONGEST) if frame.is_complete else (LONGEST, {})
    blocks = measured.blocks if measured else ()
    speedups = tuple(own / plain for plain, own in blocks if plain > 0)
    return {
        "run": frame.view.run_id,
        "acceptance": stats.num_accepted_tokens / max(1, stats.num_accepted_tokens + rejected),
        "step_ms": draft_ms / length,
        "pass_ms": pass_ms,
        "plain_ms": ratio.value * 1000 / stats.tokens_per_second if ratio else pass_ms,
        "other_ms": max(0.0, round_ms - pass_ms - draft_ms),
        "length": length,
        "tokens": stats.num_new_tokens / rounds,
        "speedup": ratio.value if ratio else None,
        "blocks": ratio.groups if ratio else 0,
        "measuring": frame.measuring,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "most": most,
        "takes": {str(depth): nodes for depth, nodes in takes.items()},
        "samples": _samples(frame.view.rounds, speedups) if frame.is_complete else {},
    }


def _samples(rounds: tuple[RoundView, ...], speedups: tuple[float, ...]) -> dict[str, Any]:
    """Resamples of the rounds with drafts, relative to the run. `d`, `p`, `o`, `l`: factors of the
    times of a drafting step, an LLM pass, the rest and a plain pass. `a`: the difference in
    acceptance."""
    drafted = [round_ for round_ in rounds if round_.depth and round_.spans]
    if len(drafted) < 2:
        return {}
    table = np.array([_round_row(round_) for round_ in drafted])
    random = np.random.default_rng(0)  # the same run gets the same range
    picks = random.integers(len(table), size=(RESAMPLES, len(table)))
    means, mean = table[picks].mean(axis=1), table.mean(axis=0)
    parts, own = _parts(means), _parts(mean)
    parts = np.column_stack([parts[:, 0] - own[0], parts[:, 1:] / np.maximum(own[1:], 1e-9)])
    # A plain pass lasts the run's time for a token times the speed-up. So its factor is a block's
    # speed-up divided by the median speed-up.
    median = float(np.median(speedups)) if speedups else 1.0
    plain = random.choice(np.array(speedups or (1.0,)), size=RESAMPLES) / median
    names = ("a", "d", "p", "o")
    return {
        str(i): {
            **{name: round(float(x), DIGITS) for name, x in zip(names, parts[i], strict=True)},
            "l": round(float(plain[i]), DIGITS),
        }
        for i in range(RESAMPLES)
    }


def _round_row(round_: RoundView) -> tuple[float, ...]:
    """A round's accepted tokens, whether a rejection ended it, its depth, and milliseconds of
    drafting, of the LLM's pass, and of the rest."""
    rejected = float(round_.accepted < round_.depth)
    return (
        round_.accepted,
        rejected,
        round_.depth,
        *stage_times(round_.spans, round_.time.whole_ms),
    )


def _parts(means: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """`means`: mean rows of `_round_row`, (..., 6). Returns (..., 4): acceptance, and milliseconds
    of a drafting step, of the LLM's pass, and of the rest."""
    accepted, rejected, depth, draft, llm, rest = np.moveaxis(means, -1, 0)
    acceptance = accepted / np.maximum(accepted + rejected, 1e-9)
    return np.stack([acceptance, draft / np.maximum(depth, 1e-9), llm, rest], axis=-1)
