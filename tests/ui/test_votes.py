"""The page's texts and pictures of drafters, votes and lengths."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import pytest

from core.config import SpeculationConfig
from core.events import Combined, DraftRecord, Event, RoundCompleted
from core.speculation_length import RoundOutcome
from core.speculation_length.trend import Trend
from tests.synthetic import DRAFTERS, Mechanisms, synthetic_run
from tests.ui.fakes import pictures_at, view_at
from ui.run.explain import explain, quote
from ui.run.frame import Frame
from ui.run.reasons import length_reason
from ui.run.values import picture_values
from ui.run.view import detail_of, reduce_all
from ui.run.vote_reasons import winner_reasons
from ui.run.votes import helped_words, proposals_value, vote_in_short, vote_sentence

RULES = ("vote", "vote_tree", "log_pool")


def run(combine: str, rounds: int = 12, drafters: tuple[str, ...] = DRAFTERS) -> list[Event]:
    mechanisms = Mechanisms(combine, "goodput", "ahead")
    return synthetic_run(rounds, seed=5, drafters=drafters, mechanisms=mechanisms)


@pytest.mark.parametrize("combine", RULES)
def test_every_drafted_token_has_the_mass_of_its_events(combine: str) -> None:
    events = run(combine)
    for number in range(12):
        _, detail = view_at(events, number)
        tree, drafted = detail.combined, detail.drafted
        rows = pictures_at(events, number)["proposals"]["rows"]
        dropped_masses = dict(zip(tree.dropped, tree.dropped_masses, strict=True))
        for draft in drafted.drafts:
            row = rows[str(DRAFTERS.index(draft.drafter))]
            for j in range(len(draft.token_ids)):
                token, mass = row[str(j)], dropped_masses.get((draft.drafter, j))
                assert token["in_tree"] == (mass is None)
                if mass is None:
                    mass = tree.masses[token["node"]]
                parent = row[str(draft.parents[j])] if draft.parents[j] >= 0 else None
                if combine == "log_pool" and parent:
                    mass /= tree.masses[parent["node"]]
                assert token["mass"] == pytest.approx(mass, abs=6e-5)


def test_a_pools_number_is_the_weighted_geometric_mean_of_the_scores_of_the_drafters() -> None:
    view, detail = view_at(run("log_pool"), 5)
    assert detail.combined and detail.drafted and len(detail.drafted.drafts) == 3
    rows = proposals_value(Frame(view=view, detail=detail))["rows"]
    weights = [detail.combined.weights[draft.drafter] for draft in detail.drafted.drafts]
    assert len(set(weights)) > 1 and len(rows["0"]) > 2
    for j, token in rows["0"].items():
        pairs = zip(weights, (row[j]["score"] for row in rows.values()), strict=True)
        log_mean = sum(weight * math.log(score) for weight, score in pairs) / sum(weights)
        assert token["mass"] == pytest.approx(math.exp(log_mean), abs=2e-3)


def test_no_drafter_has_a_weight_in_a_union() -> None:
    proposals = pictures_at(run("union"), 3)["proposals"]
    assert proposals["words"]["legend"] == " No vote: union merges all drafts into one tree."
    assert not proposals["weights"] and not proposals["history"] and not proposals["sentence"]
    assert all(t["mass"] is None for row in proposals["rows"].values() for t in row.values())


@pytest.mark.parametrize("combine", RULES)
def test_weights_over_time_are_those_each_round_used(combine: str) -> None:
    events = run(combine)
    history = pictures_at(events, 2)["proposals"]["history"]
    used = [event.weights for event in events if isinstance(event, Combined)]
    after = [event.weights for event in events if isinstance(event, RoundCompleted)]
    for number, weights in enumerate(used):
        expected = {str(DRAFTERS.index(name)): weight for name, weight in weights.items()}
        assert history[str(number)] == pytest.approx(expected, abs=6e-5)
        proposals = pictures_at(events, number)["proposals"]
        expected = pytest.approx(list(after[number].values()), abs=6e-5)
        assert list(proposals["after"].values()) == expected


@pytest.mark.parametrize("combine", RULES)
def test_kept_tokens_are_counted_as_distinct_nodes(combine: str) -> None:
    events = run(combine)
    for number in range(6):
        kept_nodes = pictures_at(events, number)["proposals"]["kept"]
        _, detail = view_at(events, number)
        tree = pictures_at(events, number)["tree"]
        assert detail.combined and kept_nodes["nodes"] == len(detail.combined.token_ids)
        assert kept_nodes["all"] == kept_nodes["nodes"] + len(tree["dropped"])


def test_a_vote_is_reported_with_its_numbers() -> None:
    events, count = run("vote", 30), 0
    for number in range(30):
        view, detail = view_at(events, number)
        tree, verdict, completed = detail.combined, detail.verified, detail.completed
        sentence = vote_sentence(view, detail)
        if not tree.winner:
            assert sentence == "Nothing was drafted in this round: there was nothing to weigh."
            continue
        total = sum(tree.weights.values())
        drafting = [draft for draft in detail.drafted.drafts if draft.token_ids]
        agree = tree.masses[0] == pytest.approx(total) and len(drafting) > 2
        won = f": drafters with {tree.masses[0]:.2f} of {total:.2f} of the weight"
        columns = zip(*(one.token_ids for one in drafting), strict=False)
        together = sum(1 for _ in takewhile(lambda ids: len({*ids}) == 1, columns))
        span = "token 1." if together == 1 else f"tokens 1 to {together}."
        won = f". All {len(drafting)} agree on {span}" if agree else won
        assert f"{tree.winner} won{won}" in sentence
        assert f"{len(verdict.path)} of its {len(tree.token_ids)} tokens" in sentence
        before, after = tree.weights[tree.winner], completed.weights[tree.winner]
        moved = re.search(r"its weight (rises|falls) from (\S+) to (\d+\.\d\d)", sentence)
        if moved:
            count += 1
            assert (moved[1] == "rises") == (after > before)
            assert (moved[2], moved[3]) == (f"{before:.2f}", f"{after:.2f}")
            assert sentence.endswith(f"to {after:.2f}, after all are rescaled to mean 1.")
            assert ("above the running mean" in sentence) == (moved[1] == "rises")
    assert count > 10


def test_a_vote_of_two_is_explained_by_their_weights() -> None:
    heavier = "With two drafters the heavier one wins unless they agree."
    for count, words in ((2, heavier), (1, "drafted alone")):
        view, detail = view_at(run("vote", 4, DRAFTERS[:count]), 1)
        assert words in vote_sentence(view, detail)
    assert "two drafters" not in vote_sentence(*view_at(run("vote", 4), 1))


def test_a_carried_over_mean_is_not_reported_as_if_it_were_known() -> None:
    view, detail = view_at(run("vote"), 4)
    assert "running mean" in vote_sentence(view, detail)
    started = view.started
    speculation = {**started.config["speculation"], "carry_over": True}
    config = {**started.config, "speculation": speculation}
    carried = replace(view, started=replace(started, config=config))
    assert "running mean" not in vote_sentence(carried, detail)
    assert "its weight" in vote_sentence(carried, detail)


def test_the_dial_and_the_pool_are_reported() -> None:
    sentence = vote_sentence(*view_at(run("vote_tree"), 2))
    assert re.match(r"The best 12 of \d+ drafted nodes were kept", sentence)
    assert "since the round before, the weight of ssm-" in sentence
    assert "of the prompt" not in sentence
    assert "predicted the prompt" in vote_sentence(*view_at(run("vote_tree"), 0))
    assert "drafted one tree of" in vote_sentence(*view_at(run("log_pool"), 2))


def test_the_largest_change_of_a_weight_is_reported_with_two_digits() -> None:
    view, detail = view_at(run("vote_tree"), 4)
    a, b, c = DRAFTERS

    def change_words(before: tuple[float, ...], after: tuple[float, ...]) -> str:
        names = dict(zip(DRAFTERS, before, strict=True)), dict(zip(DRAFTERS, after, strict=True))
        rounds = (*view.rounds[:3], replace(view.rounds[3], weights=names[0]), *view.rounds[4:])
        changed = replace(detail, combined=replace(detail.combined, weights=names[1]))
        sentence = vote_sentence(replace(view, rounds=rounds), changed)
        return sentence.split("since the round before, ")[1]

    assert (
        change_words((0.0, 0.0, 3.0), (0.0, 0.0, 3.0))
        == f"no weight moved: {c} has nearly all of it."
    )
    assert (
        change_words((1.0, 1.0, 1.0), (1.001, 1.002, 0.997))
        == "no weight moved by as much as 0.01."
    )
    assert change_words((1.0, 1.0, 1.0), (1.0, 1.5, 0.5)) == (
        f"the weight of {b} rises from 1.00 to 1.50, the largest change."
    )
    assert change_words((0.0, 1.5, 1.5), (0.0, 1.49, 1.5)).startswith(f"the weight of {b} ")
    only = change_words((1.004, 0.0, 2.0), (1.006, 0.001, 1.999))
    assert only == f"the weight of {a} rises from 1.00 to 1.01."


def test_every_reason_of_trend_is_reported_in_plain_words() -> None:
    policy = Trend(SpeculationConfig(length="trend", max_tree_nodes=64, speculation_length=2))
    sentences = []
    for number in range(80):
        length = policy.choose().length
        policy.observe(RoundOutcome(length, 2, length, 2.0 + number % 7, 9.0))
        sentences.append(length_reason(policy.choose().reason, length))
    assert any("3 is tried to see whether that is less" in words for words in sentences)
    judged = "2 stays: it is judged by the LLM's time for each token over 16 passes, of which 3 "
    assert judged in sentences[2]
    assert not any("nothing to compare" in words or "verifications" in words for words in sentences)
    assert any("with the length (at " in words for words in sentences), (
        "these reasons are recorded in plain words"
    )
    repeated = "13 -> 16: a second step takes 0.74 ms"
    assert length_reason(repeated, 13) == repeated
    assert length_reason(repeated, 16) == "16 stays, as chosen before: a second step takes 0.74 ms"


@pytest.mark.parametrize(
    ("step_ms", "score", "chance"),
    [
        ("0.50", "0.17", "a chance of at least 12.5 %, which is a score of 0.17"),
        ("6.00", "1.00", "a chance of at least 150.0 %, which no score reaches"),
    ],
)
def test_the_least_score_of_goodput_is_reported_as_a_chance(
    step_ms: str, score: str, chance: str
) -> None:
    before = f"4 -> 10: a second step takes {step_ms} ms, a token 4.00 ms, so a draft goes on while"
    recorded = f"{before} its score is at least {score}; ssm-a is tried again"
    words = length_reason(recorded, 4)
    assert words == f"{before} its next token is right with {chance}; ssm-a is tried again"


def test_estimates_are_those_of_the_selected_round() -> None:
    events = run("union")
    completed = [event for event in events if isinstance(event, RoundCompleted)]
    for number in (0, 4):
        lengths = pictures_at(events, number)["lengths"]
        _, detail = view_at(events, number)
        round_event = detail.completed
        reason = length_reason(round_event.length_reason, round_event.speculation_length)
        assert lengths["reason"] == reason
        assert "temperature" not in str(lengths), "the field on Live says what the temperature does"
        assert lengths["next"] == detail.completed.next_speculation_length
        speeds = [1000 * e.tokens / e.ms for e in detail.completed.estimates]
        assert [e["tps"] for e in lengths["estimates"].values()] == pytest.approx(speeds, abs=6e-3)
        spans = [span for event in completed[: number + 1] for span in event.spans]
        ms = sum(span.ms for span in spans if span.name not in ("prefill", "ahead"))
        tokens = sum(len(event.token_ids) for event in completed[: number + 1])
        assert lengths["lately"] == pytest.approx(1000 * tokens / ms, rel=1e-3)
    plain = picture_values(Frame(view=reduce_all(synthetic_run(3))))["lengths"]
    assert plain["policy"] == "fixed" and not plain["estimates"] and not plain["reason"]


def test_the_selected_rounds_length_is_explained_and_presets_that_adapt_it_are_offered() -> None:
    events = run("union")
    completed = [event for event in events if isinstance(event, RoundCompleted)]
    change = next(i for i, event in enumerate(completed) if not event.speculation_length)
    for number in (change, change + 1, 0):
        lengths = pictures_at(events, number)["lengths"]
        assert lengths["why"].startswith(f"Round {number + 1}, goodput: "), lengths["why"]
        assert f"At most {completed[number].speculation_length}" in lengths["why"]
        assert ("down from" in lengths["why"]) == (number == change)
        assert not lengths["offers"], "this preset adapts the length already"
    unfinished = events[: events.index(completed[3])]
    frame = Frame(view=reduce_all(unfinished), detail=detail_of(unfinished, 3))
    assert picture_values(frame)["lengths"]["why"] == "", "the reason is known at the round's end"
    fixed = pictures_at(synthetic_run(3), 2)["lengths"]
    assert ", fixed: " in fixed["why"]
    presets = fixed["offers"].values()
    policies = {SpeculationConfig.preset(name).length for name in presets}
    assert policies == {"trend", "goodput"}
    assert not pictures_at(synthetic_run(3, drafters=()), 2)["lengths"]["why"]


A, B, C = "ssm-a", "ssm-b", "ssm-c"


def draft(name: str, text: str) -> DraftRecord:
    n = len(text)
    ids, ones = tuple(map(ord, text)), (1.0,) * n
    chain = (tuple(range(-1, n - 1)), tuple(range(1, n + 1)))
    return DraftRecord(name, ids, tuple(text), *chain, ones, ones, (0,) * n, False, ())


def reasons(texts: dict[str, str], weights: tuple[float, ...], winner: str) -> str:
    drafts = [draft(name, text) for name, text in texts.items()]
    vote_weights = dict(zip(texts, weights, strict=True))
    tree = Combined(
        "r", 0, 0.0, 0, (), (), (), (), (), (), 0, "", weights=vote_weights, winner=winner
    )
    return " ".join(winner_reasons(tree, drafts))


EXPECTED_REASONS = {
    ("s sl s", (0.0, 0.002, 3.0), B): (
        "No draft disagrees with it, but the other drafts end behind token 1 or before, and it "
        "goes on."
    ),
    ("s sl", (1.0, 1.0), B): (
        "No draft disagrees with it, but the other draft ends behind token 1, and it goes on."
    ),
    ("xy xz xz", (1.5, 0.8, 0.7), B): (
        "They split at token 2: “z” weight 1.50 of 3.00, 2 drafters, against “y” 1.50, 1 drafter, "
        "a tie, which goes to the heavier single drafter, then to the one named first. Of the 2 "
        "that drafted it ssm-b is the heaviest."
    ),
    ("xy xz w", (1.2, 0.998, 0.002), A): (
        "They split at token 1: “x” weight 2.20 of 2.20, 2 drafters, against “w” <0.01, 1 drafter, "
        "then at token 2."
    ),
    ("zy xy xz", (1.0, 1.0, 1.0), B): (
        "They split at token 1: “x” weight 2.00 of 3.00, 2 drafters, against “z” 1.00, 1 drafter, "
        "then at token 2 (a tie)."
    ),
    ("xy xy xy", (1.0, 1.0, 1.0), A): (
        "All drafted the same. Of the 3 that drafted it ssm-a is the first of equal weight."
    ),
    ("xy zw xy", (1.2, 1.0, 0.8), A): (
        "They split at token 1: “x” weight 2.00 of 3.00, 2 drafters, against “z” 1.00, 1 drafter. "
        "Of the 2 that drafted it ssm-a is the heaviest."
    ),
    ("xy ", (1.0, 1.0), A): "",
}


@pytest.mark.parametrize("case", EXPECTED_REASONS, ids=lambda case: case[0])
def test_what_decided_a_vote_is_reported(case: tuple[str, tuple[float, ...], str]) -> None:
    texts, weights, winner = case
    drafted = dict(zip((A, B, C), texts.split(" "), strict=False))
    assert reasons(drafted, weights, winner) == EXPECTED_REASONS[case]


def test_the_sentence_of_a_round_reports_what_decided_and_a_tie_once() -> None:
    events = synthetic_run(12, seed=5, mechanisms=Mechanisms("vote", "goodput", "ahead"))
    view, num_explained = reduce_all(events), 0
    for number in range(12):
        detail = detail_of(events, number)
        why = winner_reasons(detail.combined, detail.drafted.drafts)
        assert all(part in vote_sentence(view, detail) for part in why)
        num_explained += bool(why)
    assert num_explained > 6
    tie = reasons({A: "xy", B: "xz", C: "xyw"}, (0.5, 1.0, 0.5), A)
    assert tie.count("a tie") == 1


def test_a_higher_share_of_fewer_tokens_is_named_after_the_most_accepted() -> None:
    def words(**scoreboard: tuple[int, int]) -> str:
        view: Any = SimpleNamespace(scoreboard=scoreboard)
        return helped_words(view)

    assert words(code=(95, 161), stories=(49, 65), docs=(60, 161)) == (
        "code helped most: 95 of its 161 tokens were accepted in this run. Of the fewer tokens of "
        "stories a higher share was accepted: 49 of 65, 75 % against 59 %."
    )
    assert words(code=(95, 161), stories=(20, 65)).endswith("accepted in this run.")
    none = "No token that code and stories drafted was accepted in this run."
    assert words(code=(0, 161), stories=(0, 65)) == none


def test_the_drafter_that_helped_most_is_named_with_its_counts() -> None:
    events = run("union")
    view = reduce_all(events)
    name, (accepted, proposed) = max(view.scoreboard.items(), key=lambda one: one[1])
    sentence = helped_words(view)
    assert sentence == (
        f"{name} helped most: {accepted} of its {proposed} tokens were accepted in this run."
    )
    assert pictures_at(events, 11)["proposals"]["helped"] == sentence
    live = Frame(view=view, detail=view.last)
    assert proposals_value(live)["helped"] == "", (
        "not shown in a live run, where it would move the pictures below it"
    )
    single = reduce_all(run("union", drafters=DRAFTERS[:1]))
    ((accepted, proposed),) = single.scoreboard.values()
    assert f"drafted alone: {accepted} of its {proposed} tokens" in helped_words(single)
    first, second, *_ = (line.tally for line in view.rounds if len(line.tally) > 1)
    equal = replace(view.rounds[0], tally=tuple((name, 3, 4) for name, *_ in first[:2]))
    assert helped_words(replace(view, rounds=(equal,))).endswith(
        "most: 3 tokens each were accepted."
    )
    assert helped_words(reduce_all(events[:1])) == ""


def test_dropped_tokens_of_the_winner_are_not_called_the_others() -> None:
    _, detail = view_at(run("vote"), 3)
    tree = detail.combined
    dropped = (*(one for one in tree.dropped if one[0] != tree.winner), (tree.winner, 5))
    cut = replace(detail, combined=replace(tree, dropped=dropped))
    others = len(dropped) - 1
    assert tree.winner and f" {others} token{'s' if others != 1 else ''} of the others" in (
        vote_in_short(cut)
    )


def test_the_words_below_the_tree_name_the_winner_of_a_vote_and_the_dropped_tokens() -> None:
    events = run("vote")
    splits = ends = 0
    for number in range(12):
        view, detail = view_at(events, number)
        reason = pictures_at(events, number)["tree"]["why"]
        dropped = len(detail.combined.dropped)
        if not detail.combined.winner:
            assert "dropped" not in reason, "nothing was drafted"
            continue
        # The path's end comes first, since a low panel cuts off the last words.
        if detail.verified.own_kind == "recovered":
            end = f"{explain(detail, None, view.letters, view.sampling).sentence} "
            assert reason.startswith(end)
            reason = reason.removeprefix(end)
            ends += 1
        assert reason.startswith(f"{detail.combined.winner}'s draft won the vote (")
        assert f" {dropped} token{'s' if dropped != 1 else ''} of the others w" in reason
        split = vote_sentence(view, detail).partition("They split at ")[2]
        first = split.partition(", then at ")[0].split(". ")[0]
        assert split == "" or f"won the vote (at {first.rstrip('.')});" in reason
        splits += bool(split)
    assert splits, "no draft disagreed with another"
    assert ends
    assert "dropped" not in pictures_at(run("union"), 3)["tree"]["why"]


def test_a_vote_that_dropped_the_token_the_llm_wrote_says_so() -> None:
    num_checked = 0
    for number in range(12):
        view, detail = view_at(run("vote"), number)
        tree = detail.combined
        drafts = {draft.drafter: draft for draft in detail.drafted.drafts}
        first = [(drafts[name], j) for name, j in tree.dropped if drafts[name].parents[j] < 0]
        for draft, j in first:
            own = {"own_token_id": draft.token_ids[j], "own_text": draft.texts[j]}
            verdict = replace(detail.verified, path=(), own_kind="recovered", **own)
            changed = replace(detail, verified=verdict)
            words = f"The LLM wrote {quote(draft.texts[j])}, a token of "
            for sentence in (vote_in_short(changed), vote_sentence(view, changed)):
                _, result, rest = sentence.partition(words)
                assert result and draft.drafter in rest
            changed_verdict = replace(verdict, own_token_id=tree.token_ids[0])
            assert "The LLM wrote" not in vote_in_short(replace(detail, verified=changed_verdict))
            num_checked += 1
    assert num_checked, "no first token was dropped"
