"""The routing picture's value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.config.mechanisms import routing_rule
from core.events import Event, RoundCompleted, RoutedDrafter, RunStarted, Span
from tests.core.engines import rounds_of
from tests.family import SSMS
from tests.synthetic import Mechanisms, synthetic_run
from tests.ui.components.samples import values_at
from ui.run.frame import Frame
from ui.run.routing_values import routing_value
from ui.run.view import detail_of, reduce_all

COSINE = Mechanisms(routing="cosine", draft="fused", loses=20)


def run(mechanisms: Mechanisms = COSINE) -> list[Event]:
    return synthetic_run(30, seed=5, drafters=SSMS, mechanisms=mechanisms)


def routing_of(events: list[Event], number: int = 0) -> dict[str, Any]:
    return dict(values_at(events, number)["routing"])


def with_routing(
    events: list[Event],
    sets: dict[int, str],
    reasons: dict[int, str],
    audition_ms: dict[int, float],
) -> list[Event]:
    """`sets` has the letters of the routed SSMs. A value of `sets` or `reasons` holds from the
    round that is its key. `audition_ms`: by round, how long each of two SSMs scored the text."""

    def with_changes(event: Event) -> Event:
        if not isinstance(event, RoundCompleted):
            return event
        start = max(number for number in sets if number <= event.round)
        reason = reasons[max(number for number in reasons if number <= event.round)]
        stage = "audition" if event.round else "prefill"
        spans = tuple(
            Span(name, stage, 0.0, audition_ms.get(event.round, 0.0)) for name in SSMS[:2]
        )
        routing = tuple(
            RoutedDrafter(name, "routed" if "ABCDE"[i] in sets[start] else "waiting", 100.0 + i)
            for i, name in enumerate(SSMS)
        )
        spans = spans if event.round in audition_ms else ()
        others = [s for s in event.spans if s.name != "prefill" or s.lane not in SSMS]
        return replace(event, routing=routing, routing_reason=reason, spans=(*spans, *others))

    return [with_changes(event) for event in events]


def test_every_part_and_score_is_the_recorded_one() -> None:
    events = run()
    value = routing_of(events)
    assert list(value["ssms"].values()) == list(SSMS)
    roles, before = set(), dict.fromkeys(SSMS, 0.5)
    for event in rounds_of(events):
        cells = value["rounds"].get(str(event.round), {})
        shown = {(SSMS[int(i)], cell["r"], cell["s"]) for i, cell in cells.items()}
        tree = detail_of(events, event.round).combined  # type: ignore[union-attr]
        plain = tree is not None and not tree.token_ids
        shown_role = {"routed": "chosen", "explored": "chosen"} if plain else {}
        expected = {
            (one.drafter, shown_role.get(one.role, one.role), round(before[one.drafter], 4))
            for one in event.routing
        }
        before = {one.drafter: one.score for one in event.routing} or before
        assert shown == expected
        roles |= {role for _, role, _ in shown}
    parts = {"routed", "explored", "waiting", "lost", "chosen"}
    assert roles == parts, "the run has every part"


def test_ssms_that_are_not_explored_have_the_highest_scores_shown_and_each_has_a_reason() -> None:
    """After the round, an SSM that was left out may score higher than a routed one."""
    events = run()
    counts: Counter[str] = Counter()
    for event in rounds_of(events)[1:]:
        value = routing_of(events, event.round)
        shown = value["rounds"].get(str(event.round), {})
        scores = {value["ssms"][key]: cell["s"] for key, cell in shown.items()}
        by_role = {
            role: [one.drafter for one in event.routing if one.role == role]
            for role in ("routed", "explored", "waiting")
        }
        routed, left_out = by_role["routed"], by_role["waiting"]
        if routed and left_out:
            least = min(scores[name] for name in routed)
            assert least >= max(scores[name] for name in left_out), event.round
            after = {one.drafter: one.score for one in event.routing}
            least = min(after[name] for name in routed)
            counts["swapped"] += least < max(after[name] for name in left_out)
        reasons = value["sentence"].partition(" Why? ")[2]
        if "chosen" in {cell["r"] for cell in shown.values()} or not left_out:
            continue
        for name in (*routed, *left_out):
            assert f"{name} ({scores[name]:.2f})" in reasons
        assert all(name in reasons for name in by_role["explored"])
        assert ("of the others" in reasons) == bool(by_role["explored"] and routed)
        counts["explored"] += bool(by_role["explored"])
        counts["best"] += not by_role["explored"]
    assert min(counts[key] for key in ("swapped", "explored", "best")) > 0, counts


def test_a_switch_is_a_round_in_which_other_ssms_draft() -> None:
    events = run()
    drafting = {
        event.round: {one.drafter for one in event.routing if one.role in ("routed", "explored")}
        for event in rounds_of(events)
        if event.routing
    }
    numbers = sorted(drafting)
    expected = {b for a, b in zip(numbers, numbers[1:], strict=False) if drafting[a] != drafting[b]}
    assert {int(n) for n in routing_of(events)["switches"]} == expected and len(expected) > 5
    steady = with_routing(events, {0: "AC", 12: "CD"}, {0: "one", 12: "other"}, {})
    assert routing_of(steady)["switches"] == {"12": True}
    assert routing_of(steady)["reasons"] == {"0": "one", "12": "other"}


def test_the_sentence_of_the_selected_round() -> None:
    events = with_routing(run(), {0: "AC", 12: "CD"}, {0: "why so", 12: "other"}, {})
    value = routing_of(events, 3)
    assert value["sel"] == 3
    assert value["sentence"] == (
        "Round 4: A ssm-code and C ssm-docs drafted; B ssm-dialogue, D ssm-math and E ssm-stories "
        "were left out. Why? why so."
    )
    plain = routing_of(run(), 6)["sentence"]
    assert plain.startswith("Round 7: nothing was drafted; ") and "were chosen." in plain
    roles = {
        one.role: event.round
        for event in rounds_of(run())
        for one in event.routing
        if event.num_accepted
    }
    explored, lost = (routing_of(run(), roles[role])["sentence"] for role in ("explored", "lost"))
    assert "drafted too, to be measured" in explored and "was lost" in lost
    view = reduce_all(events[:-1])
    drafting = replace(detail_of(events, 3), completed=None)  # type: ignore[type-var]
    assert routing_value(Frame(view=view, detail=drafting))["sentence"].startswith("Round 4: ")


def test_the_cost_of_auditions_is_their_share_of_the_decoding_time() -> None:
    once, twice, first = {4: 1.5}, {4: 1.5, 20: 2.0}, {0: 3.0, 20: 2.0}
    for audition_ms, times in ((once, "Once"), (twice, "2 times"), (first, "2 times")):
        events = with_routing(run(Mechanisms(routing="credit")), {0: "AC"}, {0: "why"}, audition_ms)
        stats = reduce_all(events).stats
        decode_ms = 1000 * stats.num_new_tokens / stats.tokens_per_second
        share = 100 * 2 * sum(audition_ms.values()) / decode_ms
        cost = routing_of(events)["cost"]
        assert f"{times} all SSMs scored" in cost and f"{share:.3g} %" in cost
        assert (", first at the prompt's end" in cost) == (audition_ms is first)
        assert cost.startswith("The choice stayed in 30 rounds.")
    never = with_routing(run(Mechanisms(routing="credit")), {0: "AC", 9: "AB"}, {0: "why"}, {})
    cost = routing_of(never)["cost"]
    assert "changed once" in cost and "No audition ran: 0 % of" in cost
    assert (
        "This rule judges drafts; it needs no auditions." in routing_of(run())["cost"]
        and "to be measured" not in routing_of(never)["cost"]
    )
    roles = [{one.role for one in event.routing} for event in rounds_of(run())]
    count = sum("explored" in of_round for of_round in roles)
    cost = routing_of(run())["cost"]
    assert f"; in {count} of them an SSM drafted only to be measured: after few accepted " in cost
    assert "those that drafted least get a turn." in cost


def test_the_time_of_the_scores_is_reported() -> None:
    audition_ms = {0: 3.0, 12: 2.0}
    events = with_routing(run(Mechanisms(routing="credit")), {0: "AC"}, {0: "why"}, audition_ms)
    texts = {number: routing_of(events, number)["scored"] for number in (1, 5, 12, 13, 25)}
    assert texts == {
        1: "as of the prompt's end",
        5: "as of the prompt's end",
        **dict.fromkeys((12, 13, 25), "as of the end of round 12"),
    }
    never = with_routing(run(Mechanisms(routing="credit")), {0: "AC"}, {0: "why"}, {})
    assert routing_of(never, 5)["scored"] == "all equal because no SSM has been scored yet"
    before_drafts = "as they were before its drafts and decided which SSMs draft"
    assert routing_of(run(), 5)["scored"] == before_drafts, "they change with every round"


def test_where_all_ssms_draft_none_is_scored() -> None:
    events = with_routing(run(Mechanisms(routing="credit")), {0: "ABCDE"}, {0: "why"}, {})
    (started,) = [event for event in events if isinstance(event, RunStarted)]
    config: dict[str, Any] = dict(started.config)
    config["speculation"] = {**config["speculation"], "routed_drafters": 5}
    value = routing_of([replace(started, config=config), *events[1:]], 5)
    assert value["scored"].endswith("no SSM is scored while all of them draft")
    assert "No audition ran" in value["cost"]


def test_a_rule_with_one_audition_is_not_said_to_judge_drafts() -> None:
    events = with_routing(run(Mechanisms(routing="audition")), {0: "A"}, {0: "why"}, {0: 3.0})
    assert "Once all SSMs scored" in routing_of(events, 5)["cost"]
    assert routing_of(events, 5)["scored"] == "as of the prompt's end"


@pytest.mark.parametrize("drafters", [SSMS[:1], (), SSMS], ids=["one", "none", "all-draft"])
def test_a_run_without_a_choice_has_no_picture(drafters: tuple[str, ...]) -> None:
    mechanisms = Mechanisms() if drafters == SSMS else Mechanisms(routing="cosine")
    value = routing_of(synthetic_run(6, seed=5, drafters=drafters, mechanisms=mechanisms))
    assert value["rule"] == "" and not value["rounds"] and value["sentence"] == value["cost"] == ""


@pytest.mark.parametrize("name", ["cosine", "credit", "audition"])
def test_the_picture_has_the_facts_of_the_rules_record(name: str) -> None:
    value, rule = routing_of(run(Mechanisms(routing=name))), routing_rule(name)
    assert (value["rule"], value["score"]) == (name, rule.score)
    assert (value["unless"], value["explores"]) == (rule.unless, rule.explores)
    assert bool(rule.explores) == (name == "cosine") and bool(rule.unless) == (name != "audition")


class CountedRounds(tuple[Any, ...]):
    passes = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).passes += 1
        return super().__iter__()


def test_a_live_update_iterates_over_the_rounds_once() -> None:
    view = reduce_all(run())
    CountedRounds.passes = 0
    counted = replace(view, rounds=CountedRounds(view.rounds))
    assert routing_value(Frame(view=counted, detail=view.last))["cost"]
    assert CountedRounds.passes == 1
