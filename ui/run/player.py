"""Player: one visitor's position in one run, and the speed at which it advances.

The engine never waits for it. Full speed shows what there is; slow motion plays rounds per second;
step moves by one stage (one event) at a time, back as well as forward. Going back starts again from
a kept View, since `reduce_all` only goes forward. Time is an argument; nothing here sleeps. Several
handlers of one tab use a Player at once, so each public method takes the lock for its short work.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from core.config.checks import choice, number
from core.events import Combined, Drafted, RoundCompleted, Verified
from ui.run.frame import Frame
from ui.run.source import Source, ends
from ui.run.view import Detail, View, detail_of, reduce_all

__all__ = ["EVENTS_A_ROUND", "MODES", "Pace", "Player"]

MODES = ("full", "slow", "step")
ROUND_EVENTS = (Drafted, Combined, Verified, RoundCompleted)
EVENTS_A_ROUND = 4
KEEP_VIEW_EVERY = 128
FOLLOW_EVERY_S = 0.4
"""At full speed the followed round changes at most this often: a tree must stay readable."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`mode` is one of MODES; `rounds_per_second` counts in slow motion only."""

    mode: str = "full"
    rounds_per_second: float = 2.0

    def __post_init__(self) -> None:
        choice("speed", self.mode, MODES)
        number("rounds_per_second", self.rounds_per_second, 0.05, 100.0)


