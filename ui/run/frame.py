"""Frame: one moment of one run as one visitor sees it. Plain values between Player and pictures."""

from __future__ import annotations

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
    """Plain decoding of the same request, measured on this machine.

    `request`: the `speed_key` of what was measured. `blocks`: speeds of plain decoding and of the
    run, measured in turns, in tokens per second. `ends`: for each block, when every plain pass and
    every round of the run ended, in milliseconds from the end of the prefill; no rounds if a block
    had other rounds than the run itself. `same_text`: plain decoding wrote the run's text.
    """

    tokens_per_second: float
    run_id: str
    note: str
    request: tuple[object, ...] = ()
    blocks: tuple[tuple[float, float], ...] = ()
    ends: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    same_text: bool = False

    def speed_up(self, run_speed: float) -> Estimate | None:
        """How many times as fast the run was: the median of the blocks, with the lowest and the
        highest. One sample, of a run at `run_speed`, if there were no blocks."""
        pairs = self.blocks or ((self.tokens_per_second, run_speed),)
        ratios = [ours / plain for plain, ours in pairs if plain > 0]
        if not ratios:
            return None
        # `ends=True`: the range is from the lowest to the highest block, no interval of 95 %.
        return Estimate(median(ratios), min(ratios), max(ratios), len(ratios), ends=True)

    @property
    def median_block(self) -> int | None:
        """Index of the block whose speed-up is the median; None if the number of blocks is even, or
        if `ends` lacks that block's rounds."""
        ratios = [ours / plain if plain > 0 else 0.0 for plain, ours in self.blocks]
        if not len(ratios) % 2 or len(self.ends) != len(ratios):
            return None
        number = ratios.index(median(ratios))
        return number if self.ends[number][1] else None


@dataclass(frozen=True, slots=True)
class Before:
    """Figures of the previous run, for comparison: a pale line, grey figures.

    `accepted`: accepted tokens of each round, from round 0.
    """

    run_id: str
    accepted: tuple[int, ...]
    stats: RunStats

    @classmethod
    def of(cls, view: View) -> Before:
        """The figures of the run in `view`."""
        return cls(view.run_id, tuple(line.accepted for line in view.rounds), view.stats)


@dataclass(frozen=True, slots=True)
class Frame:
    """What one visitor sees of one run at one moment.

    `detail`: the selected round; `node`: the selected node of its tree. `known`: the number of
    events so far; `ended`: no further event will come; `at_end`: all known events are shown.
    `place`: in the queue. `regret`: of a routed run, once it was computed. `answer`: whether plain
    decoding writes the same text; `plain_so_far`: the tokens that plain decoding has written, -1
    while it does not run; `measuring`: further blocks of the baseline are still to be run.
    """

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
        """The selected round, -1 for none."""
        return self.detail.round if self.detail else -1

    @property
    def is_complete(self) -> bool:
        return self.ended and self.at_end
