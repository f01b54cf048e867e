"""The values of pictures, made from a view."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from gradio.utils import diff
from gradio_client.utils import apply_diff

from core.config import COMBINES, PRESETS
from core.config.mechanisms import combine_rule
from core.events import Combined, Drafted
from tests.synthetic import VOTE_AHEAD, Mechanisms, synthetic_run
from tests.ui.fakes import plain_twin
from ui.run.charts import timeline_value
from ui.run.frame import Baseline, Before, Frame
from ui.run.times import NOT_OF_THE_ROUND
from ui.run.values import (
    PICTURES,
    SIMPLER,
    PictureMaker,
    figures_value,
    picture_values,
    strip_value,
    tree_value,
)
from ui.run.view import View, detail_of, reduce_all
from ui.words.messages import run_lines


def frames_of(events: list[Any], every: int = 3) -> list[Frame]:
    frames, view = [Frame()], View()
    for i, event in enumerate(events):
        view = reduce_all([event], view)
        if i % every == 0:
            frames.append(Frame(view=view, detail=view.current, known=i + 1, run_id="x"))
    count = len(events)
    last = Frame(view=view, detail=view.last, known=count, ended=True, at_end=True, run_id="x")
    return [*frames, last]


def test_a_draft_grows_from_the_text_before_its_round_however_long_ago_that_was() -> None:
    events = synthetic_run(60, seed=2)
    view = reduce_all(events)
    drafted = [one for one in events if isinstance(one, Drafted) and one.round == 3]
    root = tree_value(Frame(view=view, detail=detail_of(drafted, 3)))["root"]
    last = [token for token in view.tokens if token.round < 3][-1]
    assert (root["t"], root["id"]) == (last.token, last.token_id)


def stream(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    current = copy.deepcopy(values[0])
    received = [copy.deepcopy(current)]
    for old, new in zip(values, values[1:], strict=False):
        current = apply_diff(current, json.loads(json.dumps(diff(old, new))))
        received.append(copy.deepcopy(current))
    return received


ROUTED = Mechanisms(routing="cosine", draft="fused", loses=9)


RUNS = {
    "short": lambda: synthetic_run(14, seed=2),
    "hostile": lambda: synthetic_run(14, seed=3, hostile=True),
    "long": lambda: synthetic_run(240, seed=3),
    "plain": lambda: plain_twin(synthetic_run(6, seed=5)),
    "failed": lambda: synthetic_run(5, seed=6, end="failed"),
    "routed": lambda: synthetic_run(14, seed=5, mechanisms=ROUTED),
    **{
        rule: lambda rule=rule: synthetic_run(
            9, seed=7, mechanisms=replace(VOTE_AHEAD, combine=rule)
        )
        for rule in COMBINES
    },
}


@pytest.mark.parametrize("run", RUNS)
def test_every_diff_of_a_recorded_run_gives_the_value(run: str) -> None:
    frames = frames_of(RUNS[run](), 17 if run == "long" else 3)
    frame_values = [picture_values(frame) for frame in frames]
    for name in PICTURES:
        values = [value[name] for value in frame_values]
        assert stream(values) == values, name


def test_the_diff_of_two_runs_gives_the_value_and_would_not_with_lists() -> None:
    frames = frames_of(synthetic_run(9, seed=1)) + frames_of(synthetic_run(5, seed=2))
    for name in PICTURES:
        values = [picture_values(frame)[name] for frame in frames]
        assert stream(values) == values
    old, new = {"rows": [[1, 2], [3, 4]]}, {"rows": [[1], [3]]}
    assert apply_diff(copy.deepcopy(old), diff(old, new)) != new


def test_the_previous_run_is_in_the_values_only_where_it_is_compared() -> None:
    old = reduce_all(synthetic_run(40, seed=1))
    before = Before(old.run_id, tuple(line.accepted for line in old.rounds), old.stats)
    frames = [*frames_of(synthetic_run(9, seed=1)), *frames_of(synthetic_run(5, seed=2))]
    for name in ("lengths", "figures"):
        values = [
            picture_values(f, before=before if i > 5 else None)[name] for i, f in enumerate(frames)
        ]
        assert stream(values) == values
        assert not values[0]["before"] and values[-1]["before"]
    assert picture_values(frames[-1], before=before)["lengths"]["before"] == {
        str(line.number): line.accepted for line in old.rounds
    }


def walk(value: Any) -> Any:
    yield value
    if isinstance(value, dict):
        for key, inner in value.items():
            assert isinstance(key, str), key
            yield from walk(inner)


@pytest.mark.parametrize("run", RUNS)
def test_values_are_dicts_of_plain_json_all_the_way_down(run: str) -> None:
    for frame in frames_of(RUNS[run](), 11):
        for value in picture_values(frame).values():
            assert isinstance(value, dict)
            for inner in walk(value):
                assert isinstance(inner, (dict, str, int, float, bool, type(None))), inner
            json.dumps(value, allow_nan=False)


def test_every_key_is_there_from_the_first_frame_on_in_fresh_objects() -> None:
    frames = frames_of(synthetic_run(6, seed=1))
    first = picture_values(frames[0])
    for frame in frames[1:]:
        for name, value in picture_values(frame).items():
            assert set(value) == set(first[name]), name
    one, two = picture_values(frame), picture_values(frame)
    for name in PICTURES:
        assert one[name] == two[name] and one[name] is not two[name]


def test_live_values_stay_bounded_and_the_end_is_complete() -> None:
    view = reduce_all(synthetic_run(500, seed=3))
    live = picture_values(Frame(view=view, detail=view.current))
    complete = picture_values(Frame(view=view, detail=view.last, ended=True, at_end=True))
    assert len(view.tokens) > 1500
    assert 200 <= len(live["strip"]["tokens"]) < 300
    assert len(live["lengths"]["rounds"]) == 100 and len(live["timeline"]["bars"]) == 40
    assert sum(len(json.dumps(value)) for value in live.values()) < 160_000
    assert len(complete["strip"]["tokens"]) == len(view.tokens) and not complete["strip"]["old"]
    assert len(complete["lengths"]["rounds"]) == 500 == len(complete["timeline"]["bars"])


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("rounds", [3, 240])
def test_the_strips_text_is_the_runs_text(rounds: int, ended: bool) -> None:
    view = reduce_all(synthetic_run(rounds, seed=3))
    strip = picture_values(Frame(view=view, ended=ended, at_end=ended))["strip"]
    parts = [*strip["old"].values(), *(token["t"] for token in strip["tokens"].values())]
    assert "".join(parts) == view.text


def test_the_diff_of_a_round_does_not_grow_with_the_run() -> None:
    events, sizes = synthetic_run(400, seed=3), []
    for count in (len(events) // 4, len(events) - 40):
        before, after = reduce_all(events[:count]), reduce_all(events[: count + 4])
        old = picture_values(Frame(view=before, detail=before.last))["strip"]
        new = picture_values(Frame(view=after, detail=after.last))["strip"]
        sizes.append(len(json.dumps(diff(old, new))))
    assert sizes[1] < 3 * sizes[0] + 40_000


def test_the_tree_before_it_is_combined_shows_every_draft() -> None:
    drafted = reduce_all(synthetic_run(1, seed=3)[:2])
    tree = picture_values(Frame(view=drafted, detail=drafted.current))["tree"]
    assert tree["stage"] == "draft" and tree["own"] is None
    drawn = sum(len(draft.token_ids) for draft in drafted.current.drafted.drafts)
    assert sum(len(node["by"]) for node in tree["nodes"].values()) == drawn
    assert {node["outcome"] for node in tree["nodes"].values()} == {"pending"}
    for key, node in tree["nodes"].items():
        assert node["parent"] < int(key)


def test_the_tree_shows_the_verdict_and_what_was_dropped() -> None:
    events = synthetic_run(12, seed=3, mechanisms=Mechanisms("vote_tree"))
    details = [detail_of(events, number) for number in range(12)]
    detail = next(one for one in details if one and one.combined and one.combined.dropped)
    tree = picture_values(Frame(view=reduce_all(events), detail=detail))["tree"]
    outcomes = {int(key): node["outcome"] for key, node in tree["nodes"].items()}
    assert outcomes == dict(enumerate(detail.verified.outcomes))
    num_dropped = sum(len(dropped["by"]) for dropped in tree["dropped"].values())
    assert num_dropped == len(detail.combined.dropped)
    assert tree["committed"] == len(detail.completed.token_ids)
    for dropped in tree["dropped"].values():
        parent = dropped["parent"]
        assert parent[1:] in tree["dropped"] if parent[0] == "d" else int(parent) < len(outcomes)


def test_proposals_know_their_place_in_the_tree() -> None:
    events = synthetic_run(8, seed=3)
    detail = detail_of(events, 1)
    assert detail and isinstance(detail.combined, Combined)
    rows = picture_values(Frame(view=reduce_all(events), detail=detail))["proposals"]["rows"]
    tree = detail.combined
    for drafter, row in rows.items():
        name = reduce_all(events).drafters[int(drafter)]
        for entry in row.values():
            assert entry["in_tree"] == (entry["node"] >= 0)
            if entry["in_tree"]:
                assert tree.token_ids[entry["node"]] == entry["id"]
                assert name in {p.drafter for p in tree.proposals[entry["node"]]}


def test_the_dock_opens_on_the_drafters_of_a_vote_but_not_of_a_union() -> None:
    for combine, opens in (("vote", True), ("union", False), ("vote_tree", False)):
        view = reduce_all(synthetic_run(3, mechanisms=Mechanisms(combine)))
        assert figures_value(Frame(view=view), None)["who"] is opens, combine


def test_a_speed_up_is_shown_only_when_measured_and_figures_are_not_rounded() -> None:
    view = reduce_all(synthetic_run(5, seed=1))
    frame = Frame(view=view, detail=view.last)
    assert picture_values(frame)["figures"]["speedup"] is None
    baseline = Baseline(view.stats.tokens_per_second / 2, "other", "note")
    assert picture_values(frame, baseline)["figures"]["speedup"] == pytest.approx(2, abs=1e-3)
    assert picture_values(Frame(), baseline)["figures"]["speedup"] is None
    measuring = picture_values(replace(frame, measuring=True), baseline)["figures"]
    assert (measuring["speedup"], measuring["slower"], measuring["speed"]) == (None, False, "")
    running = replace(frame, view=replace(view, state="running"))
    assert picture_values(running, baseline)["figures"]["speedup"] is None
    blocks = replace(baseline, blocks=((2.0, 4.0),))
    assert picture_values(running, blocks)["figures"]["speedup"] == 2.0
    two_blocks = replace(blocks, blocks=((2.0, 4.0),) * 2)
    for measured, words in ((baseline, "one sample"), (two_blocks, "")):
        assert picture_values(frame, measured)["figures"]["sample"] == words
    assert picture_values(frame)["figures"]["sample"] == "", "there is no speed-up"
    stopped = replace(running, view=replace(view, state="cancelled"), ended=True, known=1)
    slower = replace(baseline, tokens_per_second=2 * view.stats.tokens_per_second)
    assert picture_values(stopped, slower)["figures"]["speedup"] is None, (
        "a stopped run has no speed-up"
    )
    assert not [line for line in run_lines(stopped, slower) if "slower" in line.text]
    view = reduce_all(synthetic_run(30, seed=4))
    value = figures_value(Frame(view=view, known=1, run_id="x"), Baseline(3.0, "plain", "measured"))
    for name in ("mean_acceptance_length", "tokens_per_second", "draft_acceptance_rate"):
        assert value[name] == getattr(view.stats, name)
    assert value["speedup"] == view.stats.tokens_per_second / 3.0


def test_where_several_drafters_lost_the_simpler_preset_is_offered() -> None:
    def preset_offer(drafters: tuple[str, ...], length: str, factor: float) -> str:
        view = reduce_all(synthetic_run(5, seed=1, drafters=drafters))
        assert view.started is not None
        speculation = {**view.speculation, "length": length}
        config = {**view.started.config, "speculation": speculation}
        view = replace(view, started=replace(view.started, config=config))
        speed = view.stats.tokens_per_second
        blocks = ((factor * speed, speed),) * 2
        baseline = Baseline(factor * speed, "plain", "note", blocks=blocks)
        return str(picture_values(Frame(view=view), baseline)["figures"]["offer"])

    two = ("ssm-code", "ssm-docs")
    assert preset_offer(two, "fixed", 2.0) == "sequence"
    assert preset_offer(two, "fixed", 0.5) == "", "the run was faster"
    assert preset_offer(two[:1], "fixed", 2.0) == "", "with one drafter it is like that preset"
    assert preset_offer(two, "goodput", 2.0) == "", "goodput chooses which SSMs draft, and how far"
    assert SIMPLER in PRESETS


def test_of_two_draws_of_a_token_the_picture_has_the_first() -> None:
    events = synthetic_run(3, seed=1)
    detail = detail_of(events, 0)
    first = detail.combined.proposals[0]
    again = replace(first[0], score=first[0].score / 2)
    proposals = ((*first, again), *detail.combined.proposals[1:])
    doubled = replace(detail.combined, proposals=proposals)
    frame = Frame(view=reduce_all(events), detail=replace(detail, combined=doubled))
    before = picture_values(replace(frame, detail=detail))["tree"]["nodes"]["0"]["by"]
    assert picture_values(frame)["tree"]["nodes"]["0"]["by"] == before


def test_drafters_keep_slot_and_order_of_the_run() -> None:
    view = reduce_all(synthetic_run(2, seed=1))
    drafters = picture_values(Frame(view=view))["strip"]["drafters"]
    assert [entry["name"] for entry in drafters.values()] == list(view.drafters)
    assert [entry["slot"] for entry in drafters.values()] == list(range(len(view.drafters)))


def test_charts_are_drawn_four_times_a_second_and_never_late_at_the_end() -> None:
    maker, events = PictureMaker(), synthetic_run(40, seed=1)
    drawn: list[Any] = []
    for i in range(len(events) - 1):
        view = reduce_all(events[: i + 1])
        frame = Frame(view=view, detail=view.current, run_id="x")
        values = maker.values(frame, None, now=i / 100)
        drawn.append(values["lengths"])
        assert values["strip"] == picture_values(frame)["strip"], "the text is not delayed"
    seconds = len(drawn) / 100
    assert len({id(value) for value in drawn}) <= 4 * seconds + 2
    pinned = Frame(view=view, detail=detail_of(events, 3), pinned=True, run_id="x")
    assert maker.values(pinned, None, now=i / 100)["lengths"]["sel"] == 3
    end = reduce_all(events)
    last = Frame(view=end, detail=end.last, ended=True, at_end=True, run_id="x")
    assert maker.values(last, None, now=i / 100) == picture_values(last)


@pytest.mark.parametrize("combine", COMBINES)
def test_a_view_has_the_votes_estimates_and_notes_of_its_rounds(combine: str) -> None:
    view = reduce_all(synthetic_run(9, seed=4, mechanisms=replace(VOTE_AHEAD, combine=combine)))
    assert any(line.weights for line in view.rounds) == combine_rule(combine).weighted
    assert any(line.winner for line in view.rounds) == combine_rule(combine).chains
    assert all(line.predicted_ms > 0 for line in view.rounds)
    assert any(line.ahead for line in view.rounds)
    assert [line.number for line in view.rounds if line.notes] == [5]


@pytest.mark.parametrize(
    ("texts", "template"),
    [
        (("<user>", "Hi", " you", "<end>"), {"before": "<user>", "after": "<end>"}),
        (("<Hi you>", "Hi", " you", ""), {"before": "<Hi you>", "after": ""}),
        (("<user>", "\ufffd", "\ufffd", "<end>"), {}),
    ],
)
def test_the_chat_template_is_around_the_prompt(
    texts: tuple[str, ...], template: dict[str, str]
) -> None:
    started = synthetic_run(2, seed=1)[0]
    config = {**started.config, "chat": True}
    chat = replace(started, prompt="Hi you", prompt_texts=texts, config=config)
    assert strip_value(Frame(view=reduce_all([chat], View())))["template"] == template
    assert strip_value(Frame(view=reduce_all([started], View())))["template"] == {}


CHATML = (
    "<|im_start|>",
    "system",
    "\n",
    "A",
    " assistant",
    "<|im_end|>",
    "\n",
    "<|im_start|>",
    "user",
)


TAIL = ("<|im_end|>", "\n", "<|im_start|>", "ass", "istant", "\n")


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("assistant", ("ass", "istant")),
        ("a", ("a",)),
        ("start", ("start",)),
        ("user", ("user",)),
        ("  Hi\n", ("Hi",)),
        ("  Hi\n", ("  ", "Hi", "\n")),
        ("Hi", (" Hi",)),
    ],
)
def test_the_prompt_is_not_taken_for_a_part_of_the_template(
    prompt: str, texts: tuple[str, ...]
) -> None:
    started = synthetic_run(2, seed=1)[0]
    config = {**started.config, "chat": True}
    all_texts = (*CHATML, "\n", *texts, *TAIL)
    chat = replace(started, prompt=prompt, prompt_texts=all_texts, config=config)
    template = strip_value(Frame(view=reduce_all([chat], View())))["template"]
    assert template["before"].rstrip() == "".join(CHATML) and template["after"] == "".join(TAIL)


def test_a_drafter_has_the_letter_of_the_loaded_models_whatever_a_run_uses() -> None:
    run = synthetic_run(3, seed=1)
    first = replace(run[0], drafters=(run[0].drafters[2], "ngram"))
    view = reduce_all([first])
    assert view.letters == {run[0].drafters[2]: "C", "ngram": "D"}, "the header's letters"
    assert reduce_all(run).letters == dict(zip(run[0].drafters, "ABC", strict=True))


def test_the_selected_round_has_its_time_and_the_parts_of_it() -> None:
    events = synthetic_run(6, seed=2)
    view = reduce_all(events)
    for number, line in enumerate(view.rounds):
        frame = Frame(view=view, detail=detail_of(events, number), known=1, run_id="x")
        sentence = timeline_value(frame)["took"]
        own = [span for span in line.spans if span.name not in NOT_OF_THE_ROUND]
        llm = sum(span.ms for span in own if span.lane == "llm")
        beginning = f"Round {number + 1} took {line.time.whole_ms:.1f} ms: drafting "
        assert sentence.startswith(beginning)
        assert f"LLM pass {llm:.1f} ms" in sentence
        parts = [one for one in sentence.partition(": ")[2].split(", ") if " ms" in one]
        parts_ms = sum(float(one.split()[-2]) for one in parts)
        assert parts_ms == pytest.approx(line.time.whole_ms, abs=0.3)
    assert timeline_value(Frame())["took"] == ""


def test_the_tree_marks_an_own_token_that_was_drawn() -> None:
    events = synthetic_run(30, seed=5)
    view = reduce_all(events)
    detail = next(
        one
        for one in (detail_of(events, line.number) for line in view.rounds)
        if one and one.verified and one.verified.own_kind == "recovered"
    )
    for rule, drew in (("greedy", False), ("match", True), ("traversal", True)):
        judged = replace(detail, verified=replace(detail.verified, rule=rule))
        assert tree_value(Frame(view=view, detail=judged))["own"]["drew"] is drew
