"""Which SSMs draft, round by round: the routing picture's value and its sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.config.mechanisms import ROUTING_RULES, RoutingRule, is_model_free
from core.events import RoutedDrafter
from core.routing.cosine import START
from ui.run.charts import LIVE_ROUNDS, drafters_value
from ui.run.explain import percent
from ui.run.frame import Frame
from ui.run.listed import join_names
from ui.run.reasons import route_reason
from ui.run.regret_words import regret_value
from ui.run.text_parts import served_parts
from ui.run.view import Detail, RoundView, View

__all__ = ["selected_route", "routed_candidates", "route_in_short", "routing_value"]

Value = dict[str, Any]
DRAFTING = ("routed", "explored")
CHOSEN = "chosen"


@dataclass(frozen=True, slots=True)
class _History:
    """`scores`: for each round with routing, the scores by which its SSMs were chosen. `switches`:
    the rounds in which the set of drafting SSMs changed. `auditions`: milliseconds of each round's
    audition, in which all SSMs score the text's last tokens. `explored`: in how many rounds an SSM
    drafted to be measured."""

    scores: Mapping[int, Mapping[str, float]]
    switches: Sequence[int]
    auditions: Mapping[int, float]
    explored: int


def routing_value(frame: Frame) -> Value:
    """`rule`: the routing rule, empty if all SSMs draft; `score`, `unless`, `explores`: fields of
    its RoutingRule. `rounds`: see `_cells`. `switches`: the rounds in which the set of drafting
    SSMs changed. `parts`: for a complete run, which drafter served which part of the text.

    `ask`: whether regret can be asked for; `regret`: empty if unknown. `sel`: the selected round;
    `sentence`: about the selected round; `scored`: when its scores were measured."""
    view = frame.view
    rule = _rule(view)
    history = _history(view, rule)
    index = {name: str(i) for i, name in enumerate(view.drafters)}
    shown = view.rounds if frame.is_complete else view.rounds[-LIVE_ROUNDS:]
    routed = [round_ for round_ in shown if round_.routing]
    return {
        "run": view.run_id,
        "drafters": drafters_value(view),
        "rule": rule.name if rule else "",
        "score": rule.score if rule else "",
        "unless": rule.unless if rule else "",
        "explores": rule.explores if rule else "",
        "ssms": {index[name]: name for name in _ssms(view)} if rule else {},
        "rounds": {
            str(round_.number): _cells(round_, history.scores[round_.number], index)
            for round_ in routed
        },
        "switches": {str(number): True for number in history.switches},
        "reasons": _reasons(routed),
        "cost": _cost(view, rule, history) if rule else "",
        "parts": served_parts(view, _ssms(view)) if rule and frame.is_complete else {},
        "ask": rule is not None and frame.is_complete,
        "regret": regret_value(frame.regret, view.letters) if frame.regret else {},
        **_selected_value(frame, rule, history),
    }


def selected_route(frame: Frame) -> Value:
    """The fields of `routing_value` that depend on the selected round."""
    rule = _rule(frame.view)
    return _selected_value(frame, rule, _history(frame.view, rule))


def _selected_value(frame: Frame, rule: RoutingRule | None, history: _History) -> Value:
    number = frame.selected_round
    return {
        "sel": number,
        "sentence": _sentence(frame.view, frame.detail, rule, history) if rule else "",
        "scored": _when_scored(frame.view, rule, history, number) if rule else "",
    }


def route_in_short(frame: Frame) -> str:
    """Which SSMs drafted in the selected round, and why; empty without routing, and before the
    round is complete."""
    view, detail = frame.view, frame.detail
    completed = detail.completed if detail else None
    if completed is None or not completed.routing or _rule(view) is None:
        return ""
    names = [
        f"{sign} {name}"
        for name, sign in view.letters.items()
        if name in _drafting_names(completed.routing)
    ]
    drafted = detail is not None and detail.combined is not None and detail.combined.token_ids
    words = f"drafted by {join_names(names)}" if drafted else "nothing was drafted"
    reason = route_reason(completed.routing_reason, completed.round)
    why = f" Why? {reason}." if drafted and reason else ""
    return f"Round {completed.round + 1}: {words}.{why}"


def routed_candidates(view: View) -> tuple[str, ...]:
    """The SSMs among which a rule chooses; empty if all draft."""
    return tuple(_ssms(view)) if _rule(view) else ()


def _rule(view: View) -> RoutingRule | None:
    rule = ROUTING_RULES.get(view.speculation.get("routing", ""))
    # All SSMs draft if the rule has no implementation; with a single SSM there is no choice.
    return rule if rule and rule.implementation and len(_ssms(view)) > 1 else None


def _ssms(view: View) -> list[str]:
    return [name for name in view.drafters if not is_model_free(name)]


def _history(view: View, rule: RoutingRule | None) -> _History:
    """If the rule judges drafts, the scores recorded after a round choose the next round's SSMs.
    Other rules record scores that were measured before the round."""
    scores: dict[int, dict[str, float]] = {}
    before = dict.fromkeys(_ssms(view), START)
    drafting: frozenset[str] | None = None
    switches, auditions, explored = [], {}, 0
    for round_ in view.rounds:
        if round_.asking_ms > 0:
            auditions[round_.number] = round_.asking_ms
        if not round_.routing:
            continue
        recorded = {one.drafter: one.score for one in round_.routing}
        scores[round_.number] = before if rule and rule.judges_drafts else recorded
        names = _drafting_names(round_.routing)
        if drafting not in (None, names):
            switches.append(round_.number)
        before, drafting = recorded, names
        explored += any(one.role == "explored" for one in round_.routing)
    return _History(scores, switches, auditions, explored)


def _cells(round_: RoundView, scores: Mapping[str, float], index: dict[str, str]) -> Value:
    """Role (`r`) and score (`s`) of each SSM. Without a tree the role of a chosen SSM is CHOSEN."""
    return {
        index[one.drafter]: {
            "r": CHOSEN if one.role in DRAFTING and not round_.nodes else one.role,
            "s": round(scores[one.drafter], 4),
        }
        for one in round_.routing
        if one.drafter in index
    }


def _drafting_names(routing: Iterable[RoutedDrafter]) -> frozenset[str]:
    return frozenset(one.drafter for one in routing if one.role in DRAFTING)


def _reasons(routed: Sequence[RoundView]) -> Value:
    """The reasons by round, in words. A round with the previous round's reason is left out."""
    reasons: Value = {}
    before = ""
    for round_ in routed:
        if round_.routing_reason != before:
            before = round_.routing_reason
            reasons[str(round_.number)] = route_reason(before, round_.number)
    return reasons


