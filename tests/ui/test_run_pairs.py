"""Two runs side by side."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from core.events import Event, RoundCompleted, RunCompleted, Scheduled
from storage import RunStore
from tests.synthetic import synthetic_run
from tests.ui.boards import ALL, context, sessions_of
from tests.ui.fakes import plain_twin, with_request
from tests.ui.reports import unpack_value
from ui.run.same_text import same_text
from ui.run.view import reduce_all
from ui.server.session import TabSession
from ui.sessions.two_runs import TwoRuns, both, compare_runs
from ui.sessions.two_runs_bar import (
    MOVES,
    move_both,
    play_both,
    scrub_both,
    select_in_both,
    set_rate_of_both,
)
from ui.sessions.two_runs_tables import figures_of, settings_apart

LONG, SHORT = 9, 4
Pair = tuple[TwoRuns, tuple[TabSession, TabSession]]


@pytest.fixture
def pair(store: RunStore) -> Pair:
    for seed, rounds in enumerate((LONG, SHORT)):
        for event in synthetic_run(rounds, seed=seed):
            store.record(event, "a")
    ctx = context(store)
    two_runs, desks = sessions_of(ctx).two_runs, (TabSession(), TabSession())
    values = compare_runs(two_runs, ctx, desks, ALL, ("synthetic-0", "synthetic-1"))
    assert len(values) == len(two_runs.outputs)
    return two_runs, desks


def round_counts(pair: Pair) -> tuple[int, ...]:
    return tuple(len(desk.frame().view.rounds) for desk in pair[1])


def values_of(pair: Pair, values: list[Any]) -> list[dict[str, Any]]:
    names = list(pair[0].halves[0].pictures)
    pictures = [unpack_value(value) for value in values[1:]]
    halves = pictures[: len(names)], pictures[len(names) :]
    return [dict(zip(names, half, strict=True)) for half in halves]


def press(pair: Pair, name: str) -> list[Any]:
    return both(*pair, lambda: move_both(pair[1], name))


def test_both_open_in_the_round_that_the_slider_names(pair: Pair) -> None:
    assert round_counts(pair) == (LONG, SHORT)
    assert [desk.frame().selected_round + 1 for desk in pair[1]] == [LONG, SHORT]


def test_each_half_has_text_tree_votes_and_times(pair: Pair) -> None:
    for half in pair[0].halves:
        expected = {"figures", "strip", "tree", "routing", "proposals", "lengths", "timeline"}
        assert set(half.pictures) == expected
        assert "submit" not in half.pictures["routing"].js_on_load, "regret cannot be counted here"
    halves = values_of(pair, both(*pair, lambda: scrub_both(pair[1], 3)))
    assert all(half["tree"]["nodes"] and half["tree"]["round"] == 2 for half in halves)
    assert [half["strip"]["run"] for half in halves] == ["synthetic-0", "synthetic-1"]


def test_one_slider_moves_both_and_the_shorter_stands_at_its_end(pair: Pair) -> None:
    for number, expected in ((0, (0, 0)), (3, (3, 3)), (6, (6, SHORT)), (99, (LONG, SHORT))):
        values = both(*pair, lambda number=number: scrub_both(pair[1], number))
        assert round_counts(pair) == expected
        assert values[0]["value"] == max(expected) and values[0]["maximum"] == LONG
    scrub_both(pair[1], None)
    assert round_counts(pair) == (LONG, SHORT), "an empty box moves nothing"
    scrub_both(pair[1], -3)
    assert round_counts(pair) == (0, 0)


def click(pair: Pair, which: int, **data: Any) -> list[Any]:
    return both(*pair, lambda: select_in_both(pair[1], which, data))


def places(pair: Pair) -> list[tuple[int, str]]:
    details = [desk.frame().detail for desk in pair[1]]
    return [(detail.round + 1, detail.stage) for detail in details if detail is not None]


def test_a_click_in_either_half_moves_both_and_the_slider(pair: Pair) -> None:
    for which in (0, 1):
        values = click(pair, which, round=2)
        assert values[0]["value"] == 3 and places(pair) == [(3, "commit")] * 2
        assert [half["strip"]["sel"] for half in values_of(pair, values)] == [2, 2]
        values = click(pair, which, stage="combine")
        assert values[0]["value"] == 3 and places(pair) == [(3, "combine")] * 2
        assert round_counts(pair) == (LONG, SHORT), "what is shown of the texts stays"
    values = click(pair, 0, round=6)
    assert values[0]["value"] == 7 and places(pair) == [(7, "commit"), (SHORT, "commit")]
    values = click(pair, 1, round=0)
    assert values[0]["value"] == 1 and places(pair) == [(1, "commit")] * 2
    for data in ({"round": "x"}, {"stage": "x"}, {"round": 99}, {}):
        assert click(pair, 1, **data)[0]["value"] == 1 and places(pair) == [(1, "commit")] * 2


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_clicks_in_both_halves_are_answered_in_the_order_in_which_they_were_made(
    pair: Pair, order: tuple[int, ...]
) -> None:
    clicks: list[tuple[int, dict[str, Any]]] = [
        (0, {"round": 1}),
        (1, {"round": 2}),
        (0, {"stage": "combine"}),
    ]
    for number in order:
        which, data = clicks[number]
        click(pair, which, **data, press=20.5 + number)
    assert places(pair) == [(3, "combine")] * 2


def test_a_clicked_token_is_selected_in_its_own_half(pair: Pair) -> None:
    player = pair[1][1].player
    assert player is not None
    numbers = [number for number in range(SHORT) if player._round(number).node_of_token]
    token, node = next(iter(player._round(numbers[0]).node_of_token.items()))
    halves = values_of(pair, click(pair, 1, round=numbers[0], token=token))
    assert [half["tree"]["node"] for half in halves] == [None, node]
    assert [half["tree"]["round"] for half in halves] == [numbers[0]] * 2
    assert [desk.frame().node for desk in pair[1]] == [None, node]


def test_the_bar_continues_from_a_clicked_round(pair: Pair) -> None:
    moved = {
        "step": (3, "draft"),
        "step-back": (2, "verify"),
        "round-next": (3, "commit"),
        "round-previous": (1, "commit"),
    }
    for name, place in moved.items():
        press(pair, "end")
        click(pair, 0, round=1)
        assert press(pair, name)[0]["value"] == place[0] and places(pair) == [place] * 2
        assert round_counts(pair) == (LONG, SHORT), "what is shown of the texts stays"
    press(pair, "end")
    click(pair, 0, round=5)
    counts = [round_counts(pair) for _ in play_both(pair[1], 100.0)]
    assert counts[0] == (6, SHORT) and counts[-1] == (LONG, SHORT)


def test_a_click_ends_the_playing(pair: Pair) -> None:
    scrub_both(pair[1], 3)
    playing = play_both(pair[1], 0.25)
    next(playing)
    click(pair, 1, round=1)
    assert list(playing) == [] and places(pair) == [(2, "commit")] * 2


def test_steps_go_stage_by_stage_through_the_same_round(pair: Pair) -> None:
    press(pair, "rewind")
    for stage in ("draft", "combine", "verify", "commit"):
        halves = values_of(pair, press(pair, "step"))
        assert [half["tree"]["stage"] for half in halves] == [stage, stage]
    assert round_counts(pair) == (1, 1)
    press(pair, "step-back")
    assert places(pair) == [(1, "verify")] * 2 and round_counts(pair) == (1, 1)
    press(pair, "round-next")
    assert places(pair) == [(1, "commit")] * 2 and round_counts(pair) == (1, 1)
    for _ in range(SHORT + 1):
        press(pair, "round-next")
    assert round_counts(pair) == (SHORT + 2, SHORT)
    press(pair, "step")
    press(pair, "round-previous")
    back = [(SHORT + 2, "commit"), (SHORT, "commit")]
    assert places(pair) == back, "from within a round back to the end of the previous round"
    for _ in range(3):
        press(pair, "round-previous")
    assert places(pair) == [(SHORT - 1, "commit")] * 2, "the shorter one leaves its end again"
    assert round_counts(pair) == (SHORT + 2, SHORT), "what is shown of the texts stays"
    press(pair, "end")
    assert round_counts(pair) == (LONG, SHORT)
    assert all(desk.frame().at_end for desk in pair[1])
    assert set(MOVES) | {"pause", "rewind", "end", "play"} == set(pair[0].bar.buttons)


def test_both_play_to_the_end_of_the_longer_one_also_at_another_speed(pair: Pair) -> None:
    counts = [round_counts(pair) for _ in play_both(pair[1], 40.0)]
    assert counts[0] == (0, 0), "from the start, since both were at their ends"
    assert counts[-1] == (LONG, SHORT) and len(counts) > 2
    assert all(short == min(long, SHORT) for long, short in counts)
    scrub_both(pair[1], 0)
    playing = play_both(pair[1], 0.25)
    next(playing)
    set_rate_of_both(pair[1], 5000.0)
    assert len(list(playing)) <= 4 and round_counts(pair) == (LONG, SHORT)


def test_pause_and_a_step_end_the_playing(pair: Pair) -> None:
    for stopping in ("pause", "step"):
        scrub_both(pair[1], 2)
        playing = play_both(pair[1], 0.25)
        next(playing)
        press(pair, stopping)
        counts = round_counts(pair)
        assert list(playing) == [] and round_counts(pair) == counts
    playing = play_both(pair[1], 0.25)
    next(playing)
    next(play_both(pair[1], 0.25))
    assert list(playing) == [], "a new playing ends the previous playing"


def test_without_two_runs_nothing_moves(pair: Pair) -> None:
    empty = (pair[0], (TabSession(), TabSession()))
    for values in (press(empty, "step"), click(empty, 1, round=0)):
        assert all(value == values[0] for value in values)
    assert list(play_both(empty[1], 1.0)) == [None]


REQUEST = Request("Once", SamplingParams(max_new_tokens=64))


def events_of(request: Request = REQUEST, rounds: int = 6, **changes: Any) -> list[Event]:
    events = synthetic_run(rounds, run_id="one", **changes)
    return [with_request(events[0], request), *events[1:]]


def plain(request: Request = REQUEST, **changes: Any) -> list[Event]:
    return plain_twin(events_of(request), **changes)


def random_request(**changes: Any) -> Request:
    return replace(REQUEST, sampling=replace(REQUEST.sampling, **changes))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"fingerprint": "b"}, "other"),
        ({"context_length": 64}, "other"),
        ({"device": "cuda"}, "bug"),
        ({}, "bug"),
    ],
)
def test_another_llm_of_the_same_name_may_write_another_text(
    change: dict[str, Any], kind: str
) -> None:
    def with_llm(events: list[Event], **fields: Any) -> list[Event]:
        first, *rest = events
        llm, *ssms = first.models
        return [replace(first, models=(replace(llm, **fields), *ssms)), *rest]

    other = with_llm(plain(change=3), **{"fingerprint": "a", **change})
    answer = same_text(with_llm(events_of(), fingerprint="a"), other)
    assert answer.kind == kind and ("differ in LLM" in answer.sentence) is (kind == "other")


def test_the_same_tokens_are_the_same_text() -> None:
    answer, count = same_text(events_of(), plain()), len(reduce_all(events_of()).tokens)
    assert answer.kind == "identical"
    assert answer.sentence == (
        f"The first run wrote the same text as the second: {count} tokens, one for one."
    )


@pytest.mark.parametrize(("margin", "kind"), [(3.0, "bug"), (5e-5, "tie")])
def test_a_difference_is_judged_as_in_a_proof(margin: float, kind: str) -> None:
    answer = same_text(events_of(), plain(margin=margin, change=3))
    assert (answer.kind, answer.at) == (kind, 3)
    assert "Differs at token 4" in answer.sentence and "The first run" in answer.sentence


def test_a_difference_without_recorded_probabilities_is_not_judged() -> None:
    events = [replace(e, top_k=()) if hasattr(e, "top_k") else e for e in plain(change=3)]
    answer = same_text(events_of(), events)
    assert answer.kind == "unweighed" and "record_top_k" in answer.sentence


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (random_request(temperature=0.5), "temperature"),
        (replace(REQUEST, prompt="Twice"), "nothing"),
        (random_request(temperature=0.5, top_p=0.5), "temperature and top_p"),
    ],
)
def test_requests_that_differ_may_have_different_texts(request_: Request, words: str) -> None:
    answer = same_text(events_of(), plain(request_, change=2))
    if words == "nothing":
        assert answer.kind == "bug"
    else:
        assert answer.kind == "other" and f"differ in {words}." in answer.sentence
    same = same_text(events_of(), plain(request_))
    assert same.kind == "identical" and ("though" in same.sentence) == (words != "nothing")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [("prompt_token_ids", (9, 9), "prompt"), ("dtype", "bfloat16", "number format")],
)
def test_another_prompt_or_number_format_is_named(field: str, value: Any, reason: str) -> None:
    first, *rest = plain(change=2)
    answer = same_text(events_of(), [replace(first, **{field: value}), *rest])
    assert answer.kind == "other" and f"differ in {reason}." in answer.sentence


def test_seeds_count_only_where_tokens_are_drawn() -> None:
    def with_seed(events: list[Event], seed: int) -> list[Event]:
        return [replace(events[0], seed=seed), *events[1:]]

    assert "differ" not in same_text(with_seed(events_of(), 1), with_seed(plain(), 2)).sentence
    drawn = random_request(temperature=0.8)
    answer = same_text(with_seed(events_of(drawn), 1), with_seed(plain(drawn, change=2), 2))
    assert answer.kind == "other" and "seed" in answer.sentence


def test_rules_with_their_own_random_numbers_keep_the_distribution() -> None:
    speculation = SpeculationConfig(draft="sampled", verify="mss")
    request = replace(random_request(temperature=0.8), speculation=speculation)
    assert same_text(events_of(request), plain(request, change=2)).kind == "distribution"
    assert same_text(events_of(request), plain(request)).kind == "identical"


def test_a_shorter_run_is_compared_as_far_as_it_went() -> None:
    for short in (
        events_of(end="cancelled", rounds=3),
        events_of(random_request(max_new_tokens=5), rounds=3),
    ):
        answer = same_text(events_of(), short)
        assert answer.kind == "identical" and "as far as both went" in answer.sentence
    cut = [event for event in events_of() if not isinstance(event, RoundCompleted)]
    assert same_text(events_of(), cut).kind == "other"


def test_an_earlier_end_without_a_reason_is_a_bug() -> None:
    answer = same_text(events_of(), events_of(rounds=3))
    assert answer.kind == "bug" and "where one ends" in answer.sentence
    full = [
        replace(event, finish_reason="context") if isinstance(event, RunCompleted) else event
        for event in events_of(rounds=3)
    ]
    assert same_text(events_of(), full).kind == "other"


def test_the_table_has_figures_of_both_runs_and_their_ratio() -> None:
    one, two = (reduce_all(events).stats for events in (events_of(), plain()))
    rows = {row["name"]: row for row in figures_of(one, two).values()}
    assert rows["LLM passes"]["one"] == "6" and rows["LLM passes"]["two"] == str(two.num_rounds)
    assert rows["LLM passes"]["ratio"] == f"{two.num_rounds / 6:.2f}x"
    without_ratio = {name for name, row in rows.items() if not row["ratio"]}
    in_ms = {row["name"] for row in rows.values() if row["one"].endswith(" ms")}
    assert without_ratio == in_ms | {"Tokens / s", "Overlap"}, "times of single runs have no ratio"
    assert len(in_ms) == 4
    rows = {row["name"]: row for row in figures_of(None, two).values()}
    assert rows["LLM passes"]["ratio"] == "–"


def test_settings_that_differ_are_listed_and_no_others() -> None:
    class Summary:
        def __init__(self, request: Request, **changes: Any) -> None:
            self.asked = self.config = request.to_plain()
            self.llm, self.ssms, self.seed = "llm", ("a",), 1
            vars(self).update(changes)

    assert settings_apart(Summary(REQUEST), Summary(REQUEST)) == {}
    other = replace(
        REQUEST, speculation=SpeculationConfig(expansion=(2, 2)), sampling=SamplingParams(top_p=0.5)
    )
    rows = settings_apart(Summary(REQUEST), Summary(other, llm="another", seed=2)).values()
    by_name = {row["name"]: (row["one"], row["two"]) for row in rows}
    assert (
        by_name["expansion"] == ("1, 1, 3, 1, 1, 1, 1, 1", "2, 2")
        and by_name["LLM"][1] == "another"
    )
    assert set(by_name) == {"max_new_tokens", "top_p", "expansion", "LLM", "seed (as drawn)"}


def test_how_each_run_shared_the_llm_is_a_setting_that_differs(store: RunStore) -> None:
    scheduled = Scheduled("shared", 3, 2, 0, None, None, 9, 5, 20, 12, 0.5, "", "it pays")
    for seed in (0, 1):
        for event in synthetic_run(SHORT, seed=seed):
            if seed and isinstance(event, RoundCompleted):
                store.record(replace(event, scheduled=scheduled), "a")
            else:
                store.record(event, "a")
    ctx, desks = context(store), (TabSession(), TabSession())
    two_runs = sessions_of(ctx).two_runs
    tables = compare_runs(two_runs, ctx, desks, ALL, ("synthetic-0", "synthetic-1"))[2]
    (row,) = (row for row in tables["settings"].values() if row["name"] == "schedule")
    shared = "shared, beside up to 2 other requests: 4 of 4 passes of the LLM were shared, 20 of 36"
    assert row["one"] == "each" and row["two"] == f"{shared} drafted nodes verified"