class Player:
    """One visitor's place in `source`, from its beginning."""

    def __init__(self, source: Source, pace: Pace | None = None) -> None:
        self.source = source
        self._pace = pace or Pace()
        self._lock = threading.RLock()
        self._view = View()
        self._at = 0  # events reduced
        self._kept: dict[int, View] = {0: View()}
        self._clock: float | None = None
        self._credit = 0.0
        self._pinned: int | None = None
        self._node: int | None = None
        self._followed: Detail | None = None
        self._followed_at = float("-inf")
        self._version = 0
        self.turn = 0

    def take_turn(self) -> int:
        """Claim the player: only the generator that called last plays. Compare with `turn`."""
        with self._lock:
            self.turn += 1
            return self.turn

    # -- moving --

    def advance(self, now: float) -> None:
        """Go on as the pace says; `now` in seconds of any monotonic clock."""
        with self._lock:
            passed = 0.0 if self._clock is None else max(0.0, now - self._clock)
            self._clock = now
            if self._pace.mode == "full":
                self._to(self.source.count)
            elif self._pace.mode == "slow":
                self._play(passed)
            self._skip_free()
            due = now - self._followed_at >= FOLLOW_EVERY_S
            if due or self._pace.mode != "full" or self.resting:
                self._follow_latest(now)

    def _play(self, passed: float) -> None:
        """Spend the time that passed, a quarter of a round at a time."""
        self._credit += passed * self._pace.rounds_per_second * EVENTS_A_ROUND
        # An engine slower than the pace leaves nothing to catch up with afterwards.
        self._credit = min(self._credit, max(1.0, self.source.count - self._at))
        whole = int(self._credit)
        self._credit -= whole
        self._to(self._at + whole)

    def _skip_free(self) -> None:
        """The first and the last event are no stage: they are passed at any pace."""
        for event in self.source.events(self._at, self._at + 1):
            if not isinstance(event, ROUND_EVENTS):
                self._to(self._at + 1)

    def step(self, by: int) -> None:
        """`by` stages forward or, below 0, back; from now on the visitor steps."""
        with self._lock:
            self._pace = replace(self._pace, mode="step")
            self._pinned = self._node = None
            if by < 0 and self._view.state != "running" and self._at == self.source.count:
                by -= 1  # the last event is no stage of its own
            self._to(max(1, self._at + by))
            if by > 0:
                self._skip_free()
            self._follow_latest(self._clock or 0.0)

    def seek(self, rounds: int) -> None:
        """To the place where `rounds` rounds are complete; from now on the visitor steps."""
        self.seek_stage(EVENTS_A_ROUND * rounds)

    def seek_stage(self, stages: int) -> None:
        """The same, by stages from the run's beginning; past its end is its end."""
        with self._lock:
            self._pace = replace(self._pace, mode="step")
            self._pinned = self._node = None
            self._to(1 + max(0, stages))
            self._skip_free()
            self._follow_latest(self._clock or 0.0)

    def to_end(self) -> None:
        """Everything there is."""
        with self._lock:
            self._to(self.source.count)
            self._follow_latest(self._clock or 0.0)

    def set_pace(self, pace: Pace) -> None:
        """Another speed from now on; the time until now is spent."""
        with self._lock:
            self._pace, self._credit, self._clock = pace, 0.0, None
            self._version += 1

    def rewind(self) -> None:
        """Back to the beginning, at the same pace."""
        with self._lock:
            self._pinned = self._node = None
            self._to(0)
            self._skip_free()
            self._follow_latest(self._clock or 0.0)

    def _to(self, target: int) -> None:
        target = max(0, min(target, self.source.count))
        if target == self._at:
            return
        if target < self._at:
            self._at = max(at for at in self._kept if at <= target)
            self._view = self._kept[self._at]
        while self._at < target:
            # In strides that end where a View is kept: to step back folds one stride anew, not the
            # run.
            end = min(target, self._at - self._at % KEEP_VIEW_EVERY + KEEP_VIEW_EVERY)
            events = self.source.events(self._at, end)
            if not events:
                break  # lost: neither in memory nor in the log
            self._view = reduce_all(events, self._view)
            self._at += len(events)
            if self._at % KEEP_VIEW_EVERY == 0:
                # Without its two whole rounds a kept View is small; they come back as it goes on.
                self._kept[self._at] = replace(self._view, last=None)
        self._version += 1

    # -- selecting --

    def select(self, number: int, node: int | None = None) -> None:
        """Pin a round that has been shown, and perhaps one node of its tree."""
        with self._lock:
            if 0 <= number < self._shown_rounds():
                self._pinned, self._node = number, node
                self._version += 1

    def select_next(self, by: int) -> None:
        """The round after (or before) the selected one.

        Past the last one that was shown it goes on to the next one that was recorded, as a step
        does: that one is then shown whole. At full speed nothing is waited for.
        """
        with self._lock:
            last = self._shown_rounds() - 1
            here = self._pinned
            if here is None:
                here = self._followed.round if self._followed else last
            if here + by > last and not self.at_end and self._pace.mode != "full":
                self.seek(here + by + 1)
            elif last >= 0:
                self.select(min(last, max(0, here + by)))

    def follow(self) -> None:
        """No selection: the latest round is shown, at the end of a run the very last one.

        "Latest round" beside the words "40 rounds" means round 40, though
        nothing was drafted in it; only the picture that a run ends with by itself is a telling one.
        A visitor who has stepped back leaves that place, since nothing moves on from it.
        """
        with self._lock:
            self._pinned = self._node = None
            if self._pace.mode == "step":
                self._to(self.source.count)
            self._follow_latest(self._clock or 0.0)
            last = self._shown_rounds() - 1
            if self._followed and self._followed.round < last and self.resting:
                self._pinned = last
            self._version += 1

    def _shown_rounds(self) -> int:
        current = self._view.current
        return current.round + 1 if current else 0

    def _follow_latest(self, now: float) -> None:
        view = self._view
        latest = view.last if self._pace.mode == "full" and view.last else view.current
        if self._pace.mode == "full" and self.resting:
            latest = self._final_detail() or latest
        if latest != self._followed:
            self._followed, self._followed_at = latest, now
            self._version += 1

    def _final_detail(self) -> Detail | None:
        """The round to end with: a run should not leave an empty or a bare picture behind.

        Of a completed run the one in which the LLM accepted most, of several the one with the most
        nodes, of these the last. What was stopped or broke off ends where it was: with the last
        round that drafted anything, since the end often has no room for a draft.
        """
        drafting = [line for line in self._view.rounds if line.nodes]
        if not drafting:
            return None
        if self._view.state != "completed":
            return self._round(drafting[-1].number)
        best = max(drafting, key=lambda line: (line.accepted, line.nodes, line.number))
        return self._round(best.number)

    # -- reading --

    @property
    def pace(self) -> Pace:
        return self._pace

    @property
    def version(self) -> tuple[int, int, bool, int]:
        """Differs whenever a new frame would look different."""
        source = self.source
        return self._version, source.count, source.done, source.place

    @property
    def stage(self) -> int:
        """How many stages have been shown, EVENTS_A_ROUND to a round."""
        with self._lock:
            ended = self._view.state not in ("", "running")
            return max(0, self._at - 1 - ended)

    @property
    def at_end(self) -> bool:
        return self._at >= self.source.count

    @property
    def resting(self) -> bool:
        """The run is over and nothing will move until the visitor moves it."""
        return self.source.done and (self.at_end or self._pace.mode == "step")

    def frame(self) -> Frame:
        """What is to be seen now."""
        with self._lock:
            source = self.source
            num_events, ended, at_end = source.count, source.done, self.at_end
            return Frame(
                view=self._view,
                detail=self._selected_detail(),
                node=self._node,
                pinned=self._pinned is not None,
                known=num_events,
                known_rounds=self._rounds_known(num_events),
                ended=ended,
                at_end=at_end,
                mode=self._pace.mode,
                place=source.place,
                run_id=source.run_id,
            )

    def _rounds_known(self, num_events: int) -> int:
        """Complete rounds of so many events; one that was interrupted has no event to close it."""
        last = self.source.events(max(0, num_events - 1), num_events)
        closing = any(ends(event) for event in last)
        return max(0, num_events - 1 - closing) // EVENTS_A_ROUND

    def _selected_detail(self) -> Detail | None:
        return self._followed if self._pinned is None else self._round(self._pinned)

    def _round(self, number: int) -> Detail | None:
        for near in (self._view.current, self._view.last):
            if near and near.round == number:
                return near
        first = 1 + EVENTS_A_ROUND * number
        return detail_of(self.source.events(first, first + EVENTS_A_ROUND), number)
