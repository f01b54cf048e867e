"""Auditions: which SSM predicts a text best."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters.ssm import AUDITION
from core.drafters.ssm_pool import MIN_TOKENS, SsmPool
from core.events import Drafted, Event, RoundCompleted
from core.metrics import audition_ms
from core.models.stacking import Stack, stack_alike
from core.routing.credit import CreditRouter
from tests.core.engines import (
    GREEDY,
    admit_all,
    engine_of,
    ids_of_events,
    open_rows,
    rounds_of,
    tables,
)
from tests.core.models.test_stack import small
from tests.fakes import VOCAB, TableModel, note_results, random_table

GOODPUT = SpeculationConfig(length="goodput", max_tree_nodes=12)
SHORT = (("short", 16), ("long", 64))
NAMES = ("same", "ssm-2", "ssm-3")


def greedy_text(model: TableModel, count: int) -> list[int]:
    ids = [1]
    while len(ids) < count:
        row = list(model._table(tuple(ids)))
        ids.append(max(range(1, len(row)), key=row.__getitem__))
    return ids


def prompt(ids: Sequence[int]) -> str:
    return " ".join(f"w{one}" for one in ids)


def run(engine: Engine, text: str, config: SpeculationConfig = GOODPUT) -> list[Event]:
    return list(engine.generate(Request(text, GREEDY, config)))


def first_to_draft(events: Sequence[Event]) -> set[str]:
    first = next(event for event in events if isinstance(event, Drafted))
    return {record.drafter for record in first.drafts}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_ssm_that_predicts_the_prompt_drafts_first(index: int) -> None:
    llm, ssms = tables(3)
    events = run(engine_of(llm, ssms), prompt(greedy_text(ssms[index], 30)))
    assert first_to_draft(events) == {NAMES[index]}


def test_a_prompt_that_is_too_short_has_no_audition() -> None:
    llm, ssms = tables(3)
    text = greedy_text(ssms[1], MIN_TOKENS)
    assert first_to_draft(run(engine_of(llm, ssms), prompt(text[:-1]))) == {NAMES[0]}
    assert first_to_draft(run(engine_of(llm, ssms), prompt(text))) == {NAMES[1]}


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"routing": "credit", "speculation_length": 0}, 24),
        ({"routing": "credit"}, 1),
        ({"routing": "audition"}, 1),
        ({"length": "goodput"}, 1),
    ],
)
def test_there_is_no_audition_if_nothing_can_be_drafted(
    fields: dict[str, Any], tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    auditions = note_results(monkeypatch, SsmPool, "audition", lambda result: result)
    monkeypatch.setattr(CreditRouter, "needs_audition", True)
    engine = engine_of(*tables(3))
    text = "w1 w5 w3 w2 " * 5
    config = SpeculationConfig(**fields)
    for count in (tokens, 24):
        assert not auditions
        list(engine.generate(Request(text, SamplingParams(count, ignore_eos=True), config)))
    assert bool(auditions) != config.never_drafts, "24 tokens leave room for drafts"


def test_a_short_prompt_is_scored_as_soon_as_it_is_longer() -> None:
    llm, ssms = tables(3, context=128)
    warm = SamplingParams(60, temperature=1.0, seed=5)
    # The SSM with the LLM's own table comes last.
    engine = engine_of(llm, [*ssms[1:], ssms[0]])
    events = list(engine.generate(Request("w1 w2 w3 w4", warm, GOODPUT)))
    drafted = [e.drafts[0].drafter for e in events if isinstance(e, Drafted) and e.drafts]
    assert (drafted[0], drafted[-1]) == (NAMES[1], NAMES[0])


@pytest.mark.parametrize("fields", [{"length": "fixed"}, {"combine": "vote"}])
def test_where_no_single_ssm_is_chosen_all_draft(fields: dict[str, str]) -> None:
    llm, ssms = tables(3)
    config = dataclasses.replace(GOODPUT, **fields)
    events = run(engine_of(llm, ssms), prompt(greedy_text(ssms[1], 30)), config)
    assert first_to_draft(events) == set(NAMES)


def test_an_audition_changes_no_text_and_leaves_no_row_open() -> None:
    llm, ssms = tables(3)
    engine = engine_of(llm, ssms)
    text = prompt(greedy_text(ssms[1], 30))
    plain = ids_of_events(run(engine, text, SpeculationConfig.preset("autoregressive")))
    assert ids_of_events(run(engine, text)) == plain
    assert not any(open_rows(engine))


def test_reading_the_prompt_is_reported_in_the_first_round() -> None:
    llm, ssms = tables(3)
    events = run(engine_of(llm, ssms), prompt(greedy_text(ssms[1], 30)))
    first = next(event for event in events if isinstance(event, RoundCompleted))
    read = {span.lane for span in first.spans if span.name == "prefill"}
    assert read == {"llm", *NAMES}
    assert all(one.start_ms <= one.end_ms for one in first.spans)


def test_an_audition_gives_the_log_probabilities_of_the_last_tokens() -> None:
    llm, ssms = tables(3)
    pool = engine_of(llm, ssms)._drafting.ssm_pool
    ids = greedy_text(ssms[0], 40)
    window = ids[-AUDITION:]
    fits, timings = pool.audition(NAMES, ids)
    for ssm in ssms:
        logs = [math.log(ssm._table(tuple(window[:i]))[window[i]]) for i in range(1, len(window))]
        assert fits[ssm.info.name] == pytest.approx(logs, abs=1e-5)
    assert [one.lane for one in timings] == list(NAMES)


def test_all_ssms_read_the_same_tokens_if_a_context_is_short() -> None:
    models = [TableModel(name, 8, random_table(8, i), n) for i, (name, n) in enumerate(SHORT)]
    pool = SsmPool({model.info.name: model for model in models}, 8)
    result, _ = pool.audition([name for name, _ in SHORT], [i % 8 for i in range(60)], window=48)
    assert {len(log_probs) for log_probs in result.values()} == {15} and len(result) == 2


def stack_pool() -> SsmPool:
    ssms = [small("llama", seed) for seed in range(3)]
    stack_alike(ssms)
    return SsmPool(dict(zip(NAMES, ssms, strict=True)), VOCAB)


def test_stacked_ssms_are_auditioned_in_one_pass(monkeypatch: pytest.MonkeyPatch):
    pool, ids = stack_pool(), [3 + i % 7 for i in range(40)]
    passes = note_results(monkeypatch, Stack, "forward", len)
    fits, timings = pool.audition(NAMES, ids)
    assert passes == [3]
    for name in NAMES:
        assert pool.audition([name], ids)[0][name] == pytest.approx(fits[name], abs=1e-5)
    assert passes == [3], "an SSM that is auditioned alone makes no stacked pass"
    assert len({tuple(result) for result in fits.values()}) == 3
    start, end = min(one.start for one in timings), max(one.end for one in timings)
    assert 0 < sum(one.seconds for one in timings) <= end - start


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_any_error_of_a_pass_its_rows_are_closed(error: type[BaseException], monkeypatch):
    def fail(self: Stack, feeds: object) -> object:
        raise error("out of order")

    pool = stack_pool()
    monkeypatch.setattr(Stack, "forward", fail)
    caught: BaseException | None = None  # its traceback keeps the frames alive
    try:
        assert pool.audition(NAMES, [3] * 30)[0] == {}
    except KeyboardInterrupt as raised:
        caught = raised
    assert (caught is not None) == (error is KeyboardInterrupt)
    assert {ssm.model.open_row() for ssm in pool.ssms.values()} == {0}, "row 0 was given back"


@pytest.mark.loses_drafters
def test_an_ssm_that_fails_has_no_score() -> None:
    llm, ssms = tables(3)
    engine, text = engine_of(llm, ssms), prompt(greedy_text(ssms[1], 30))
    plain = ids_of_events(run(engine, text, SpeculationConfig.preset("autoregressive")))

    def fail(feeds: object) -> object:
        raise RuntimeError("out of order")

    ssms[1].forward = fail  # type: ignore[method-assign, assignment]
    events = run(engine, text)
    assert "ssm-2" not in engine._drafting.ssm_pool.audition(NAMES, greedy_text(ssms[1], 30))[0]
    assert ids_of_events(events) == plain
    assert not any(open_rows(engine))


@pytest.mark.parametrize("routing", ["credit", "cosine", "all"])
def test_the_time_of_auditions_is_in_the_events(routing: str) -> None:
    engine = engine_of(*tables(3, context=128))
    config = SpeculationConfig(routing=routing, routed_drafters=1, max_tree_nodes=8)
    prompt = " ".join(["w1 w5 w3 w2"] * 8)
    request = Request(prompt, SamplingParams(40, ignore_eos=True), config)
    (live,) = admit_all(engine, [request])
    completed: list[RoundCompleted] = []
    auditions, observe = [], CreditRouter.observe_audition

    def count(router: CreditRouter, *results: Any) -> None:
        auditions.append(results)
        observe(router, *results)

    with mock.patch.object(CreditRouter, "observe_audition", count):
        while not live.sequence.finish_reason:
            completed += rounds_of(engine.round([live]))
    times = [audition_ms(event) for event in completed]
    if routing != "credit":
        assert not any(times)
        return
    assert isinstance(live.router, CreditRouter)
    assert times[0] > 0 and len(auditions) == sum(ms > 0 for ms in times)
    assert sum(times) == pytest.approx(live.router._audition_ms)