# -- in words --


def _sentence(view: View, detail: Detail | None, rule: RoutingRule, history: _History) -> str:
    if detail is None:
        return "A rule chooses which SSMs draft. Its choice is shown here, round by round."
    names = {name: f"{sign} {name}" for name, sign in view.letters.items()}
    number = detail.round + 1
    if detail.completed is None:
        drafts = detail.drafted.drafts if detail.drafted else ()
        drafting = [names.get(one.drafter, one.drafter) for one in drafts if one.token_ids]
        clause = (
            f"{join_names(drafting)} {_verb('draft', drafting)}" if drafting else "no draft so far"
        )
        return f"Round {number}: {clause}. The scores come with the end of the round."
    routing = detail.completed.routing
    if not routing:
        return f"Round {number}: no SSM was chosen, nothing was to be drafted."
    parts = {
        role: [names.get(one.drafter, one.drafter) for one in routing if one.role == role]
        for role in (*DRAFTING, "waiting", "lost")
    }
    drafted = detail.combined is not None and bool(detail.combined.token_ids)
    if not drafted:
        chosen = [*parts["routed"], *parts["explored"]] or ["no SSM"]
        return (
            f"Round {number}: nothing was drafted; {join_names(chosen)} {_verb('was', chosen)} "
            "chosen."
        )
    sentences = [f"Round {number}: {join_names(parts['routed']) or 'no SSM'} drafted"]
    if parts["explored"]:
        sentences.append(f"{join_names(parts['explored'])} drafted too, to be measured")
    if parts["waiting"]:
        sentences.append(
            f"{join_names(parts['waiting'])} {_verb('was', parts['waiting'])} left out"
        )
    if parts["lost"]:
        sentences.append(f"{join_names(parts['lost'])} {_verb('was', parts['lost'])} lost")
    reason = route_reason(detail.completed.routing_reason, detail.round)
    why = f"Why? {reason}." if reason else ""
    return " ".join(
        filter(None, (f"{'; '.join(sentences)}.", why, _by_score(view, detail, rule, history)))
    )


