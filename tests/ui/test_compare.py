"""Compare's studies, pictures and sentences, with a fake worker and a real log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from core.config import Request, SpeculationConfig
from core.errors import ConfigError
from core.events import Event
from lab.order import Cell
from tests.synthetic import DRAFTERS, synthetic_run
from tests.ui.fakes import Script, plain_twin, script_of, with_request
from tests.ui.test_form import form_values
from ui.compare.comparison import comparison_values, configurations_of, verdict
from ui.compare.study_text import same_answer
from ui.compare.tab import (
    LIVE,
    choices_shown,
    compare_choices,
    picture_values,
    request_of,
    study_of,
)
from ui.components import COMPARE_PICTURES
from ui.form.form import SAMPLING_NAMES, own_preset
from ui.prompts.tab import study_updates
from ui.run.view import reduce_all
from ui.server.context import Context
from ui.shared.studies import OpenedStudy, Studies
from ui.shared.study_words import limit_words, machine_words


def values(own: Any = None, live: dict[str, Any] | None = None, **changes: Any) -> list[Any]:
    defaults = {"prompt": "Once", "chosen": ("specinfer",), "repeats": 2, "max_new_tokens": 8.0}
    defaults |= {"temperature": 0.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0}
    defaults |= {"repetition_penalty": 1.0, "seed": 1000.0}
    fields = form_values(**{"drafters": [*DRAFTERS], **(live or {})})[1 + len(SAMPLING_NAMES) :]
    prompt, contestants, *others = {**defaults, **changes}.values()
    return [prompt, list(contestants), *others, own, *fields]


def measure(context: Context, script: Any = None, **changes: Any) -> OpenedStudy:
    if script is not None:
        context.hub.worker.script = script
    studies, study = Studies(context, None, "me"), study_of(context, values(**changes))
    studies.begin(study)
    assert context.conductor.wait(30)
    return studies.open(study.study_id)


def differing(margin: float, change: int | None = 3) -> Script:
    """`change`: the index of the token at which plain runs differ from the others (None: nowhere).
    `margin`: the nats between the two likeliest tokens."""

    def script(request: Request, run_id: str) -> list[Event]:
        events = synthetic_run(8, run_id=run_id)
        events[0] = with_request(events[0], request)
        return events if request.speculation.drafters else plain_twin(events, margin, change)

    return script


def pictures(context: Context, opened: OpenedStudy) -> dict[str, Any]:
    return comparison_values(opened.study, opened.results, context.store.events)


def test_the_form_is_a_study_with_plain_decoding_first(context: Context) -> None:
    own_settings = own_preset(form_values())
    contestants = ("specinfer", LIVE, "mine")
    study = study_of(
        context, values({"mine": own_settings}, {"expansion": "2,2"}, chosen=contestants)
    )
    names = [one.name for one in study.configurations]
    assert names == ["plain decoding", "specinfer", LIVE, "mine"]
    assert study.configurations[2].speculation.expansion == (2, 2)
    assert {one.speculation.record_top_k for one in study.configurations} == {5}
    assert (study.kind, study.repeats, study.sampling.max_new_tokens) == ("compare", 2, 8)
    assert study.models == context.conductor.models()


SIX = ("sequence", "specinfer", "specinfer-paper", "minions", "best", LIVE)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"chosen": ()}, r"configurations is \[\]: it must be 1 to 5 configurations that draft"),
        (
            {"chosen": SIX},
            r"configurations is \['sequence', .*\]: it must be 1 to 5 configurations that draft",
        ),
        ({"chosen": ("gone",)}, "preset is 'gone'"),
        ({"prompt": " "}, "prompt is ' '"),
        ({"repeats": None}, "repeats is empty"),
        ({"repeats": 1.5}, "repeats is 1.5"),
        ({"max_new_tokens": None}, "max_new_tokens is empty"),
        ({"temperature": -1}, "temperature is -1"),
    ],
)
def test_a_wrong_form_is_refused(context: Context, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        study_of(context, values(**changes))


def test_the_choices_are_what_drafts_and_opening_the_tab_keeps_the_ticks(context: Context) -> None:
    choices = compare_choices({"mine": {}})
    assert choices[-2:] == [LIVE, "mine"] and "autoregressive" not in choices
    with pytest.raises(ConfigError, match=r"configurations is \['x'\]: it must be 1 to 5"):
        configurations_of([("x", SpeculationConfig.preset("autoregressive"))])
    assert "value" not in choices_shown({"mine": {}}, ["sequence", "mine"])._constructor_args[0]
    assert choices_shown({}, ["sequence", "mine"]).value == ["sequence"]


def test_a_configuration_goes_into_live_with_its_seed(context: Context) -> None:
    opened, studies = measure(context), Studies(context, None, "me")
    request = request_of(studies, opened.row.study_id, "specinfer")
    assert request.prompt == "Once" and request.sampling.seed == 1000
    with pytest.raises(
        ConfigError, match="configuration is 'other': it must be one of plain decoding"
    ):
        request_of(studies, opened.row.study_id, "other")


def test_equal_texts_are_identical_without_reading_their_events(context: Context) -> None:
    opened = measure(context)

    def refuse_to_read(run_id: str) -> tuple[Event, ...]:
        raise AssertionError(run_id)

    answer = same_answer(opened.study, opened.results, "specinfer", refuse_to_read)
    assert answer.kind == "identical" and "all 2 runs" in answer.sentence
    base = same_answer(opened.study, opened.results, opened.study.base, refuse_to_read)
    assert base.kind == "base"


@pytest.mark.parametrize(("margin", "kind"), [(1e-5, "tie"), (0.5, "bug")])
def test_a_difference_is_judged_by_the_recorded_probabilities(
    context: Context, margin: float, kind: str
) -> None:
    shown = pictures(context, measure(context, differing(margin)))
    row = shown["compared"]["rows"]["1"]
    assert row["same_text"] == kind and "Differs at token 4" in row["same_text_words"]
    text = shown["texts"]["texts"]["1"]
    tokens = [token.text for token in reduce_all(synthetic_run(8)).tokens]
    assert text["at"] == 3 and text["same"] == "".join(tokens[:3])
    assert text["same"] + text["rest"] == reduce_all(synthetic_run(8)).text


def test_a_difference_without_recorded_probabilities_is_no_bug(context: Context) -> None:
    opened = measure(context, differing(0.5))

    def without_top_k(run_id: str) -> tuple[Event, ...]:
        events = context.store.events(run_id)
        return tuple(replace(e, top_k=()) if hasattr(e, "top_k") else e for e in events)

    assert same_answer(opened.study, opened.results, "specinfer", without_top_k).kind == "differs"
    for result in opened.results.values():
        context.store.delete(result.run_id)
    answer = same_answer(opened.study, opened.results, "specinfer", context.store.events)
    assert answer.kind == "differs" and "was deleted" in answer.sentence
    shown = pictures(context, opened)["texts"]
    assert shown["texts"] == {} and set(shown["gone"]) == {"0", "1"}
    assert "same" not in shown["words"] and "nothing is left to show" in shown["words"]


def delete(context: Context, opened: OpenedStudy, name: str, *repeats: int) -> None:
    for repeat in repeats:
        context.store.delete(opened.results[Cell(name, "1", repeat)].run_id)


def test_a_repeat_without_deleted_runs_is_shown(context: Context) -> None:
    opened = measure(context, chosen=("specinfer", "sequence"), repeats=3)
    delete(context, opened, "specinfer", 0)
    shown = pictures(context, opened)
    assert {value["repeat"] for value in list(shown.values())[2:]} == {1}
    assert shown["texts"]["words"] == "Repeat 2 of 3: every text is the same."
    assert shown["rounds"]["note"] == "" and len(shown["rounds"]["rounds"]["1"]) == 8


def test_if_every_repeat_lacks_runs_the_others_are_shown_and_reported(context: Context) -> None:
    opened = measure(context, differing(1e-5), repeats=2, chosen=("specinfer", "sequence"))
    delete(context, opened, opened.study.base, 0)
    delete(context, opened, "specinfer", 1)
    delete(context, opened, "sequence", 0, 1)
    shown = pictures(context, opened)
    texts = shown["texts"]
    assert texts["repeat"] == 1 and texts["texts"]["1"]["repeat"] == 0
    assert "specinfer: of repeat 1, its run of this one is not in the log." in texts["words"]
    assert "nothing is left to show: sequence." in texts["words"] and set(texts["gone"]) == {"2"}
    assert texts["texts"]["1"]["at"] == 3, "compared with plain decoding in its own repeat"
    assert len(shown["rounds"]["rounds"]["1"]) == 8 and shown["rounds"]["rounds"]["2"] == {}
    assert shown["rounds"]["note"] != "" and len(shown["portions"]["stages"]["1"]) > 1
    assert shown["portions"]["stages"]["2"] == {} and shown["portions"]["note"] == ""


def test_texts_that_are_missing_are_not_called_the_same(context: Context) -> None:
    opened = measure(context, repeats=1, chosen=("specinfer", "sequence"))
    delete(context, opened, "sequence", 0)
    words = pictures(context, opened)["texts"]["words"]
    assert words.startswith("Repeat 1 of 1: the texts that are here are plain decoding's. Deleted,")
    delete(context, opened, opened.study.base, 0)
    shown = pictures(context, opened)["texts"]
    assert set(shown["texts"]) == {"1"} and "every text is the same" not in shown["words"]
    first = dict(list(opened.results.items())[:1])
    shown_alone = comparison_values(opened.study, first, context.store.events)["texts"]
    assert "same" not in shown_alone["words"], "one text alone is not called the same"


def test_a_rule_with_its_own_random_numbers_is_judged_by_its_distribution(
    context: Context,
) -> None:
    live = {"draft": "sampled", "verify": "mss", "temperature": 1.0}
    opened = measure(context, chosen=(LIVE,), live=live, temperature=1.0)
    results = {cell: replace(result, verify="mss") for cell, result in opened.results.items()}
    answer = same_answer(opened.study, results, LIVE, context.store.events)
    assert answer.kind == "distribution" and "Law 3" in answer.sentence


def test_every_picture_has_a_value_that_json_can_write(context: Context) -> None:
    opened = measure(context, chosen=("specinfer", "sequence"))
    shown = pictures(context, opened)
    assert list(shown) == ["compared", "ratios", "rounds", "rates", "portions", "texts"]
    assert set(shown) == {picture.name for picture in COMPARE_PICTURES}
    json.dumps(shown)
    assert shown["rounds"]["rounds"]["0"] == {} and len(shown["rounds"]["rounds"]["1"]) == 8
    stages = shown["portions"]["stages"]["1"]
    assert stages["wall"] > 0 and {"draft", "llm"} <= set(stages)
    assert len(picture_values(context, opened)) == len(COMPARE_PICTURES)
    assert picture_values(context, None) == [{}] * len(COMPARE_PICTURES)


def test_the_time_is_that_of_the_run_with_the_median_speed(context: Context) -> None:
    """The time of another repeat could contradict the medians in the table."""
    took_ms = {}

    def script(request: Request, run_id: str) -> list[Event]:
        *events, last = synthetic_run(8, run_id=run_id)
        events[0] = with_request(events[0], request)
        total_ms = (800.0, 400.0, 200.0)[request.sampling.seed - 1000]
        took_ms[run_id] = total_ms
        speed = 1000 * last.stats.num_new_tokens / total_ms
        stats = replace(last.stats, total_ms=total_ms, tokens_per_second=speed)
        return [*events, replace(last, stats=stats)]

    opened = measure(context, script, repeats=3)
    shown = pictures(context, opened)
    walls = [shown["portions"]["stages"][key]["wall"] for key in ("0", "1")]
    speeds = [row["tokens_per_second"] for row in shown["compared"]["rows"].values()]
    assert [1000 / wall for wall in walls] == pytest.approx(speeds)
    assert [took_ms[row["run_id"]] for row in shown["compared"]["rows"].values()] == [400, 400]


def test_the_time_per_token_is_the_inverse_of_the_speed_in_its_row(context: Context) -> None:
    """Neither the time per token nor the speed includes the prefill."""
    opened = measure(context, script_of(8), repeats=3)
    rows = pictures(context, opened)["compared"]["rows"]
    for key, stages in pictures(context, opened)["portions"]["stages"].items():
        run = reduce_all(context.store.events(rows[key]["run_id"]))
        assert run.stats.prefill_ms > 0 and "prefill" not in stages
        assert 1000 / stages.pop("wall") == pytest.approx(rows[key]["tokens_per_second"])
        decoded_ms = len(run.tokens) * sum(stages.values())
        assert decoded_ms == pytest.approx(run.stats.total_ms - run.stats.prefill_ms, rel=0.02)


def test_a_token_limit_that_is_not_lives_is_reported_with_the_figures(context: Context) -> None:
    opened = measure(context)
    words = "Runs of at most 8 tokens, in Live 128 unless changed."
    assert words in pictures(context, opened)["compared"]["words"]
    assert words in study_updates(context, opened)[0]["words"]
    same = replace(opened.study, sampling=replace(opened.study.sampling, max_new_tokens=128))
    assert limit_words(same) == "Runs of at most 128 tokens."


def test_partial_results_and_the_value_of_auto_are_shown(context: Context) -> None:
    opened = measure(context)
    first = dict(list(opened.results.items())[:1])
    shown = comparison_values(opened.study, first, context.store.events)
    rows = shown["compared"]["rows"]
    assert rows["0"]["tokens_per_second"] > 0 and rows["1"]["tokens_per_second"] is None
    assert rows["1"]["same_text"] == "unknown" and shown["compared"]["words"]
    assert comparison_values(opened.study, {}, context.store.events)["texts"]["texts"] == {}
    sentence = "max_tree_nodes=auto resolved to 8 nodes in every run of this study."
    assert sentence not in pictures(context, opened)["compared"]["words"]
    known = {cell: replace(one, auto_nodes=8) for cell, one in opened.results.items()}
    opened = opened._replace(results=known)
    assert pictures(context, opened)["compared"]["words"].endswith(sentence)
    assert study_updates(context, opened)[0]["words"].endswith(sentence)
    # The sentence names the configurations with max_tree_nodes=auto.
    minions = {
        replace(cell, contestant="minions"): replace(known[cell], auto_nodes=None)
        for cell in list(known)[1:]
    }
    specinfer = {cell: one for cell, one in known.items() if cell.contestant == "specinfer"}
    assert machine_words({**specinfer, **minions}) == (
        "max_tree_nodes=auto resolved to 8 nodes in every run of specinfer."
    )


def with_speeds(opened: OpenedStudy, plain: float, others: float) -> dict[Any, Any]:
    results = dict(opened.results)
    for cell in results:
        speed = plain if cell.contestant == opened.study.base else others
        change_stats(results, cell, tokens_per_second=speed)
    return results


def change_stats(results: dict[Any, Any], cell: Cell, **stats: Any) -> None:
    results[cell] = replace(results[cell], stats=replace(results[cell].stats, **stats))


def test_the_verdict_names_what_is_faster(context: Context) -> None:
    opened = measure(context)
    faster = verdict(opened.study, with_speeds(opened, 10, 15))
    assert faster.startswith("The fastest is specinfer at 1.50x the speed of plain")
    slower = with_speeds(opened, 10, 5)
    assert verdict(opened.study, slower) == (
        "Nothing was faster than plain decoding in these 2 repeats; the best is specinfer at 0.50x "
        "the speed of plain decoding (0.50 to 0.50 in 2 repeats)."
    )
    shown = comparison_values(opened.study, slower, context.store.events)
    why = shown["compared"]["rows"]["1"]["slower_because"]
    assert why.startswith("0.50x: slower than plain decoding here, because")
    uneven = with_speeds(opened, 10, 9.5)
    change_stats(uneven, Cell("specinfer", "1", 1), tokens_per_second=10.1)
    unsure = verdict(opened.study, uneven)
    assert unsure.startswith("Nothing was measured faster")
    assert unsure.endswith("no difference is shown.")
    assert "no difference from plain decoding is shown" in verdict(
        opened.study, with_speeds(opened, 10, 10)
    )


def test_repeats_too_far_apart_are_noise(context: Context) -> None:
    opened = measure(context, repeats=3)
    speeds = with_speeds(opened, 10, 12)
    change_stats(speeds, Cell("specinfer", "1", 1), tokens_per_second=5.9)
    row = comparison_values(opened.study, speeds, context.store.events)["compared"]["rows"]["1"]
    assert row["noise"] == "The repeats differ too much to tell."
    ending = "(0.59 to 1.20 in 3 repeats); the repeats differ too much to tell"
    assert verdict(opened.study, speeds).endswith(f"{ending}.")
    change_stats(speeds, Cell("specinfer", "1", 1), tokens_per_second=6.1)
    row = comparison_values(opened.study, speeds, context.store.events)["compared"]["rows"]["1"]
    assert row["noise"] == "" and "differ too much" not in verdict(opened.study, speeds)


def test_what_exceeds_the_tokens_per_pass_is_noise(context: Context) -> None:
    opened = measure(context, repeats=3)
    speeds = with_speeds(opened, 10, 15)
    change_stats(speeds, Cell("specinfer", "1", 1), tokens_per_second=1000.0)
    row = comparison_values(opened.study, speeds, context.store.events)["compared"]["rows"]["1"]
    limit = f"{row['mean_acceptance_length']:.2f}x"
    assert row["noise"] == f"What is above {limit}, its tokens per pass, is noise."
    assert f"; above {limit}, the tokens per pass, is noise." in verdict(opened.study, speeds)
    noise = verdict(opened.study, with_speeds(opened, 10, 1000))
    assert "tokens per pass gain no more" in noise
    assert "noise" not in verdict(opened.study, with_speeds(opened, 10, 11))


def test_a_configuration_whose_repeats_reach_the_fastest_is_named_with_it(context: Context) -> None:
    opened = measure(context, chosen=("specinfer", "sequence"))
    speeds = with_speeds(opened, 10, 15)
    for repeat, speed in ((0, 15.5), (1, 14.0)):
        change_stats(speeds, Cell("sequence", "1", repeat), tokens_per_second=speed)
    sentence = verdict(opened.study, speeds)
    assert sentence.startswith("The highest speed-up is specinfer at 1.50x")
    assert sentence.endswith("Within noise of it: sequence.")


def test_of_six_repeats_resamples_are_reported(context: Context) -> None:
    opened = measure(context, repeats=6)
    speeds = with_speeds(opened, 10, 5)
    for cell in [cell for cell in speeds if cell.contestant == "specinfer"]:
        change_stats(speeds, cell, tokens_per_second=5.0 + 0.1 * cell.repeat)
    sentence = verdict(opened.study, speeds)
    assert sentence.startswith("Nothing was faster than plain decoding here; the best is specinfer")
    assert "in 95 % of resamples of 6 repeats)" in sentence


def test_one_faster_repeat_of_another_leaves_the_verdict_open(context: Context) -> None:
    opened = measure(context, chosen=("specinfer", "sequence"))
    speeds = with_speeds(opened, 10, 9)
    for repeat, speed in ((0, 10.5), (1, 4.0)):
        change_stats(speeds, Cell("sequence", "1", repeat), tokens_per_second=speed)
    sentence = verdict(opened.study, speeds)
    assert "the best is specinfer at 0.90" in sentence and sentence.endswith(
        "no difference is shown."
    )


def test_the_reason_why_it_was_slower_is_of_all_its_runs(context: Context) -> None:
    """The run with the median speed may have other figures than all runs together."""
    opened = measure(context, repeats=3)
    slower = with_speeds(opened, 10, 5)
    for repeat, rounds in enumerate((40, 10, 40)):
        counts = {"num_new_tokens": 60, "num_rounds": rounds, "num_draft_tokens": 80}
        change_stats(slower, Cell("specinfer", "1", repeat), **counts)
    shown = comparison_values(opened.study, slower, context.store.events)
    why = shown["compared"]["rows"]["1"]["slower_because"]
    assert ") and brings 2.0" in why, "180 tokens in 90 rounds"
    part = {cell: opened.results[cell] for cell in opened.study.cells()[:3]}
    shown = comparison_values(opened.study, part, context.store.events)["rates"]
    assert shown["repeats"] == 3 and shown["runs"] == {"0": 2, "1": 1}


def test_advice_is_for_the_node_budget_that_auto_resolved_to(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the node budget cuts drafts, a larger speculation length has no effect."""
    opened = measure(context, repeats=3)
    slower = with_speeds(opened, 10, 5)
    settings: list[Any] = []
    monkeypatch.setattr(
        "ui.compare.comparison.slower_because", lambda *args: settings.append(args[2]) or ""
    )
    comparison_values(opened.study, slower, context.store.events)
    of_auto = {cell: replace(result, auto_nodes=24) for cell, result in slower.items()}
    comparison_values(opened.study, of_auto, context.store.events)
    assert [one["max_tree_nodes"] for one in settings] == [
        settings[0]["max_tree_nodes"],
        24,
    ]


def test_a_study_of_one_repeat_has_no_interval(context: Context) -> None:
    opened = measure(context, repeats=1)
    assert "plain decoding, one sample" in verdict(opened.study, opened.results)
    faster = verdict(opened.study, with_speeds(opened, 5, 6))
    assert faster.startswith("The highest speed-up is ") and "one sample" in faster
    shown = pictures(context, opened)
    row = shown["compared"]["rows"]["1"]
    assert row["ratio"] > 0 and row["ratio_low"] is None and row["ratio_high"] is None
    assert row["ratio_spread"] == shown["ratios"]["spreads"]["1"] == "one repeat: no interval"
    slower = verdict(opened.study, with_speeds(opened, 10, 5))
    assert slower.startswith("Nothing was faster than plain decoding in this one repeat; ")
    bar = {"value": row["ratio"], "low": None, "high": None}
    assert shown["ratios"]["ratios"]["1"] == bar | {"limit": row["mean_acceptance_length"]}
