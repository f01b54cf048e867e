"""Lines that the page shows about a run."""

from __future__ import annotations

from dataclasses import dataclass

from core.plurals import number_of
from ui.run.frame import Baseline, Frame
from ui.run.pipeline_notes import ALONE, in_words, is_alone, is_fault
from ui.run.proof import Answer
from ui.run.routing_values import routed_candidates
from ui.run.slower import slower_because
from ui.run.text_parts import served_in_short, served_parts
from ui.run.times import stage_times
from ui.run.view import STAGES
from ui.words.spreads import is_slower

__all__ = ["Line", "ordinal", "run_lines", "position_sentence"]

STAGE_WORDS = {
    "draft": "drafted",
    "combine": "combined",
    "verify": "verified",
    "commit": "committed",
}
FINISHED = {
    "length": "the token limit was reached",
    "eos": "the LLM ended the text",
    "stop": "a stop string came up",
    "context": "the context is full",
}
NOTES_SHOWN = 3

assert set(STAGE_WORDS) == set(STAGES)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a notice. `kind`: `info`, `good`, `warn` or `error`."""

    kind: str
    text: str


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def run_lines(
    frame: Frame, baseline: Baseline | None = None, answer: Answer | None = None
) -> list[Line]:
    """All lines about the displayed run."""
    kind = "error" if frame.view.state == "failed" else "info"
    position = Line(kind, position_sentence(frame))
    lines = []
    if answer:
        kinds = {"identical": "good", "distribution": "good", "tie": "warn", "bug": "error"}
        lines.append(Line(kinds.get(answer.kind, "info"), answer.sentence))
    lines += _routing_lines(frame)
    # The results of a complete run come before the sentence that the run has ended.
    lines.insert(len(lines) if frame.is_complete else 0, position)
    lines += _final_round_note(frame)
    started = frame.view.started
    if started:
        lines += [Line("info", warning) for warning in started.warnings]
    lines += _notes(frame)
    if frame.view.state in ("completed", "cancelled") and baseline:
        lines += _speed(frame, baseline)
    return lines + _alone_note(frame)


def _routing_lines(frame: Frame) -> list[Line]:
    ssms = routed_candidates(frame.view)
    if not frame.is_complete or not ssms:
        return []
    return [Line("info", served_in_short(served_parts(frame.view, ssms), frame.view.letters))]


def _final_round_note(frame: Frame) -> list[Line]:
    # A completed run that was played at full speed may show a round before its last round.
    rounds, number = frame.view.rounds, frame.selected_round
    is_followed = frame.is_complete and frame.mode == "full" and not frame.pinned
    is_earlier = frame.view.state == "completed" and 0 <= number < len(rounds) - 1
    if not is_followed or not is_earlier or not rounds[number].nodes:
        return []
    sentence = f"Showing round {number + 1}, whose draft has most to tell"
    return [Line("info", f"{sentence}; click a token for its own round.")]


def _notes(frame: Frame) -> list[Line]:
    """How many earlier notes are left out, then the engine's latest notes up to the displayed
    position. The note of `_alone_note` is not among them."""
    lines = [
        Line("warn" if is_fault(note) else "info", f"Round {round_.number + 1}: {in_words(note)}.")
        for round_ in frame.view.rounds
        for note in round_.notes
        if not is_alone(note)
    ]
    hidden = len(lines) - NOTES_SHOWN
    count = f"{number_of(hidden, 'earlier note')} not shown here."
    return ([Line("info", count)] if hidden > 0 else []) + lines[-NOTES_SHOWN:]


def _alone_note(frame: Frame) -> list[Line]:
    """The note that the pipeline `across` had no other request to overlap with; empty if a round
    has a draft made ahead."""
    rounds = frame.view.rounds
    alone = any(is_alone(note) for round_ in rounds for note in round_.notes)
    has_overlap = any(round_.ahead for round_ in rounds)
    return [Line("info", ALONE)] if alone and not has_overlap else []


def position_sentence(frame: Frame) -> str:
    """The run's state and the displayed position, in words."""
    if not frame.run_id:
        return "Press Run: the text appears here. Click a token to see where it came from."
    if not frame.known:
        return _waiting_sentence(frame)
    if not frame.at_end or (frame.pinned and not _is_at_last_round(frame)):
        return _earlier_position_sentence(frame)
    return _state_sentence(frame)


def _is_at_last_round(frame: Frame) -> bool:
    detail = frame.detail
    last = len(frame.view.rounds) - 1
    return detail is not None and detail.round == last and detail.completed is not None


def _waiting_sentence(frame: Frame) -> str:
    if frame.ended:
        return "The engine closed before this run began."
    if frame.place:
        return f"In the queue: {ordinal(frame.place)} in line."
    return "Starting."


def _earlier_position_sentence(frame: Frame) -> str:
    shown = frame.detail if frame.pinned else frame.view.current
    number = shown.round + 1 if shown else 0
    # `known_rounds` counts complete rounds; the displayed round may be incomplete.
    position = f"are at round {number} of {max(number, frame.known_rounds)}"
    if shown and shown.stage != "commit":
        position += f", {STAGE_WORDS[shown.stage]}"
    if frame.view.state in ("cancelled", "failed"):
        return f"{_state_sentence(frame)} You {position}."
    engine = "Engine finished" if frame.ended else "The engine runs on"
    return f"{engine}, you {position}."


def _state_sentence(frame: Frame) -> str:
    view, stats = frame.view, frame.view.stats
    amount = f"{number_of(stats.num_new_tokens, 'token')} in {number_of(stats.num_rounds, 'round')}"
    if view.state == "completed":
        why = FINISHED.get(view.finish_reason, view.finish_reason)
        return f"Finished: {amount}; {why}."
    if view.state == "cancelled":
        return f"Stopped: {amount} until then."
    if view.state == "failed":
        return f"Failed after {amount}. {view.error}"
    if frame.ended:
        return f"Interrupted: {amount} were recorded, the end is missing."
    if frame.mode == "step":
        return f"At the engine's latest stage: {amount} so far."
    return f"Writing: {amount} so far."


def _speed(frame: Frame, baseline: Baseline) -> list[Line]:
    """Says that the run was slower than plain decoding, and why; no line if the measurements do not
    show this."""
    view, stats = frame.view, frame.view.stats
    ratio = baseline.speed_up(stats.tokens_per_second)
    # No line while repeats are being measured, or for a stopped run without repeats: a part does
    # not represent the whole run.
    if frame.measuring or not (baseline.blocks or view.state == "completed"):
        return []
    if not view.drafters or not stats.num_rounds or ratio is None or not is_slower(ratio):
        return []
    early = [draft for round_ in view.rounds for draft in round_.ahead if draft.is_certain]
    beside_others_ms = sum(draft.saved_ms for draft in early)
    parts = [round_.scheduled for round_ in view.rounds if round_.scheduled is not None]
    schedule = next((part.schedule for part in parts if part.num_live > 1), "")
    rounds = [stage_times(round_.spans, round_.time.whole_ms) for round_ in view.rounds]
    why = slower_because(stats, ratio, view.speculation, beside_others_ms, schedule, rounds)
    return [Line("warn", why)]
