"""The pictures' values of one run, as plain JSON for a browser without Python.

A stop is a position in the run at which the reader can be. Values that depend on the stop are
separate from values that depend on the selected round and node, so that each value is stored once.
Most of the data is in three parts:

- `base`: for each stop, a delta of all values that do not depend on the selection;
- `rounds`: for each round, the values if the round is selected: the values at the first recorded
  stage, then a delta for each later recorded stage;
- `nodes`: for each node of each round, the inspector's values if the node is selected, as a delta
  for each recorded stage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import ConfigError
from core.events import Event, RunStarted
from core.routing.regret import Regret
from ui.report.deltas import Delta, delta
from ui.report.halves import inspector_values, position_values, round_values
from ui.run.frame import Baseline, Frame
from ui.run.player import Pace, Player
from ui.run.proof import Answer, identical
from ui.run.scrubber import columns_value
from ui.run.source import MemorySource
from ui.run.view import STAGES, Detail, RoundView, View, reduce_all
from ui.shared.parts import notice_value
from ui.words.messages import ordinal, run_lines

__all__ = ["FORMAT", "Limits", "Recording", "record"]

FORMAT = 1
Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run is stored. `bytes`: the most bytes of the JSON of rounds and nodes, before
    compression; one round is always stored. `rounds`: a run of up to this many rounds is stored
    stage by stage; a longer run has stops only at its beginning, at its end, and at the ends of at
    most this many rounds."""

    bytes: int = 40_000_000
    rounds: int = 1500


@dataclass(frozen=True, slots=True)
class Recording:
    """`values`: the file's data; `view`: the complete run; `notes`: what was left out."""

    view: View
    values: Value
    notes: tuple[str, ...]


def record(
    events: Sequence[Event],
    baseline: Baseline | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[float], None] | None = None,
    regret: Regret | None = None,
) -> Recording:
    """Steps through a run and stores its values. `on_progress` gets the fraction done, 0 to 1.
    Raises ConfigError unless `events` are the events of one run, RunStarted first."""
    if not events or not isinstance(events[0], RunStarted):
        raise ConfigError.of("events", type(events[0]).__name__ if events else "empty", BEGINNING)
    if len({event.run_id for event in events}) > 1:
        raise ConfigError.of("events", "several runs", BEGINNING)
    source = MemorySource(events, events[0].run_id)
    player = Player(source, Pace("step"))
    player.rewind()
    tape = _Tape(baseline, limits or Limits(), player.frame().known_rounds)
    answer = _answer(events, baseline)
    while True:
        frame = replace(player.frame(), regret=regret, answer=answer)
        tape.take(frame)
        if on_progress is not None:
            on_progress(len(frame.view.rounds) / max(1, frame.known_rounds))
        if player.at_end:
            return tape.finish(_first_view(source, baseline, answer))
        player.step(1)


BEGINNING = "the events of one run, RunStarted first"


def _answer(events: Sequence[Event], baseline: Baseline | None) -> Answer | None:
    return identical(reduce_all(events)) if baseline and baseline.same_text else None


def _first_view(source: MemorySource, baseline: Baseline | None, answer: Answer | None) -> Value:
    """The round number and the notice that the report shows first."""
    player = Player(source)
    player.advance(0.0)
    frame = replace(player.frame(), answer=answer)
    return {"round": frame.selected_round, "notice": _notice(frame, baseline)}


