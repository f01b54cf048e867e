"""Proofs and baselines of a run, and the numbers that the page explains."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from core.events import Combined, Event, ModelInfo, RoundCompleted, Verified
from core.trees.sampling import process_logits, unprocessed_probabilities
from lab.order import Cell
from lab.study import PLAIN, Configuration, plain_configuration
from tests.core.engines import engine_of, tables
from tests.lab.grids import result as result_of
from tests.lab.grids import study_of
from tests.synthetic import synthetic_run
from tests.synthetic.run import model_infos
from tests.ui.boards import ALL, live_of, run, sessions_of
from tests.ui.example_run import run_events, run_view
from tests.ui.fakes import plain_twin, request, with_request
from tests.ui.reports import Place, Report, unpack_value
from tests.ui.test_live import ME
from tests.ui.test_studies import mine, study, wait_for_end
from ui.live.handlers import run_question
from ui.run.baselines import _plain_cell, baseline_of, speed_key
from ui.run.explain import percent, probability
from ui.run.frame import Frame
from ui.run.plain_run import check_same_llm, race_plain
from ui.run.probabilities import probability_words, rounded_probability
from ui.run.proof import Answer, compare, same_distribution, with_plain_decoding
from ui.run.race import race_value
from ui.run.view import View, reduce_all
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.exporting import write_export
from ui.sessions.tab import opened_run


def answer(
    margin: float, change: int | None, dtype: str = "float32", view: View | None = None
) -> str:
    view = view or run_view()
    view = replace(view, started=replace(view.started, dtype=dtype))
    plain = plain_twin(run_events(), margin, change)
    result = compare(view, reduce_all(plain), with_larger_probabilities(), plain)
    assert result.at == change
    return f"{result.kind}: {result.sentence}"


def with_larger_probabilities() -> list[Event]:
    events: list[Event] = []
    for event in run_events():
        if isinstance(event, Verified):
            larger = [tuple(p * 1.01 for p in top.probabilities) for top in event.top_k]
            pairs = zip(event.top_k, larger, strict=True)
            event = replace(event, top_k=tuple(replace(top, probabilities=ps) for top, ps in pairs))
        events.append(event)
    return events


def test_identical_texts_ties_and_bugs_are_distinguished() -> None:
    assert answer(3.0, None).startswith("identical: Identical: plain decoding with the same seed")
    assert answer(3.0, None).endswith("only where the LLM itself writes that very token.")
    tie = answer(0.00001, 7)
    assert tie.startswith("tie: Differs at token 8, a rounding tie: the LLM's two best were 1e-05")
    bug = answer(0.01, 7)
    assert bug.startswith("bug: Differs at token 8: a bug"), "rounding in float32 is far below 0.01"


def test_a_difference_without_probabilities_and_an_early_end_are_bugs() -> None:
    plain = plain_twin(run_events(), 3.0, 4)
    without_top_k = [replace(e, top_k=()) if isinstance(e, Verified) else e for e in plain]
    result = compare(run_view(), reduce_all(without_top_k), run_events(), without_top_k)
    assert result.kind == "bug" and "Here “" in result.sentence
    plain = plain_twin(run_events())
    without_a_round = [e for e in plain if not (isinstance(e, RoundCompleted) and e.round == 20)]
    result = compare(
        replace(reduce_all(without_a_round), state="completed"), run_view(), without_a_round, plain
    )
    assert result.kind == "bug"


@pytest.mark.parametrize(("margin", "kind"), [(0.06, "tie"), (0.4, "bug")])
def test_the_rounding_of_bfloat16_is_estimated_from_the_two_runs(margin: float, kind: str) -> None:
    ours: list[Event] = []
    for event in plain_twin(run_events(), margin):
        if isinstance(event, Verified):
            tops = tuple(replace(t, probabilities=(0.525, t.probabilities[1])) for t in event.top_k)
            event = replace(event, top_k=tops)  # rounding: log(0.525 / 0.5) = 0.049 nats
        ours.append(event)
    plain = plain_twin(run_events(), margin, 7)
    in_bfloat16 = replace(run_view(), started=replace(run_view().started, dtype="bfloat16"))
    result = compare(in_bfloat16, reduce_all(plain), ours, plain)
    assert result.kind == kind and "bfloat16 moved these runs' log prob" in result.sentence


def test_above_temperature_0_the_noise_is_counted_too() -> None:
    base = request()
    sampled = replace(base, sampling=replace(base.sampling, temperature=0.8, seed=5))
    events = [with_request(run_events()[0], sampled), *run_events()[1:]]
    plain = plain_twin(events, 0.00001, 7)
    result = compare(reduce_all(events), reduce_all(plain), events, plain)
    # The two tokens have nearly equal probabilities, but different noise.
    assert result.kind == "bug" and "apart" in result.sentence


def test_mss_has_the_same_distribution_not_the_same_tokens() -> None:
    started = run_view().started
    config = {**started.config, "speculation": {**started.config["speculation"], "verify": "mss"}}
    result = same_distribution(replace(run_view(), started=replace(started, config=config)))
    assert result is not None and "Law 3" in result.sentence
    assert "not the same tokens" in result.sentence
    assert same_distribution(run_view()) is None


def test_the_plain_lane_has_only_words_that_plain_decoding_writes() -> None:
    view = run_view()
    count = len(view.tokens)
    assert count > 7
    cases: list[tuple[Answer | None, int]] = [
        (None, count),
        (Answer("identical", ""), count),
        (Answer("tie", "", 7), 7),
        (Answer("bug", "", 0), 0),
        (Answer("bug", "", count), count),
    ]
    for answer, alike in cases:
        shown = race_value(Frame(view=view, answer=answer), None)
        assert (len(shown["words"]), shown["alike"]) == (count, alike), answer


def test_the_plain_lane_has_no_words_under_a_rule_with_its_own_random_numbers() -> None:
    started = run_view().started
    config = {**started.config, "speculation": {**started.config["speculation"], "verify": "mss"}}
    view = replace(run_view(), started=replace(started, config=config))
    for answer in (None, same_distribution(view)):
        assert race_value(Frame(view=view, answer=answer), None)["alike"] == 0


def test_the_plain_request_is_the_same_but_for_the_drafting() -> None:
    plain, started = with_plain_decoding(run_view(), 5), run_view().started
    assert plain.prompt == started.prompt and plain.sampling.seed == started.seed
    assert plain.speculation.drafters == () and plain.speculation.record_top_k == 5
    plain_request = Request.from_plain(started.asked)
    assert plain.sampling.max_new_tokens == plain_request.sampling.max_new_tokens
    stopped = reduce_all(synthetic_run(4, seed=1, end="cancelled"))
    assert with_plain_decoding(stopped, 0).sampling.max_new_tokens == len(stopped.tokens)
    assert run_view().started is not None
    plain_request = with_plain_decoding(run_view(), 0)
    assert plain_request.prompt_token_ids == tuple(run_view().started.prompt_token_ids)
    assert Request.from_plain(plain_request.to_plain()) == plain_request


def models_with(**changes: Any) -> tuple[ModelInfo, ...]:
    llm, *ssms = model_infos()
    return (replace(llm, **changes), *ssms)


ANOTHER = {"name": "other", "parameters": 32_000, "architecture": "Other", "context_length": 8}


@pytest.mark.parametrize("change", [*ANOTHER.items(), ("dtype", "bfloat16"), ("fingerprint", "b")])
def test_a_run_of_another_llm_is_refused(change: tuple[str, Any]) -> None:
    recorded = models_with(**({"fingerprint": "a"} | dict([change])))
    with pytest.raises(
        ConfigError, match=r"^run_id is 'r': it must be a run of synthetic-llm .*; not of "
    ):
        check_same_llm("r", recorded, models_with(fingerprint="a"))


@pytest.mark.parametrize(("old", "new"), [("", "a"), ("a", ""), ("a", "a"), ("", "")])
def test_an_llm_without_a_fingerprint_counts_as_the_same(old: str, new: str) -> None:
    check_same_llm("r", models_with(fingerprint=old), models_with(fingerprint=new))


def test_the_key_of_a_speed_depends_on_the_llm() -> None:
    one, other = (speed_key(request(), models_with(fingerprint=mark)) for mark in "ab")
    assert one != other


def caption(temperature: float, **fields: Any) -> str:
    config = SpeculationConfig(**fields).resolve(temperature).to_plain()
    plain = {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    return probability_words({"sampling": plain, "speculation": config})


def test_the_numbers_of_each_rule_are_explained() -> None:
    greedy = caption(0.0)
    assert greedy.startswith("Bars: every model at temperature 1; this run is greedy: the LLM ")
    assert greedy.endswith("is the probability that its bar shows, calibrated on committed tokens.")
    coupled = caption(0.8)
    assert coupled.startswith("Bars: the LLM at temperature 0.8; the SSMs always at temp")
    assert (
        "at temperature 0.8 with the noise of this position" in coupled and "p / q" not in coupled
    )
    mss = caption(0.8, verify="mss")
    assert "distribution at temperature 0.8, without the tokens it drew here before)" in mss
    assert mss.endswith("p is what earlier rejections left of the LLM's bar.")
    branch = caption(0.8, verify="traversal", draft="sampled_iid")
    assert "drew here before" not in branch
    assert branch.endswith("times the chance that the branch up to here has left.")
    assert caption(0.8, drafters=()) == "Bars: the LLM at temperature 0.8."
    cut = {"sampling": {"temperature": 0.5, "top_k": 7, "top_p": 0.9}}
    assert "0.5 (top_k 7, top_p 0.9);" in probability_words(
        {**cut, "speculation": {"drafters": ["a"]}}
    )
    assert probability_words({}) == ""


TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def events() -> list[Event]:
    engine = engine_of(*tables(2, context=128))
    config = SpeculationConfig(
        expansion=(2, 1), speculation_length=2, max_tree_nodes=8, verify="mss", record_top_k=50
    )
    sampling = SamplingParams(12, temperature=TEMPERATURE, seed=3)
    return list(engine.generate(Request("w1 w2 w1 w2 w1", sampling, config)))


def test_q_is_at_the_requests_temperature_and_the_bars_are_not(events: list[Event]) -> None:
    """In a round's first trial, p is the LLM's bar, and q is the SSM's bar at TEMPERATURE."""
    sampling = SamplingParams(1, temperature=TEMPERATURE)
    num_checked, fitted = 0, dict[str, float]()
    ends = [event for event in events if isinstance(event, RoundCompleted)]
    trees = [event for event in events if isinstance(event, Combined)]
    verdicts = [event for event in events if isinstance(event, Verified)]
    for tree, verdict, completed in zip(trees, verdicts, ends, strict=True):
        bars = {(top.node, top.source): top for top in verdict.top_k}
        for trial in verdict.trials[:1]:
            node = trial.node
            place, token_id = tree.parents[node], tree.token_ids[node]
            llm, own = bars[place, "llm"], bars[place, trial.drafter]
            assert trial.p == pytest.approx(
                dict(zip(llm.token_ids, llm.probabilities, strict=True))[token_id]
            )
            logits = torch.tensor(own.probabilities).log()
            at_t = unprocessed_probabilities(process_logits(logits, sampling))
            assert trial.q == pytest.approx(float(at_t[own.token_ids.index(token_id)]), rel=1e-3)
            score = unprocessed_probabilities(logits / fitted.get(trial.drafter, 1.0))
            recorded = next(o.score for o in tree.proposals[node] if o.drafter == trial.drafter)
            assert recorded == pytest.approx(float(score[own.token_ids.index(token_id)]), rel=1e-3)
            num_checked += 1
        fitted = completed.temperatures
    assert num_checked > 3


