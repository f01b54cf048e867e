"""Values of the charts of lengths and of the timeline, as plain JSON.

ui/run/values.py says why dicts stand for lists.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import zip_longest
from typing import Any

from core.config import PRESETS, SpeculationConfig
from core.config.mechanisms import (
    choices_of,
    combine_rule,
    implementation_of,
    length_policy,
)
from core.events import RunStats, Span
from core.speculation_length.history import LengthHistory
from ui.run.frame import Before, Frame
from ui.run.listed import join_names
from ui.run.nodes import nodes_of, nodes_value, trip_spans
from ui.run.pass_words import offload_words, ranks_words
from ui.run.pipeline_notes import trial_of
from ui.run.reasons import length_reason
from ui.run.scheduling import decision_values, granted_words
from ui.run.times import NOT_OF_THE_ROUND, add_spans, time_of
from ui.run.view import RoundView, View

__all__ = [
    "adapting_presets",
    "choice_value",
    "drafters_value",
    "lengths_value",
    "round_value",
    "timeline_value",
    "took_words",
]

Value = dict[str, Any]

# Reasons, other than a wrong guess, why a draft made ahead was not used.
UNUSED = ("unused", "ended")
SHOWN_MS = 0.05
"""Shorter parts of a round are left out of the sentence about the round (`took_words`)."""
LEAST_SAVED_MS = 0.005
"""A shorter time saved by drafting ahead is shown as 0.00 ms."""
RECENT_ROUNDS = 32
# The most rounds in a chart before the run is complete.
LIVE_ROUNDS = 100
LIVE_BARS = 40  # rounds of the timeline: each has many bars
MOST_BEFORE = 600  # rounds of the previous run that are drawn
SHARES = ("draft", "ahead", "llm", "combine", "verify", "commit", "prefill", "other")


def drafters_value(view: View) -> Value:
    """The name and the slot of each drafter, in the run's order."""
    named = view.slots.items()
    return {str(i): {"name": name, "slot": slot} for i, (name, slot) in enumerate(named)}


def lengths_value(frame: Frame, before: Before | None = None) -> Value:
    """`rounds`: accepted tokens (`a`), tree depth (`d`) and speculation length (`s`) by round.
    `histogram`: the number of rounds by accepted tokens. `per_position`: acceptance rates.

    `before`, `before_rates`: accepted tokens and rates of the previous run. `decisions`: the
    scheduler's decisions, by round. Other keys: see `choice_value`."""
    view = frame.view
    rounds = view.rounds if frame.is_complete else view.rounds[-LIVE_ROUNDS:]
    return {
        "run": view.run_id,
        "rounds": {
            str(round_.number): {"a": round_.accepted, "d": round_.depth, "s": round_.length}
            for round_ in rounds
        },
        "histogram": {str(j): n for j, n in enumerate(view.stats.acceptance_histogram)},
        "per_position": _rates(view.stats),
        "before": {str(i): n for i, n in enumerate(before.accepted[:MOST_BEFORE])}
        if before
        else {},
        "before_rates": _rates(before.stats) if before else {},
        "decisions": decision_values(rounds),
        "sel": frame.selected_round,
        **choice_value(frame),
    }


def choice_value(frame: Frame) -> Value:
    """The choice of the selected round's length.

    `policy`: the length policy's name, empty without drafters; `predicts`, `always`,
    `no_estimates`: see `core.config.mechanisms.LengthPolicyRecord`. `why`: why the round had its
    length. `next`: the length chosen after the round (-1: none); `reason`: why it was chosen, empty
    if `why` contains it. `estimates`: the policy's estimates, by length. `lately`: see `_lately`.
    `granted`: what the scheduler allowed, in words. `offers`: presets whose length adapts, if this
    policy's length never changes."""
    completed = frame.detail.completed if frame.detail else None
    policy = length_policy(frame.view.speculation.get("length", ""))
    why, reason = _length_words(frame), ""
    if completed is not None:
        reason = length_reason(completed.length_reason, completed.speculation_length)
    return {
        "policy": policy.name if frame.view.drafters else "",
        "predicts": policy.predicts,
        "always": policy.always,
        "no_estimates": policy.no_estimates,
        "why": why,
        "offers": {
            str(i): name for i, name in enumerate(adapting_presets() if policy.always else ())
        },
        "reason": "" if reason in why else reason,  # not twice
        "next": completed.next_speculation_length if completed else -1,
        "estimates": {
            str(e.length): {
                "n": e.nodes,
                "t": round(e.tokens, 4),
                "ms": round(e.ms, 4),
                "tps": round(1000 * e.tokens / e.ms, 3) if e.ms > 0 else 0.0,
            }
            for e in (completed.estimates if completed else ())
        },
        "lately": _lately(frame),
        "granted": granted_words(frame.detail),
    }