@dataclass(slots=True)
class _Tape:
    """`last`: the latest recorded frame; `by_round`, `inspected`: that frame's `round_values` and
    `inspector_values`. `values`: the position's values at the latest stop; `stops`: round and stage
    of each stop; `ends[n]`: the first stop at which at least n rounds are complete. `blank`: the
    `round_values` before the first round."""

    baseline: Baseline | None
    limits: Limits
    rounds: int
    values: Value = field(default_factory=dict)
    base: list[Delta] = field(default_factory=list)
    stops: list[list[int]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    round_chains: dict[int, list[Any]] = field(default_factory=dict)
    node_chains: dict[int, dict[str, list[Delta]]] = field(default_factory=dict)
    blank: Value = field(default_factory=dict)
    last: Frame = field(default_factory=Frame)
    by_round: Value = field(default_factory=dict)
    inspected: dict[str, Value] = field(default_factory=dict)
    token_cache: dict[int, Value] = field(default_factory=dict)

    @property
    def every(self) -> int:
        """The end of every `every`-th round is a stop. If `every` is 1, the end of every stage is a
        stop."""
        return -(-self.rounds // self.limits.rounds) or 1

    def take(self, frame: Frame) -> None:
        if not self._is_recorded(frame):
            return
        by_round = round_values(frame)
        self._add_stop(frame, by_round)
        if frame.detail is None:
            self.blank = by_round
        else:
            self._add_selection(frame, frame.detail, by_round)
        self.last = frame

    def _is_recorded(self, frame: Frame) -> bool:
        return self.every == 1 or frame.at_end or frame.detail is None or _is_complete(frame)

    def _add_stop(self, frame: Frame, by_round: Value) -> None:
        ended = frame.at_end or frame.detail is None or _is_complete(frame)
        num_rounds = len(frame.view.rounds)
        if self.every > 1 and not frame.at_end and num_rounds % self.every:
            return
        # Within a round, position values stay as they were at the end of the previous round.
        values = (
            position_values(frame, self.baseline, by_round, self.token_cache)
            if ended
            else dict(self.values)
        )
        values["notice"] = _notice(frame, self.baseline)
        self.base.append(delta(self.values, values))
        self.values = values
        self.stops.append([frame.selected_round, _stage(frame.detail)])
        while ended and len(self.ends) <= num_rounds:
            self.ends.append(len(self.stops) - 1)

    def _add_selection(self, frame: Frame, detail: Detail, by_round: Value) -> None:
        chain = self.round_chains.setdefault(detail.round, [])
        nodes = self.node_chains.setdefault(detail.round, {})
        if chain and self.last.selected_round == detail.round:
            chain.append(delta(self.by_round, by_round))
        elif not chain:
            chain.append(by_round)
        before, self.inspected = self.inspected if len(chain) > 1 else {}, inspector_values(frame)
        for node, inspector in self.inspected.items():
            old = before.get(node, chain[0]["inspector"])
            # A node that first exists at a later stage has empty deltas for the earlier stages.
            deltas = nodes.setdefault(node, [[]] * (len(chain) - 1))
            deltas.append(delta(old, inspector))
        self.by_round = by_round

    def finish(self, opening: Value) -> Recording:
        lines = self.last.view.rounds
        round_numbers, notes = _kept_rounds(self, lines)
        if self.every > 1:
            notes = (f"Of {self.rounds} rounds, it stops at every {ordinal(self.every)}.", *notes)
        values = {
            "format": FORMAT,
            "rounds_known": self.rounds,
            "opening": opening,
            "base": self.base,
            "stops": self.stops,
            "ends": self.ends,
            # Every round is a column from the beginning, so that a reader can go to any round.
            "columns": columns_value(self.last.view),
            "blank": self.blank,
            "absent": {**self.blank["inspector"], "sentence": ABSENT},
            "rounds": {str(number): self.round_chains[number] for number in round_numbers},
            "nodes": {str(number): self.node_chains[number] for number in round_numbers},
        }
        return Recording(self.last.view, values, notes)


ABSENT = "This round's tree is not in this report, which would be too large with every tree."


def _kept_rounds(tape: _Tape, lines: Sequence[RoundView]) -> tuple[list[int], tuple[str, ...]]:
    """Numbers of the rounds whose trees are stored, and a note if some are left out. Rounds with
    more accepted tokens come first, up to `limits.bytes`; at least one round is stored."""
    rank = {line.number: (line.accepted, line.nodes) for line in lines}
    order = sorted(
        tape.round_chains, key=lambda number: (*rank.get(number, (0, 0)), number), reverse=True
    )
    bytes_left = tape.limits.bytes
    round_numbers: list[int] = []
    for number in order:
        bytes_left -= len(
            json.dumps([tape.round_chains[number], tape.node_chains[number]], separators=(",", ":"))
        )
        if bytes_left < 0 and round_numbers:
            break
        round_numbers.append(number)
    if len(round_numbers) == len(order):
        return sorted(round_numbers), ()
    note = (
        f"Of {len(order)} rounds, {len(round_numbers)} have their trees: those that accepted most."
    )
    return sorted(round_numbers), (note,)


def _notice(frame: Frame, baseline: Baseline | None) -> Value:
    return notice_value(run_lines(frame, baseline, frame.answer))


def _stage(detail: Detail | None) -> int:
    return STAGES.index(detail.stage) if detail else 0


def _is_complete(frame: Frame) -> bool:
    return frame.detail is not None and frame.detail.completed is not None