FIGURES = 1
KEPT = ("speedup", "speed", "slower", "num_rounds", "tokens_per_second", "rounds")
"""Figures of a race that a replay and a report show too."""


def kept_of(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: figures[name] for name in KEPT}


def replay(context: Context, run_id: str) -> dict[str, Any]:
    figures = unpack_value(opened_run(sessions_of(context), TabSession(), ALL, run_id)[FIGURES])
    html = write_export(context, ALL, run_id, "html")["text"]
    report = Report(html)
    assert kept_of(report.pictures(Place(report.stops - 1))["figures"]) == kept_of(figures)
    assert escape(figures["speed"]) in html
    return figures


def test_what_was_measured_live_is_replayed(context: Context) -> None:
    live, desk = live_of(context), TabSession()
    run(live, desk)
    first = desk.frame().run_id
    assert replay(context, first)["speedup"] is None
    live_figures = unpack_value(list(run_question(live, desk, ME, race_plain))[-1][FIGURES + 1])
    assert live_figures["speedup"] > 0
    assert kept_of(replay(context, first)) == kept_of(live_figures)
    next_figures = unpack_value(run(live, desk)[FIGURES + 1])
    assert next_figures["speedup"] is not None and "same request" in next_figures["speed"]
    assert kept_of(replay(context, desk.frame().run_id)) == kept_of(next_figures), (
        "with the baseline of the run before"
    )
    other = unpack_value(run(live, desk, prompt="Another")[FIGURES + 1])
    assert (
        kept_of(replay(context, desk.frame().run_id)) == kept_of(other) and other["speedup"] is None
    )