@cache
def adapting_presets() -> tuple[str, ...]:
    """Presets whose length policy finds the length."""
    policies = {name: length_policy(SpeculationConfig.preset(name).length) for name in PRESETS}
    return tuple(name for name, policy in policies.items() if not policy.set_by_user)


def _length_words(frame: Frame) -> str:
    view, completed = frame.view, frame.detail.completed if frame.detail else None
    policy = length_policy(view.speculation.get("length", ""))
    rounds = view.rounds[: frame.selected_round + 1]
    if completed is None or not view.drafters or not policy.explain or not rounds:
        return ""
    drafts = frame.detail.drafted.drafts if frame.detail and frame.detail.drafted else ()
    explain = implementation_of(policy.explain)
    words = str(explain(LengthHistory(rounds, drafts, view.speculation)))
    return f"Round {completed.round + 1}, {policy.name}: {words}"


def _lately(frame: Frame) -> float:
    """Tokens per second over at most RECENT_ROUNDS rounds that end with the selected round. A
    round's time is `RoundTime.ms` (times.py), which the policy's estimates predict."""
    end = frame.selected_round + 1
    rounds = frame.view.rounds[max(0, end - RECENT_ROUNDS) : end]
    ms = sum(round_.time.ms for round_ in rounds)
    return round(1000 * sum(round_.emitted for round_ in rounds) / ms, 2) if ms > 0 else 0.0


def _pass_words(view: View) -> str:
    """A sentence about the layers or ranks that an LLM pass waits for."""
    if view.started is None:
        return ""
    last = view.rounds[-1] if view.rounds else None
    if last is None or not last.traffic:
        return offload_words(view.started.offload)
    return ranks_words(view.started.ranks, view.rounds)


def _rates(stats: RunStats) -> Value:
    return {str(i): round(rate, 4) for i, rate in enumerate(stats.acceptance_rate_per_position)}


def timeline_value(frame: Frame) -> Value:
    """The value of the chart in which each stage is a bar, in milliseconds of the run."""
    view = frame.view
    rounds = view.rounds if frame.is_complete else view.rounds[-LIVE_BARS:]
    combine, policy = view.speculation.get("combine", ""), view.speculation.get("length", "")
    return {
        "run": view.run_id,
        "drafters": drafters_value(view),
        "lanes": {str(i): name for i, name in enumerate(_lanes(view))} if view.started else {},
        "bars": _bars(view, rounds),
        "moves": _pass_words(view),
        "nodes": nodes_value(view),
        "pipeline": view.speculation.get("pipeline", "") if view.drafters else "",
        # The combine rule, if its drafts cannot be made ahead.
        "never": "" if combine_rule(combine).ahead or not view.drafters else combine,
        "ended": frame.is_complete,
        "trials": _trials(view),
        "overlap": view.stats.overlap_ratio,
        "ahead": _ahead_sums(view.rounds),
        "hits": {str(round_.number): _ahead_sums((round_,)) for round_ in rounds if round_.ahead},
        "rounds": {
            str(round_.number): _times(round_) for round_ in rounds if round_.predicted_ms > 0
        },
        "policy": policy if view.drafters else "",
        "predicts": length_policy(policy).predicts,
        "predicting": join_names([n for n in choices_of("length") if length_policy(n).predicts]),
        "round": round_value(frame),
        "took": took_words(frame),
        "share": _share(view),
        "total": round(view.stats.total_ms, 3),
        "sel": frame.selected_round,
    }


def _times(round_: RoundView) -> Value:
    """Milliseconds of a round: measured (`ms`), predicted (`p`), hidden by other requests' passes
    (`hid`), and from the first stage's start to the last stage's end (`all`)."""
    measured = round_.time
    return {
        "ms": round(measured.ms, 3),
        "p": round(round_.predicted_ms, 3),
        "hid": round(measured.hidden_ms, 3),
        "all": round(measured.whole_ms, 3),
    }


def _trials(view: View) -> Value:
    """The results of the trials of `pipeline=auto`, by round: see
    `ui.run.pipeline_notes.SwitchTrial`.

    `asked`: the number of rounds so far with a draft after a guessed outcome; `used`: how many of
    these drafts were used."""
    trials, num_guessing, num_used = Value(), 0, 0
    for round_ in view.rounds:
        guesses = [entry for entry in round_.ahead if not entry.is_certain]
        num_guessing += bool(guesses)
        num_used += sum(entry.hit for entry in guesses)
        for trial in filter(None, map(trial_of, round_.notes)):
            trials[str(round_.number)] = {
                "kind": trial.kind,
                "ms": trial.ms,
                "without": trial.without_ms,
                "on": trial.on,
                "asked": num_guessing,
                "used": num_used,
            }
    return trials


def _lanes(view: View) -> tuple[str, ...]:
    layers = ("layers",) if view.started and view.started.offload else ()
    return (*view.drafters, *nodes_of(view), "combine", "llm", *layers, "verify", "commit")


