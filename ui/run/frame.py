"""What a page shows of a run (Frame), and the runs that it is compared with (Baseline, Before)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from core.events import RunStats
from core.routing.regret import Regret
from lab.figures import Estimate
from ui.run.proof import Answer
from ui.run.view import Detail, View

__all__ = ["Baseline", "Before", "Frame"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """Plain decoding of the same request.

    `tokens_per_second`: plain decoding's speed, the median of the `blocks` if there are any;
    `run_id`: the id of the first plain run; `note`: what was measured, in words; `request`: see
    `speed_key` (baselines.py); empty if unknown. `blocks`: the speeds of plain decoding and of the
    run, in tokens per second, each pair measured in turn. `ends`, if known: for each block the ends
    of the plain passes and of the run's rounds, in milliseconds from the end of the prefill. The
    rounds' ends are empty if a block's rounds differ from the run's. `same_text`: whether plain
    decoding is known to have written the run's text."""

    tokens_per_second: float
    run_id: str
    note: str
    request: tuple[object, ...] = ()
    blocks: tuple[tuple[float, float], ...] = ()
    ends: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    same_text: bool = False

    def speed_up(self, run_speed: float) -> Estimate | None:
        """The run's speed divided by plain decoding's: median, lowest and highest of the blocks.
        Without blocks, the ratio of `run_speed` to `tokens_per_second`. None if plain decoding has
        no speed."""
        pairs = self.blocks or ((self.tokens_per_second, run_speed),)
        ratios = [*_ratios(pairs).values()]
        if not ratios:
            return None
        # `ends=True`: the range is lowest to highest, not a 95 % interval.
        return Estimate(median(ratios), min(ratios), max(ratios), len(ratios), ends=True)

    @property
    def median_block(self) -> int | None:
        """Index of the block with the median speed-up. None if the number of speed-ups is even, if
        a block has no `ends`, or if the median block has no ends of rounds."""
        ratios = _ratios(self.blocks)
        if not len(ratios) % 2 or len(self.ends) != len(self.blocks):
            return None
        middle = median(ratios.values())
        index = next(i for i, ratio in ratios.items() if ratio == middle)
        return index if self.ends[index][1] else None


def _ratios(pairs: Sequence[tuple[float, float]]) -> dict[int, float]:
    """Index of a pair -> the run's speed divided by plain decoding's. Pairs whose plain speed is 0
    are left out."""
    return {i: own / plain for i, (plain, own) in enumerate(pairs) if plain > 0}


@dataclass(frozen=True, slots=True)
class Before:
    """The previous run, for comparison. `accepted`: accepted tokens of each round."""

    run_id: str
    accepted: tuple[int, ...]
    stats: RunStats

    @classmethod
    def of(cls, view: View) -> Before:
        """The figures of the run in `view`."""
        return cls(view.run_id, tuple(round_.accepted for round_ in view.rounds), view.stats)


@dataclass(frozen=True, slots=True)
class Frame:
    """What one visitor sees of one run at one moment.

    `view`: the run as far as it is shown. `detail`: the displayed round; `node`: the selected node
    of its tree; `pinned`: whether a visitor has selected the round. `known`, `known_rounds`: the
    numbers of events and of complete rounds so far. `ended`: whether no more events will come;
    `at_end`: whether all known events are shown. `mode`: see `player.Pace`. `place`: the run's
    place in the queue, 0 if it does not wait. `answer`: whether plain decoding writes the same
    text, None if unknown. `plain_so_far`: the number of tokens that plain decoding has written, -1
    if it is not running. `measuring`: whether the speed-up is still being measured."""

    view: View = View()
    detail: Detail | None = None
    node: int | None = None
    pinned: bool = False
    known: int = 0
    known_rounds: int = 0
    ended: bool = False
    at_end: bool = False
    mode: str = "full"
    place: int = 0
    run_id: str = ""
    regret: Regret | None = None
    answer: Answer | None = None
    plain_so_far: int = -1
    measuring: bool = False

    @property
    def selected_round(self) -> int:
        """The number of the displayed round, -1 for none."""
        return self.detail.round if self.detail else -1

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended and is shown to its end."""
        return self.ended and self.at_end
