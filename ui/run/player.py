"""Player: one visitor's position in one run, and the speed at which it advances.

Full speed shows all events so far; slow motion plays a number of rounds per second; stepping moves
by stages. Several handlers of one tab use a Player at once: it is locked while it moves, selects or
makes a frame."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from core.config.checks import choice, number
from ui.run.frame import Frame
from ui.run.source import Source, ends, last_event
from ui.run.view import STAGES, Detail, RoundEvent, View, detail_of, reduce_all

__all__ = ["EVENTS_A_ROUND", "MODES", "Pace", "Player"]

MODES = ("full", "slow", "step")
# Event 0 is RunStarted: n stages are shown once 1 + n events are reduced.
EVENTS_A_ROUND = len(STAGES)
KEEP_VIEW_EVERY = 128
FOLLOW_EVERY_S = 0.4
"""The least seconds between two changes of the followed round, at full speed during a run."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`mode`: one of MODES; `rounds_per_second`: the speed of slow motion."""

    mode: str = "full"
    rounds_per_second: float = 2.0

    def __post_init__(self) -> None:
        choice("speed", self.mode, MODES)
        number("rounds_per_second", self.rounds_per_second, 0.05, 100.0)


class Player:
    """One visitor's position in `source`; it starts at the beginning."""

    def __init__(self, source: Source, pace: Pace | None = None) -> None:
        self.source = source
        self._pace = pace or Pace()
        # Reentrant: public methods call one another.
        self._lock = threading.RLock()
        self._view = View()
        self._at = 0  # events reduced
        self._stored_views: dict[int, View] = {0: View()}
        # Time of the last `advance`, in seconds; None: the next `advance` counts no time.
        self._clock: float | None = None
        # In slow motion: the fraction of the next stage that is due already.
        self._due_stages = 0.0
        self._pinned: int | None = None
        self._stages = EVENTS_A_ROUND  # how many stages of the pinned round are shown
        self._node: int | None = None
        self._followed: Detail | None = None
        self._followed_at = float("-inf")
        self._version = 0
        self.turn = 0

    def take_turn(self) -> int:
        """Claims the player for a generator; returns the new `turn`. A generator must stop once
        `turn` has another value."""
        with self._lock:
            self.turn += 1
            return self.turn

    # -- moving --

    def advance(self, now: float) -> None:
        """Advance at the present pace; `now`: seconds of a monotonic clock."""
        with self._lock:
            seconds = 0.0 if self._clock is None else max(0.0, now - self._clock)
            self._clock = now
            if self._pace.mode == "full":
                self._move_to(self.source.count)
            elif self._pace.mode == "slow":
                self._play(seconds)
            self._skip_run_events()
            due = now - self._followed_at >= FOLLOW_EVERY_S
            if due or self._pace.mode != "full" or self.is_paused:
                self._follow_latest(now)

    def _play(self, seconds: float) -> None:
        """Move by the stages that fall due within `seconds`."""
        self._due_stages += seconds * self._pace.rounds_per_second * EVENTS_A_ROUND
        # While the engine is slower than the pace, unused time is dropped.
        self._due_stages = min(self._due_stages, max(1.0, self.source.count - self._at))
        num_stages = int(self._due_stages)
        self._due_stages -= num_stages
        self._move_to(self._at + num_stages)

    def _skip_run_events(self) -> None:
        """If the next event is the run's first or last, show it too: it is no stage of a round."""
        for event in self.source.events(self._at, self._at + 1):
            if not isinstance(event, RoundEvent):
                self._move_to(self._at + 1)

    def step(self, by: int) -> None:
        """Show the stage `by` stages after the visitor's place, and switch to stepping."""
        with self._lock:
            self.show_stage(max(1, self.place + by))

    def show_stage(self, stages: int) -> None:
        """Show the run after its first `stages` stages, and switch to stepping. If the last of
        these stages is shown already, it is selected and later rounds stay shown. Otherwise the
        player moves to that stage, and no round is selected."""
        with self._lock:
            self._pace = replace(self._pace, mode="step")
            if 1 <= stages <= self.stage:
                self.select_stage(stages)
            else:
                self._jump(1 + max(0, stages))

    def seek(self, rounds: int) -> None:
        """Move to the end of the first `rounds` rounds, and switch to stepping."""
        self.seek_stage(EVENTS_A_ROUND * rounds)

    def seek_stage(self, stages: int) -> None:
        """Move to the end of the first `stages` stages, at most to the last event so far, and
        switch to stepping."""
        with self._lock:
            self._pace = replace(self._pace, mode="step")
            self._jump(1 + max(0, stages))

    def to_end(self) -> None:
        """Move to the last event so far."""
        with self._lock:
            self._move_to(self.source.count)
            self._follow_latest()

    def set_pace(self, pace: Pace) -> None:
        """Change the mode and the speed. The time since the last `advance` is dropped."""
        with self._lock:
            self._pace, self._due_stages, self._clock = pace, 0.0, None
            self._version += 1

    def rewind(self) -> None:
        """Move to the beginning; the pace stays."""
        with self._lock:
            self._jump(0)

    def play_from_here(self, pace: Pace) -> None:
        """Play at `pace` from the visitor's place; from the beginning if all events are shown and
        no round is selected."""
        with self._lock:
            stages = self.place if self._pinned is not None or not self.at_end else 0
            self.set_pace(pace)
            self._jump(1 + stages if stages else 0)

    def _jump(self, num_events: int) -> None:
        """Show the first `num_events` events, and select no round."""
        self._pinned = self._node = None
        # `_move_to` keeps the version if the position stays, but the selection may have changed.
        self._version += 1
        self._move_to(num_events)
        self._skip_run_events()
        self._follow_latest()

    def _move_to(self, target: int) -> None:
        target = max(0, min(target, self.source.count))
        if target == self._at:
            return
        if target < self._at:
            self._at = max(at for at in self._stored_views if at <= target)
            self._view = self._stored_views[self._at]
        while self._at < target:
            # A View is stored after every KEEP_VIEW_EVERY events: a step back reduces at most that
            # many events again.
            end = min(target, self._at - self._at % KEEP_VIEW_EVERY + KEEP_VIEW_EVERY)
            events = self.source.events(self._at, end)
            if not events:
                break  # lost: neither in memory nor in the log
            self._view = reduce_all(events, self._view)
            self._at += len(events)
            if self._at % KEEP_VIEW_EVERY == 0:
                # The detail of the last complete round is left out: it is large, and the end of the
                # next round replaces it.
                self._stored_views[self._at] = replace(self._view, last=None)
        self._version += 1

    # -- selecting --

    def select(
        self,
        number: int | None,
        node: int | None = None,
        stages: int = EVENTS_A_ROUND,
        token: int | None = None,
    ) -> None:
        """Select round `number` with its first `stages` stages, and optionally a node of its tree:
        `node`, or the node of `token`, a key of `Detail.node_of_token`. If `number` is None, the
        displayed round and its selected node are selected. No effect if the round is not shown
        yet."""
        with self._lock:
            if number is None:
                detail = self._selected_detail()
                if detail is None:
                    return
                number, node = detail.round, self._node
            if 0 <= number < self._num_shown_rounds():
                if token is not None:
                    node = self._round(number).node_of_token.get(token)
                self._pinned, self._node = number, node
                self._stages = min(EVENTS_A_ROUND, max(1, stages))
                self._version += 1

    def select_stage(self, stages: int) -> None:
        """Select the round that contains the run's stage number `stages`, counted from 1, at most
        the last stage shown. The round is shown as it was after that stage."""
        with self._lock:
            last = min(stages, self.stage) - 1
            if last >= 0:
                self.select(last // EVENTS_A_ROUND, stages=last % EVENTS_A_ROUND + 1)

    def select_next(self, by: int) -> None:
        """Select the round `by` rounds after the displayed round.

        If that round is not shown yet: at full speed, or if all events so far are shown, the last
        round shown is selected; else the player moves to the end of that round."""
        with self._lock:
            last = self._num_shown_rounds() - 1
            target = (self.place - 1) // EVENTS_A_ROUND + by
            if target > last and not self.at_end and self._pace.mode != "full":
                self.seek(target + 1)
            elif last >= 0:
                self.select(min(last, max(0, target)))

    def follow(self) -> None:
        """Clear the selection and show the latest round. In stepping mode the player first moves to
        the last event, since `advance` does not.

        After a run's end `_final_detail` may be an earlier round. Then the latest round is
        selected."""
        with self._lock:
            self._pinned = self._node = None
            if self._pace.mode == "step":
                self._move_to(self.source.count)
            self._follow_latest()
            last = self._num_shown_rounds() - 1
            if self._followed and self._followed.round < last and self.is_paused:
                self._pinned = last
            self._version += 1

    def _num_shown_rounds(self) -> int:
        current = self._view.current
        return current.round + 1 if current else 0

    def _follow_latest(self, now: float | None = None) -> None:
        """`now` is by default the time of the last `advance`."""
        view = self._view
        # At full speed the latest complete round; else the current round, stage by stage.
        latest = view.last if self._pace.mode == "full" and view.last else view.current
        if self._pace.mode == "full" and self.is_paused:
            latest = self._final_detail() or latest
        if latest != self._followed:
            self._followed = latest
            self._followed_at = (self._clock or 0.0) if now is None else now
            self._version += 1

    def _final_detail(self) -> Detail | None:
        """The round to show at the end of a run; None if no round has a tree.

        In a completed run it is the round with the highest `story` (see `ui.run.view.RoundView`).
        Ties go to the most accepted tokens, then to the smallest tree, then to the latest round. In
        any other run it is the last round with a tree."""
        drafting = [round_ for round_ in self._view.rounds if round_.nodes]
        if not drafting:
            return None
        if self._view.state != "completed":
            return self._round(drafting[-1].number)
        best = max(
            drafting,
            key=lambda round_: (round_.story, round_.accepted, -round_.nodes, round_.number),
        )
        return self._round(best.number)

    # -- reading --

    @property
    def pace(self) -> Pace:
        return self._pace

    @property
    def version(self) -> tuple[int, int, bool, int]:
        """A value that changes whenever `frame` may change."""
        source = self.source
        return self._version, source.count, source.is_done, source.place

    @property
    def stage(self) -> int:
        """The number of stages shown; a round has EVENTS_A_ROUND."""
        with self._lock:
            # Neither the run's first event nor its last is a stage.
            ended = self._view.state not in ("", "running")
            return max(0, self._at - 1 - ended)

    @property
    def place(self) -> int:
        """The visitor's place, in stages from the beginning: the displayed stage of the selected
        round, else of the followed round."""
        with self._lock:
            detail = self._selected_detail()
            if detail is None:
                return self.stage
            return EVENTS_A_ROUND * detail.round + STAGES.index(detail.stage) + 1

    @property
    def at_end(self) -> bool:
        return self._at >= self.source.count

    @property
    def is_paused(self) -> bool:
        """Whether nothing changes any more until the visitor moves the player."""
        return self.source.is_done and (self.at_end or self._pace.mode == "step")

    def frame(self) -> Frame:
        """The frame at the present position."""
        with self._lock:
            source = self.source
            num_events, ended, at_end = source.count, source.is_done, self.at_end
            return Frame(
                view=self._view,
                detail=self._selected_detail(),
                node=self._node,
                pinned=self._pinned is not None,
                known=num_events,
                known_rounds=self._num_known_rounds(num_events),
                ended=ended,
                at_end=at_end,
                mode=self._pace.mode,
                place=source.place,
                run_id=source.run_id,
            )

    def _num_known_rounds(self, num_events: int) -> int:
        last = last_event(self.source, num_events)
        has_end = last is not None and ends(last)
        return max(0, num_events - 1 - has_end) // EVENTS_A_ROUND

    def _selected_detail(self) -> Detail | None:
        if self._pinned is None:
            return self._followed
        return self._round(self._pinned, self._stages)

    def _round(self, number: int, stages: int = EVENTS_A_ROUND) -> Detail:
        """The part of the round that is shown, at most its first `stages` stages."""
        first = 1 + EVENTS_A_ROUND * number
        # A whole round may be in the View. Otherwise the round is reduced again from its events.
        if stages == EVENTS_A_ROUND:
            for latest in (self._view.current, self._view.last):
                if latest and latest.round == number:
                    return latest
        end = min(first + stages, max(self._at, first))
        return detail_of(self.source.events(first, end), number) or Detail(number)