def _by_score(view: View, detail: Detail, rule: RoutingRule, history: _History) -> str:
    """The SSMs chosen and left out by score; empty if the scores did not decide."""
    scores = history.scores.get(detail.round, {})
    routing = detail.completed.routing if detail.completed else ()
    parts = {
        role: [one.drafter for one in routing if one.role == role]
        for role in (*DRAFTING, "waiting")
    }
    routed, waiting = parts["routed"], parts["waiting"]
    if not rule.judges_drafts or not waiting or len(set(scores.values())) < 2:
        return ""
    scored = {
        name: f"{view.letters[name]} {name} ({score:.2f})"
        for name, score in scores.items()
        if name in view.letters
    }
    left_out = join_names([scored[name] for name in waiting])
    if not routed:
        return (
            "No SSM was chosen by its score before this round: "
            f"{left_out} {_verb('was', waiting)} left out."
        )
    # The scheduler may leave out an SSM with a higher score than a chosen SSM.
    if min(scores[name] for name in routed) < max(scores[name] for name in waiting):
        return ""
    best = join_names([scored[name] for name in routed])
    rest = " of the others" if parts["explored"] else ""
    lower = f"{left_out} scored no higher"
    return f"By the scores before this round {best} came first{rest}; {lower}."


def _verb(word: str, subjects: Sequence[str]) -> str:
    one, many = {"was": ("was", "were"), "draft": ("drafts", "draft")}[word]
    return one if len(subjects) == 1 else many


def _when_scored(view: View, rule: RoutingRule, history: _History, number: int) -> str:
    """When the scores shown for round `number` (-1: the latest) were measured. An audition comes
    before the round that records it."""
    if rule.judges_drafts:
        return "as they were before its drafts and decided which SSMs draft"
    last = max((one for one in history.auditions if number < 0 or one <= number), default=None)
    if last is None:
        all_draft = view.speculation.get("routed_drafters", 0) >= len(_ssms(view))
        why = "is scored while all of them draft" if all_draft else "has been scored yet"
        return f"all equal because no SSM {why}"
    return f"as of the end of round {last}" if last else "as of the prompt's end"


def _cost(view: View, rule: RoutingRule, history: _History) -> str:
    count = len(history.scores)
    if not count:
        return ""
    changed = len(history.switches)
    times = "changed once" if changed == 1 else f"changed {changed} times" if changed else "stayed"
    rounds = "round" if count == 1 else "rounds"
    explored = history.explored
    measured = f"; in {explored} of them an SSM drafted only to be measured: {rule.explores}"
    why = measured if explored else ""
    choice = f"The choice {times} in {count} {rounds}{why}."
    auditions = {number: ms for number, ms in history.auditions.items() if number in history.scores}
    if rule.judges_drafts:
        return f"{choice} This rule judges drafts; it needs no auditions."
    if not auditions:
        return f"{choice} No audition ran: 0 % of the decoding time."
    stats = view.stats
    decode_ms = 1000 * stats.num_new_tokens / max(stats.tokens_per_second, 1e-9)
    share = sum(auditions.values()) / max(decode_ms, 1e-9)
    often = "Once" if len(auditions) == 1 else f"{len(auditions)} times"
    # An audition at the prompt's end is recorded in round 0.
    first = "" if min(auditions) else ", first at the prompt's end"
    return (
        f"{choice} {often} all SSMs scored the text's last tokens{first}: this took "
        f"{percent(share)} of the decoding time."
    )
