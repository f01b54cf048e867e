"""What the page says and shows of votes, weights, estimates and drafts made ahead: the events'."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from core.events import Combined, Event, RoundCompleted, RunCompleted
from tests.synthetic import DRAFTERS, MINIONS, Mechanisms, synthetic_run
from ui.frame import Frame
from ui.messages import run_lines
from ui.values import picture_values
from ui.view import Detail, View, detail_of, reduce_all
from ui.votes import vote_sentence

RULES = ("vote", "vote_tree", "log_pool")


def run(combine: str, rounds: int = 12, drafters: tuple[str, ...] = DRAFTERS) -> list[Event]:
    uses = Mechanisms(combine, "goodput", "ahead")
    return synthetic_run(rounds, seed=5, drafters=drafters, mechanisms=uses)


def seen(events: list[Event], number: int) -> tuple[View, Detail]:
    detail = detail_of(events, number)
    assert detail is not None
    return reduce_all(events), detail


def shown(events: list[Event], number: int) -> dict[str, dict]:
    view, detail = seen(events, number)
    return picture_values(Frame(view=view, detail=detail, ended=True, at_end=True))


# -- masses --


@pytest.mark.parametrize("combine", RULES)
def test_every_drafted_token_has_the_mass_that_its_events_say(combine: str) -> None:
    events = run(combine)
    for number in range(12):
        _, detail = seen(events, number)
        tree, drafted = detail.combined, detail.drafted
        assert tree and drafted
        rows = shown(events, number)["proposals"]["rows"]
        lost = dict(zip(tree.dropped, tree.dropped_masses, strict=True))
        for draft in drafted.drafts:
            row = rows[str(DRAFTERS.index(draft.drafter))]
            for j in range(len(draft.token_ids)):
                token = row[str(j)]
                mass = lost.get((draft.drafter, j))
                assert token["in_tree"] == (mass is None)
                if mass is None:
                    mass = tree.masses[token["node"]]
                above = row[str(draft.parents[j])] if draft.parents[j] >= 0 else None
                if combine == "log_pool" and above:
                    mass /= tree.masses[above["node"]]
                assert token["mass"] == pytest.approx(mass, abs=6e-5)


def test_nobody_is_weighed_in_a_union() -> None:
    proposals = shown(run("union"), 3)["proposals"]
    assert not proposals["weights"] and not proposals["history"] and not proposals["sentence"]
    assert all(t["mass"] is None for row in proposals["rows"].values() for t in row.values())


@pytest.mark.parametrize("combine", RULES)
def test_weights_over_time_are_those_each_round_used(combine: str) -> None:
    events = run(combine)
    history = shown(events, 2)["proposals"]["history"]
    used = [event.weights for event in events if isinstance(event, Combined)]
    after = [event.weights for event in events if isinstance(event, RoundCompleted)]
    for number, weights in enumerate(used):
        wanted = {str(DRAFTERS.index(name)): weight for name, weight in weights.items()}
        assert history[str(number)] == pytest.approx(wanted, abs=6e-5)
        proposals = shown(events, number)["proposals"]
        assert list(proposals["after"].values()) == pytest.approx(
            list(after[number].values()), abs=6e-5
        )


@pytest.mark.parametrize("combine", RULES)
def test_what_was_kept_is_counted_by_different_nodes(combine: str) -> None:
    events = run(combine)
    for number in range(6):
        kept = shown(events, number)["proposals"]["kept"]
        _, detail = seen(events, number)
        tree = shown(events, number)["tree"]
        assert detail.combined and kept["nodes"] == len(detail.combined.token_ids)
        assert kept["all"] == kept["nodes"] + len(tree["dropped"])


# -- in words --


def test_a_vote_is_told_with_its_numbers() -> None:
    events = run("vote", 30)
    told = 0
    for number in range(30):
        view, detail = seen(events, number)
        tree, verdict, completed = detail.combined, detail.verified, detail.completed
        assert tree and verdict and completed
        sentence = vote_sentence(view, detail)
        if not tree.winner:
            assert sentence == "Nothing was drafted in this round: there was nothing to weigh."
            continue
        total = sum(tree.weights.values())
        assert f"{tree.winner} won: mass {tree.masses[0]:.2f} of {total:.2f}" in sentence
        assert f"{len(verdict.path)} of its {len(tree.token_ids)} tokens" in sentence
        before, after = tree.weights[tree.winner], completed.weights[tree.winner]
        moved = re.search(r"its weight (rises|falls) from (\S+) to (\d+\.\d\d)", sentence)
        if moved:
            told += 1
            assert (moved[1] == "rises") == (after > before)
            assert (moved[2], moved[3]) == (f"{before:.2f}", f"{after:.2f}")
            assert sentence.endswith(f"to {after:.2f}, after all are rescaled to mean 1.")
            assert ("above the running mean" in sentence) == (moved[1] == "rises")
    assert told > 10


def test_a_vote_of_two_is_said_to_be_the_heavier_ones() -> None:
    for count, words in ((2, "A vote of two is always the heavier one."), (1, "drafted alone")):
        view, detail = seen(run("vote", 4, DRAFTERS[:count]), 1)
        assert words in vote_sentence(view, detail)
    assert "of two" not in vote_sentence(*seen(run("vote", 4), 1))


def test_a_carried_over_mean_is_not_told_as_if_it_were_known() -> None:
    events = run("vote")
    view, detail = seen(events, 4)
    assert "running mean" in vote_sentence(view, detail)
    started = view.started
    assert started
    config = {
        **started.config,
        "speculation": {**started.config["speculation"], "carry_over": True},
    }
    carried = replace(view, started=replace(started, config=config))
    assert "running mean" not in vote_sentence(carried, detail)
    assert "its weight" in vote_sentence(carried, detail)


def test_the_dial_and_the_pool_are_told() -> None:
    sentence = vote_sentence(*seen(run("vote_tree"), 2))
    assert re.match(r"The best 12 of \d+ drafted nodes were kept", sentence)
    assert "since the round before, the weight of ssm-" in sentence
    assert "of the prompt" not in sentence
    assert "foretold the prompt" in vote_sentence(*seen(run("vote_tree"), 0))
    assert "drafted one tree of" in vote_sentence(*seen(run("log_pool"), 2))


def test_whose_weight_moved_is_told_as_two_digits_show_it() -> None:
    events = run("vote_tree")
    view, detail = seen(events, 4)
    assert detail.combined
    a, b, c = DRAFTERS

    def told(before: tuple[float, ...], after: tuple[float, ...]) -> str:
        names = dict(zip(DRAFTERS, before, strict=True)), dict(zip(DRAFTERS, after, strict=True))
        rounds = tuple(
            replace(line, weights=names[0]) if line.number == 3 else line for line in view.rounds
        )
        assert detail.combined
        now = replace(detail, combined=replace(detail.combined, weights=names[1]))
        sentence = vote_sentence(replace(view, rounds=rounds), now)
        return sentence.split("since the round before, ")[1]

    assert told((0.0, 0.0, 3.0), (0.0, 0.0, 3.0)) == f"no weight moved: {c} has nearly all of it."
    assert told((1.0, 1.0, 1.0), (1.001, 1.002, 0.997)) == "no weight moved by as much as 0.01."
    assert told((1.0, 1.0, 1.0), (1.0, 1.5, 0.5)) == (
        f"the weight of {b} rises from 1.00 to 1.50, the largest change."
    )
    assert told((0.0, 1.5, 1.5), (0.0, 1.49, 1.5)).startswith(f"the weight of {b} ")
    only = told((1.004, 0.0, 2.0), (1.006, 0.001, 1.999))
    assert only == f"the weight of {a} rises from 1.00 to 1.01."


# -- lengths, drafting ahead, notes --


def test_estimates_are_those_behind_the_selected_round() -> None:
    events = run("union")
    for number in (0, 4):
        lengths = shown(events, number)["lengths"]
        _, detail = seen(events, number)
        assert detail.completed
        assert lengths["reason"] == detail.completed.length_reason
        assert lengths["next"] == detail.completed.next_speculation_length
        speeds = [1000 * e.tokens / e.ms for e in detail.completed.estimates]
        assert [e["tps"] for e in lengths["estimates"].values()] == pytest.approx(speeds, abs=6e-3)
    plain = picture_values(Frame(view=reduce_all(synthetic_run(3))))["lengths"]
    assert plain["policy"] == "fixed" and not plain["estimates"] and not plain["reason"]


def pipelined(pipeline: str, rounds: int = 20) -> list[Event]:
    return synthetic_run(rounds, seed=5, mechanisms=Mechanisms(pipeline=pipeline))


def of_rounds(events: list[Event]) -> list[RoundCompleted]:
    return [event for event in events if isinstance(event, RoundCompleted)]


@pytest.mark.parametrize("pipeline", ["ahead", "auto", "across"])
def test_sums_of_drafting_ahead_are_those_of_the_events(pipeline: str) -> None:
    events = pipelined(pipeline)
    value = shown(events, 3)["timeline"]
    told = {e.round: e.ahead for e in of_rounds(events) if e.ahead}
    assert value["hits"].keys() == {str(number) for number in told}
    every = tuple(entry for entries in told.values() for entry in entries)
    for sums, entries in (
        (value["ahead"], every),
        *((value["hits"][str(number)], entries) for number, entries in told.items()),
    ):
        assert sums["hits"] == sum(e.hit for e in entries)
        assert sums["misses"] == sum(not e.hit for e in entries)
        assert sums["unused"] == sum(e.reason in ("unused", "ended") for e in entries)
        assert sums["saved"] == pytest.approx(sum(e.saved_ms for e in entries), abs=1e-3)
        assert sums["wasted"] == pytest.approx(sum(e.wasted_ms for e in entries), abs=1e-3)
        assert sums["guessed"] == (pipeline != "across")
    assert value["ahead"]["hits"] > 0
    assert (value["ahead"]["misses"] > 0) == (pipeline != "across")
    assert value["pipeline"] == pipeline


@pytest.mark.parametrize("pipeline", ["ahead", "auto"])
def test_all_work_made_ahead_is_saved_or_wasted(pipeline: str) -> None:
    """In SYNTHETIC runs none of it outlasts the pass, so that nothing had to be waited for."""
    events = pipelined(pipeline)
    sums = shown(events, 3)["timeline"]["ahead"]
    spans = [s for e in of_rounds(events) for s in e.spans if s.name == "ahead"]
    worked = sum(span.end_ms - span.start_ms for span in spans)
    assert sums["saved"] + sums["wasted"] == pytest.approx(worked, abs=2e-3)


def test_a_round_says_why_a_guess_missed() -> None:
    events = pipelined("ahead")
    reasons = set()
    for event in of_rounds(events):
        own = shown(events, event.round)["timeline"]["round"]
        assert [(one["d"], one["why"], one["hit"]) for one in own.values()] == [
            (str(DRAFTERS.index(one.drafter)), one.reason, one.hit) for one in event.ahead
        ]
        reasons |= {one.reason for one in event.ahead}
    assert reasons == {"", "wrong", "unused", "ended"}


def test_the_overlap_is_that_of_the_runs_figures() -> None:
    for pipeline in ("off", "across", "ahead"):
        events = pipelined(pipeline)
        last = events[-1]
        assert isinstance(last, RunCompleted)
        overlap = shown(events, 3)["timeline"]["overlap"]
        assert overlap == pytest.approx(last.stats.overlap_ratio, abs=1e-4)
        assert (overlap > 0) == (pipeline == "ahead")


def test_without_drafting_ahead_nothing_is_told_of_it() -> None:
    value = picture_values(Frame(view=reduce_all(synthetic_run(3))))["timeline"]
    assert value["ahead"] == value["hits"] == {} and value["pipeline"] == "off"
    share = shown(pipelined("ahead"), 3)["timeline"]["share"]
    assert value["share"]["ahead"] == 0 < share["ahead"]


def test_drafting_ahead_is_a_hit_or_a_miss_as_the_next_round_tells() -> None:
    seen_fates = set()
    for pipeline in ("ahead", "auto"):
        events = pipelined(pipeline)
        bars = shown(events, 3)["timeline"]["bars"]
        asked = {
            (e.round, a.drafter): a.hit
            for e in of_rounds(events)
            for a in e.ahead
            if a.reason not in ("unused", "ended")
        }
        for event in of_rounds(events):
            for k, span in enumerate(event.spans):
                fate = bars[str(event.round)][str(k)]["a"]
                hit = asked.get((event.round + 1, span.lane))
                wanted = "open" if hit is None else "hit" if hit else "miss"
                assert fate == (wanted if span.name == "ahead" else "")
                seen_fates.add(fate)
    assert seen_fates == {"", "hit", "miss", "open"}


def test_a_draft_made_beside_another_request_is_a_hit_in_its_own_round() -> None:
    events = pipelined("across")
    bars = shown(events, 3)["timeline"]["bars"]
    for event in of_rounds(events):
        early = {entry.drafter for entry in event.ahead}
        for k, span in enumerate(event.spans):
            drafted = span.lane in early and span.name == "draft"
            assert bars[str(event.round)][str(k)]["a"] == ("hit" if drafted else "")


def test_notes_are_told_with_their_round_as_far_as_one_has_come() -> None:
    events = synthetic_run(9, seed=5, mechanisms=MINIONS)
    end = next(i for i, e in enumerate(events) if isinstance(e, RoundCompleted) and e.round == 5)
    words = "Round 6: drafter ssm-stories failed: SYNTHETIC failure; the run goes on without it."
    for count, told in ((end, False), (end + 1, True), (len(events), True)):
        view = reduce_all(events[:count])
        frame = Frame(view=view, known=count, run_id="x", at_end=True)
        assert (words in [line.text for line in run_lines(frame)]) == told
        assert bool(picture_values(frame)["strip"]["notes"]) == told


def test_many_notes_do_not_flood_the_notice() -> None:
    events = [
        replace(event, notes=(f"note {event.round}",))
        if isinstance(event, RoundCompleted)
        else event
        for event in synthetic_run(9)
    ]
    frame = Frame(view=reduce_all(events), known=len(events), run_id="x", at_end=True)
    told = [line.text for line in run_lines(frame) if "note" in line.text]
    assert told == [
        "6 earlier notes not shown here.",
        "Round 7: note 6.",
        "Round 8: note 7.",
        "Round 9: note 8.",
    ]


def test_what_auto_found_is_told_in_order_and_as_what_the_run_goes_on_with() -> None:
    notes = {
        3: "drafting ahead takes 21.6 ms a round, 10.6 without: off",
        7: "drafting ahead takes 7.0 ms a round, 10.2 without: on",
    }
    events = [
        replace(event, notes=(notes[event.round],))
        if isinstance(event, RoundCompleted) and event.round in notes
        else event
        for event in synthetic_run(9, mechanisms=Mechanisms(pipeline="auto"))
    ]
    frame = Frame(view=reduce_all(events), known=len(events), run_id="x", at_end=True)
    told = [line.text for line in run_lines(frame) if "trial" in line.text]
    words = "a trial of drafting ahead ends"
    assert told == [
        f"Round 4: {words}: 21.6 ms a round with it, 10.6 without; the run goes on without it.",
        f"Round 8: {words}: 7.0 ms a round with it, 10.2 without; the run goes on with it.",
    ]
    assert picture_values(frame)["timeline"]["trials"] == {
        "3": {"kind": "ahead", "ms": 21.6, "without": 10.6, "on": False},
        "7": {"kind": "ahead", "ms": 7.0, "without": 10.2, "on": True},
    }


@pytest.mark.parametrize("combine", ("union", *RULES))
def test_what_can_never_be_drafted_ahead_is_known(combine: str) -> None:
    assert shown(run(combine), 3)["timeline"]["never"] == (combine == "log_pool")