def test_a_baseline_is_that_of_its_llm_and_outlives_the_plain_run(context: Context) -> None:
    live, desk = live_of(context), TabSession()
    run(live, desk)
    live_figures = unpack_value(list(run_question(live, desk, ME, race_plain))[-1][FIGURES + 1])
    context.store.delete(desk.baseline.run_id)
    assert kept_of(replay(context, desk.frame().run_id)) == kept_of(live_figures)
    baseline_request = desk.baseline.request
    desk.baseline = type(desk.baseline)(
        1.0, "plain", "", (("another", "", ""), *baseline_request[1:])
    )
    assert unpack_value(run(live, desk)[FIGURES + 1])["speedup"] is None


def test_a_studys_run_is_compared_with_its_own_plain_cell(context: Context) -> None:
    measured = study(context, prompts=2, repeats=2)
    mine(context).begin(measured)
    wait_for_end(context)
    cells = mine(context).open(measured.study_id).results
    for cell, kept in cells.items():
        figures = replay(context, kept.run_id)
        if cell.contestant == PLAIN:
            assert figures["speedup"] is None
            continue
        plain = cells[replace(cell, contestant=PLAIN)]
        rate = plain.stats.tokens_per_second
        assert figures["speedup"] == kept.stats.tokens_per_second / rate
        assert "in the same study, same prompt and repeat, one sample" in figures["speed"]
        result = baseline_of(context.store, context.store.run(kept.run_id))
        assert result is not None and result.run_id == plain.run_id
    mine(context).delete(measured.study_id)
    assert replay(context, kept.run_id)["speedup"] is None