def _bars(view: View, shown: tuple[RoundView, ...]) -> Value:
    """Stages, layer loads and node trips of each round as bars, in milliseconds of the run. `own`:
    `Span.ms`, if the time is shared; `a`: see `_ahead_outcome`."""
    lane_index = {name: str(i) for i, name in enumerate(_lanes(view))}
    return {
        str(round_.number): {
            str(k): {
                "lane": lane_index.get(span.lane, "0"),
                "name": span.name,
                "start": round(span.start_ms, 3),
                "end": round(span.end_ms, 3),
                "a": _ahead_outcome(round_, later, span),
                # SSMs of one batched pass have the same start and end; `ms` is the SSM's share.
                **({"own": round(span.ms, 3)} if span.share < 1 else {}),
            }
            for k, span in enumerate((*round_.spans, *round_.loads, *trip_spans(round_)))
        }
        # The next round records the results of drafts that were made ahead in this round.
        for round_, later in zip_longest(shown, shown[1:])
    }


def _ahead_outcome(round_: RoundView, later: RoundView | None, span: Span) -> str:
    """`hit`, `miss`, or `open` if `later` does not tell; empty for stages that made no draft ahead.

    A span `ahead` drafts for the next round, `later`. An entry of `round_.ahead` with
    `is_certain` is about a draft after a known text: the drafter's `draft` stages, and its stages
    before the round, are hits."""
    if span.name == "ahead":
        entries = [entry for entry in (later.ahead if later else ()) if entry.drafter == span.lane]
        guesses = [
            entry for entry in entries if not entry.is_certain and entry.reason not in UNUSED
        ]
        return ("hit" if guesses[0].hit else "miss") if guesses else "open"
    early = span.start_ms < round_.begin_ms or span.name == "draft"
    known_drafters = (entry.drafter for entry in round_.ahead if entry.is_certain)
    return "hit" if early and span.lane in known_drafters else ""


def _ahead_sums(rounds: tuple[RoundView, ...]) -> Value:
    """Sums over the drafts made ahead in the rounds; empty if there are none.

    `guessed`: whether any was drafted after a guessed outcome. `unused`: drafts with a reason in
    UNUSED. `beside`: hits that saved at least LEAST_SAVED_MS. Times are in milliseconds."""
    entries = [entry for round_ in rounds for entry in round_.ahead]
    if not entries:
        return {}
    return {
        "hits": sum(entry.hit for entry in entries),
        "misses": sum(not entry.hit for entry in entries),
        "unused": sum(entry.reason in UNUSED for entry in entries),
        "saved": round(sum(entry.saved_ms for entry in entries), 3),
        "wasted": round(sum(entry.wasted_ms for entry in entries), 3),
        "beside": sum(entry.hit and entry.saved_ms >= LEAST_SAVED_MS for entry in entries),
        "guessed": not all(entry.is_certain for entry in entries),
    }


def round_value(frame: Frame) -> Value:
    """The drafts made ahead for the selected round; `d`: the drafter's index in the run, -1 if
    unknown."""
    completed = frame.detail.completed if frame.detail else None
    index = {name: str(i) for i, name in enumerate(frame.view.drafters)}
    return {
        str(k): {
            "d": index.get(entry.drafter, "-1"),
            "outcomes": entry.outcomes,
            "p": round(entry.probability, 4),
            "hit": entry.hit,
            "saved": round(entry.saved_ms, 3),
            "wasted": round(entry.wasted_ms, 3),
            "why": entry.reason,
        }
        for k, entry in enumerate(completed.ahead if completed else ())
    }


def took_words(frame: Frame) -> str:
    """How long the selected round took, and its parts of at least SHOWN_MS; empty before the round
    is complete."""
    completed = frame.detail.completed if frame.detail else None
    whole = time_of(completed).whole_ms if completed else 0.0
    if completed is None or not whole:
        return ""
    own = tuple(span for span in completed.spans if span.name not in NOT_OF_THE_ROUND)
    sums = dict(add_spans((), replace(completed, spans=own)))
    between = max(0.0, whole - sums["busy"])
    parts = {"drafting": sums.get("draft", 0.0), "LLM pass": sums.get("llm", 0.0)}
    small = sum(sums.get(name, 0.0) for name in ("combine", "verify", "commit"))
    parts |= {"combine, verdict and commit": small, "between stages": between}
    parts_words = ", ".join(f"{name} {ms:.1f} ms" for name, ms in parts.items() if ms >= SHOWN_MS)
    return f"Round {completed.round + 1} took {whole:.1f} ms: {parts_words}."


def _share(view: View) -> Value:
    sums = dict(view.share)
    # Stages overlap: their sum may exceed the total. `busy` counts overlapping time once; in the
    # rest of the total no stage ran.
    idle = max(0.0, view.stats.total_ms - sums.pop("busy", 0.0))
    return {name: round(sums.get(name, idle if name == "other" else 0.0), 3) for name in SHARES}
