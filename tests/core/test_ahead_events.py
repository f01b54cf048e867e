"""Events of drafting ahead."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters.ahead import AheadDraft
from core.engine.ahead_events import ahead_drafts, ahead_results, unused_at_end
from core.engine.overlap import DraftThread, Job, PipelineSwitch
from core.engine.round_state import ActiveRequest, AheadDrafts, RoundState
from core.events import Ahead, Drafted, Event
from core.events.parts import Timed
from core.models.protocol import Feed
from core.speculation_length.base import Choice
from core.speculation_length.fixed import Fixed
from core.trees.draft import Draft
from tests.core.engines import by_run, ids_of_events, rounds_of, tables
from tests.fakes import TableModel, loaded_tables, random_table
from tests.lanes import DoneAfter

TREE: dict[str, Any] = {
    "expansion": (2, 1), "speculation_length": 4, "max_tree_nodes": 24, "pipeline": "ahead",
}  # fmt: skip
LONG = SamplingParams(40, seed=1)
WARM = SamplingParams(40, temperature=0.8, seed=1)


class Hiding(TableModel):
    """An LLM that runs the jobs of drafting ahead within its pass."""

    def __init__(self) -> None:
        super().__init__("llm", 8, random_table(8, 1, sharpness=2.5), 64)
        self.jobs: list[Job] = []

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job(DoneAfter(99))
        return super().forward(feeds)


class HidingLane(DraftThread):
    def __init__(self, llm: Hiding) -> None:
        super().__init__()
        self._llm = llm

    @contextmanager
    def run_during(self, jobs: Sequence[Job]) -> Iterator[None]:
        self._llm.jobs = list(jobs)
        yield


def engine_hiding(count: int = 2) -> Engine:
    llm = Hiding()
    engine = Engine(loaded_tables(llm, tables(count)[1]))
    engine._draft_thread = HidingLane(llm)
    return engine


def run(engine: Engine, sampling: SamplingParams = LONG, **fields: Any) -> list[Event]:
    config = SpeculationConfig(**{**TREE, **fields})
    return list(engine.generate(Request("w1 w2 w3", sampling, config)))


def ahead_of(events: Sequence[Event]) -> list[Ahead]:
    return [one for event in rounds_of(events) for one in event.ahead]


def work_ms(events: Sequence[Event]) -> dict[tuple[int, str], float]:
    """Milliseconds of work ahead, by round and drafter."""
    results: dict[tuple[int, str], float] = defaultdict(float)
    for event in rounds_of(events):
        for span in event.spans:
            if span.name == "ahead":
                results[event.round, span.lane] += span.ms
    return results


def reported_ms(events: Sequence[Event]) -> dict[tuple[int, str], float]:
    """An event with reason `ended` reports the work of its own round. Other events report the work
    of the round before."""
    return {
        (e.round - (one.reason != "ended"), one.drafter): one.saved_ms + one.wasted_ms
        for e in rounds_of(events)
        for one in e.ahead
        if not one.is_certain
    }


def choose_in_turn(monkeypatch: pytest.MonkeyPatch, *choices: Choice) -> None:
    """`choose` is called twice in each round: for the event and for the plan."""
    turns = itertools.cycle([one for one in choices for _ in range(2)])
    monkeypatch.setattr(Fixed, "choose", lambda _: next(turns))


FULL = Choice(4)


@pytest.mark.parametrize("sampling", [LONG, WARM], ids=["greedy", "match"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"draft": "best_first"},
        {"combine": "vote", "expansion": (1,), "length": "trend"},
        {"length": "goodput"},
        {"length": "confidence", "drafters": ("all", "ngram")},
    ],
    ids=str,
)
def test_saved_and_wasted_times_add_up_to_all_work_ahead(sampling, fields):
    if fields.get("draft") == "best_first" and not sampling.greedy:
        fields = {**fields, "verify": "match"}
    events = run(engine_hiding(), sampling, **fields)
    assert reported_ms(events) == pytest.approx(work_ms(events))
    assert any(one.hit and one.wasted_ms for one in ahead_of(events))


@pytest.mark.parametrize(
    "choices",
    [
        (FULL, Choice(0)),
        (FULL, Choice(4, drafters=frozenset({"ssm-2"}))),
        (FULL, Choice(1)),
        (FULL, FULL, Choice(2), Choice(0), Choice(3)),
    ],
    ids=["none", "one left out", "shorter", "mixed"],
)
def test_a_hit_is_a_draft_that_was_used(choices: tuple[Choice, ...], monkeypatch):
    plain = ids_of_events(run(engine_hiding(), drafters=()))
    choose_in_turn(monkeypatch, *choices)
    events = run(engine_hiding())
    assert ids_of_events(events) == plain
    drafts = {e.round: e.drafts for e in events if isinstance(e, Drafted)}
    for event in rounds_of(events):
        drafted = {one.drafter for one in drafts[event.round] if one.token_ids}
        early = {one.drafter for one in drafts[event.round] if one.drafted_ahead}
        assert early == {one.drafter for one in event.ahead if one.hit} <= drafted
        for one in event.ahead:
            assert one.saved_ms == 0 or one.hit
            assert one.hit == (one.reason == "")
    assert reported_ms(events) == pytest.approx(work_ms(events))
    assert any(one.hit for one in ahead_of(events)) or Choice(0) in choices
    unused = [one for one in ahead_of(events) if one.reason == "unused"]
    assert unused or Choice(1) in choices


def test_of_a_shortened_draft_only_the_used_part_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_in_turn(monkeypatch, FULL, Choice(1))
    events = run(engine_hiding(count=1))
    ahead_drafts = [[s for s in e.spans if s.name == "ahead"] for e in rounds_of(events)]
    cut = [
        e for e in rounds_of(events) if e.speculation_length == 1 and any(o.hit for o in e.ahead)
    ]
    assert len(cut) > 2
    for event in cut:
        scoring, first, *others = ahead_drafts[event.round - 1]
        assert len(others) >= 2
        assert event.ahead[0].saved_ms == pytest.approx(first.ms)


def test_work_ahead_is_reported_when_the_mode_changes_to_across(monkeypatch):
    modes = itertools.chain(["ahead"] * 4, itertools.repeat("across"))

    def modes_of(live: Sequence[ActiveRequest], auto: PipelineSwitch) -> dict[str, str]:
        return dict.fromkeys([one.sequence.run_id for one in live], next(modes))

    monkeypatch.setattr("core.engine.engine.pipeline_modes", modes_of)
    config = SpeculationConfig(**{**TREE, "pipeline": "auto"})
    requests = [Request(text, LONG, config) for text in ("w1 w2", "w4")]
    events = list(engine_hiding().generate_many(requests))
    for own in by_run(events):
        assert len(work_ms(own)) > 4
        assert reported_ms(own) == pytest.approx(work_ms(own))
    both = [e.ahead for e in rounds_of(events) if len({o.is_certain for o in e.ahead}) == 2]
    assert len(both) == 1, "one request was drafted during the other's pass"


def test_a_request_is_not_charged_for_anothers_longer_draft() -> None:
    configs = [SpeculationConfig(**{**TREE, "speculation_length": length}) for length in (1, 4)]
    requests = [Request("w1 w2", LONG, config) for config in configs]
    events = list(engine_hiding(count=1).generate_many(requests))
    runs = dict.fromkeys(event.run_id for event in events)
    short, long = [[e for e in rounds_of(events) if e.run_id == run] for run in runs]
    passes = [[sum(s.name == "ahead" for s in e.spans) for e in run] for run in (short, long)]
    assert max(passes[0]) == 2 < 5 == max(passes[1])  # one pass to score, and one for each step
    assert reported_ms(short) == pytest.approx(work_ms(short))
    assert reported_ms(long) == pytest.approx(work_ms(long))


def test_work_ahead_in_the_last_round_is_wasted() -> None:
    events = run(engine_hiding(count=1), SamplingParams(30, seed=1, stop=("w",)))
    assert len(rounds_of(events)) == 1
    (one,) = ahead_of(events)
    assert (one.hit, one.saved_ms, one.reason) == (False, 0.0, "ended")
    assert {(0, one.drafter): one.wasted_ms} == pytest.approx(work_ms(events))
    assert one.outcomes > 0


DRAFTED_AHEAD = AheadDraft(
    outcomes={(3, 5): 0.5, (4,): 0.25},
    scoring_timings=[Timed("same", "ahead", 1.0, 1.5)],
    draft_timings=[Timed("same", "ahead", 2.0, 2.25), Timed("same", "ahead", 3.0, 4.0)],
)
PASS = Timed("llm", "forward", 0.5, 3.25)


def state_of(committed: tuple[int, ...], drafts: dict[int, Draft]) -> RoundState:
    engine = engine_hiding()
    live = engine.admit(engine.prepare(Request("w1 w2 w3", LONG, SpeculationConfig(**TREE))))
    ahead = AheadDrafts({"same": DRAFTED_AHEAD}, (PASS,), committed)
    return RoundState(live, FULL, 2, drafts=drafts, ahead_drafts=ahead)


@pytest.mark.parametrize(
    ("committed", "drafts", "saved", "wasted", "reason"),
    [
        ((3, 5), {0: Draft([1], passes_ahead=2)}, 500.0, 500.0, ""),
        ((4,), {0: Draft([1], passes_ahead=1)}, 250.0, 1500.0, ""),
        ((3,), {0: Draft([1])}, 0.0, 1750.0, "wrong"),
        ((4,), {0: Draft([1])}, 0.0, 1750.0, "unused"),
        ((4,), {1: Draft([1], passes_ahead=2)}, 0.0, 1750.0, "unused"),
        ((4,), {}, 0.0, 1750.0, "unused"),
    ],
)
def test_a_round_reports_the_work_ahead_made_for_it(committed, drafts, saved, wasted, reason):
    (one,) = ahead_results(state_of(committed, drafts))
    assert one == Ahead("same", 2, 0.75, not reason, saved, wasted, reason)


def test_without_work_ahead_nothing_is_reported() -> None:
    state = state_of((4,), {})
    assert ahead_drafts(state, (4,)) is None
    assert unused_at_end(state, None) == ()
    assert unused_at_end(state, state.ahead_drafts)[0].wasted_ms == 1750.0
    state.ahead_drafts = None
    assert ahead_results(state) == ()