def test_a_studys_run_is_compared_with_plain_decoding_at_its_temperature() -> None:
    plains = [plain_configuration(temperature=value) for value in (0.0, 0.8)]
    trees = [Configuration(f"tree {value}", SpeculationConfig(), value) for value in (0.0, 0.8)]
    grid = study_of([*plains, *trees])
    studies = SimpleNamespace(
        cell_of=lambda run_id: ("t", (run_id, "1", 0)),
        study=lambda _: (0, grid.to_plain()),
        result=lambda _, cell: result_of(Cell(*cell), 1.0).to_plain(),
    )
    for plain, tree in zip(plains, trees, strict=True):
        cell = _plain_cell(studies, tree.name)
        assert cell is not None and cell.run_id == f"{plain.name}/1/0"
        assert _plain_cell(studies, plain.name) is None


def test_only_0_and_1_are_shown_as_0_and_1() -> None:
    values = (0.0, 1e-9, 0.41237, 0.99997, 1.0)
    assert probability(0.9995) == ">0.999", "three digits would show 1.000"
    assert [rounded_probability(p) for p in values] == [0.0, 0.0001, 0.4124, 0.9999, 1.0]
    assert [percent(p) for p in values] == ["0 %", "<0.01 %", "41.2 %", ">99.95 %", "100 %"]
    assert [probability(p) for p in values] == ["0", "<0.001", "0.412", ">0.999", "1"]
