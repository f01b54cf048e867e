"""Drafting ahead within one request: the text is unchanged; events report which guesses hit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.engine.overlap import Job
from core.events import Drafted, Event, RunCompleted
from core.models.protocol import Feed
from tests.core.engines import (
    GREEDY,
    admit_all,
    by_run,
    engine_of,
    ids_of_events,
    open_rows,
    rounds_of,
    tables,
    texts_of,
)  # fmt: skip
from tests.fakes import TableModel, loaded_tables, random_table
from tests.lanes import PunctualLane

TREE: dict[str, Any] = {"expansion": (2, 1), "speculation_length": 2, "max_tree_nodes": 24}
LONG = SamplingParams(40, seed=1)
DRAWN = SamplingParams(40, temperature=0.8, seed=1)


def engine_ahead(looks: int = 99, **of: Any) -> Engine:
    engine = engine_of(*tables(**of))
    engine._draft_thread = PunctualLane(looks)
    return engine


def run(engine: Engine, sampling: SamplingParams = LONG, **fields: Any) -> list[Event]:
    config = SpeculationConfig(**{**TREE, "pipeline": "ahead", **fields})
    return list(engine.generate(Request("w1 w2 w3", sampling, config)))


def trees(events: Sequence[Event]) -> list[list[tuple[int, ...]]]:
    return [[d.token_ids for d in e.drafts] for e in events if isinstance(e, Drafted)]


KINDS = [
    (LONG, "topk", "greedy"),
    (LONG, "best_first", "greedy"),
    (DRAWN, "coupled", "match"),
    (DRAWN, "sampled", "match"),
    (DRAWN, "sampled", "mss"),
    (DRAWN, "sampled_iid", "traversal"),
]


@pytest.mark.parametrize(("sampling", "draft", "verify"), KINDS)
def test_wherever_the_clock_stops_it_the_drafts_are_those_made_on_time(sampling, draft, verify):
    fields = {"draft": draft, "verify": verify}
    on_time = run(engine_of(*tables()), sampling, pipeline="off", **fields)
    for looks in (0, 1, 2, 3, 4, 5, 7, 99):
        ahead = run(engine_ahead(looks), sampling, **fields)
        assert ids_of_events(ahead) == ids_of_events(on_time), looks
        assert trees(ahead) == trees(on_time), looks
        assert any(one.hit for event in rounds_of(ahead) for one in event.ahead) or looks < 4


def test_guesses_come_true_and_are_reported() -> None:
    events = run(engine_ahead())
    told = [(event.round, one) for event in rounds_of(events) for one in event.ahead]
    assert any(one.hit for _, one in told) and not rounds_of(events)[0].ahead
    drafted = {e.round: e.drafts for e in events if isinstance(e, Drafted)}
    for number, one in told:
        assert 0 <= one.outcomes <= 4 and 0 <= one.probability <= 1
        assert one.saved_ms == 0.0  # PunctualLane drafts before the pass, not during it
        assert one.wasted_ms > 0 or one.hit
        # The last round may have no room for a draft.
        records = [d.drafted_ahead for d in drafted[number] if d.drafter == one.drafter]
        assert records == [one.hit] or (not records and not one.hit)
    assert not any(record.drafted_ahead for record in drafted[0])


def test_a_draft_that_was_ready_took_no_pass() -> None:
    events = run(engine_ahead())
    drafted = [r for e in events if isinstance(e, Drafted) for r in e.drafts]
    assert all((not r.spans) == r.drafted_ahead for r in drafted)
    spans = [span.name for event in rounds_of(events) for span in event.spans]
    assert spans.count("ahead") > 4


def test_the_same_drafter_guesses_right_always() -> None:
    """An SSM that is the LLM itself at temperature 0 predicts every outcome."""
    events = run(engine_ahead(count=1))
    hits = [one.hit for event in rounds_of(events) for one in event.ahead]
    # After the last outcomes there is no room for a draft.
    assert len(hits) > 5 and all(hits[:-1])


@pytest.mark.parametrize("draft", ["coupled", "topk"])
def test_under_match_it_foretells_the_draw_itself(draft: str) -> None:
    """An SSM that is the LLM itself also shares its noise, and guesses the token that is drawn.
    From the distribution alone about six guesses in ten would be right. A guess may still be wrong
    where the text has no room for a draft after the right one."""
    hits: list[bool] = []
    for seed in range(3):
        sampling = SamplingParams(40, temperature=0.8, seed=seed)
        events = run(engine_ahead(count=1), sampling, draft=draft, verify="match")
        hits += [one.hit for event in rounds_of(events) for one in event.ahead if one.outcomes]
    assert len(hits) > 30 and sum(hits) > 0.9 * len(hits)


def test_a_row_keeps_nothing_of_wrong_guesses() -> None:
    engine = engine_ahead()
    config = SpeculationConfig(**TREE, pipeline="ahead")
    (live,) = admit_all(engine, [Request("w1 w2 w3", LONG, config)])
    ssm = engine.models.ssms["same"]
    most = 0
    while not live.sequence.finish_reason:
        list(engine.round([live]))
        most = max([most, *(ssm.pending(row) for row in ssm.open_rows)])
    engine.release(live)
    assert 0 < most < 8


def test_text_that_ends_is_not_drafted_behind() -> None:
    events = run(engine_ahead(), SamplingParams(9, seed=1))
    assert len(ids_of_events(events)) == 9
    assert isinstance(events[-1], RunCompleted)


def test_a_small_context_ends_quietly() -> None:
    llm, _ = tables(context=24)
    small = TableModel("small", 8, llm._table, 14)
    engine = engine_of(llm, [small])
    engine._draft_thread = PunctualLane()
    events = run(engine)
    assert events[-1].finish_reason == "context"
    assert ids_of_events(events) == ids_of_events(
        run(engine_of(llm, [small]), drafters=(), pipeline="off")
    )


def test_requests_of_a_batch_share_the_passes() -> None:
    config = SpeculationConfig(**TREE, pipeline="ahead")
    requests = [Request(text, GREEDY, config) for text in ("w1 w2", "w4", "w6 w6 w1")]
    engine = engine_ahead()
    events = list(engine.generate_many(requests))
    assert texts_of(events) == [ids_of_events(engine_ahead().generate(one)) for one in requests]
    assert all(any(a.hit for e in rounds_of(run) for a in e.ahead) for run in by_run(events))


class FailsAhead(TableModel):
    """Fails after `at` passes made while `counting` is set."""

    def __init__(self, at: int) -> None:
        super().__init__("mortal", 8, random_table(8, 5), 64)
        self.beside, self.at = 0, at
        self.counting = False

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        self.beside += self.counting
        if self.counting and self.beside > self.at:
            raise RuntimeError("the device went away")
        return super().forward(feeds)


@pytest.mark.loses_drafters
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_a_drafter_that_dies_ahead_costs_no_text(at: int) -> None:
    llm, (same, *_) = tables(1)
    mortal = FailsAhead(at)

    class Marking(PunctualLane):
        @contextmanager
        def run_during(self, jobs: Sequence[Job]) -> Iterator[None]:
            mortal.counting = True
            with super().run_during(jobs):
                mortal.counting = False
                yield

    engine = Engine(loaded_tables(llm, [same, mortal]))
    engine._draft_thread = Marking()
    events = run(engine)
    assert ids_of_events(events) == ids_of_events(
        run(engine_of(*tables()), drafters=(), pipeline="off")
    )
    notes = [note for event in rounds_of(events) for note in event.notes]
    assert len(notes) == 1 and "mortal failed" in notes[0]
    assert open_rows(engine) == [(), (), ()]


def test_auto_says_what_it_found() -> None:
    # Long enough for the longest trial, 24 rounds, which noisy round times need.
    engine = engine_of(*tables(context=512))
    events = run(engine, SamplingParams(400, seed=1), pipeline="auto")
    notes = [note for event in rounds_of(events) for note in event.notes]
    assert notes and notes[0].startswith("drafting ahead takes ")
    assert notes[0].endswith((": on", ": off"))
    first = [event.round for event in rounds_of(events) if event.ahead]
    assert first and first[0] > 6
