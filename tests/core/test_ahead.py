"""Drafting ahead."""

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


def engine_ahead(checks: int = 99, **of: Any) -> Engine:
    engine = engine_of(*tables(**of))
    engine._draft_thread = PunctualLane(checks)
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
def test_however_much_is_drafted_ahead_the_drafts_are_the_same(sampling, draft, verify):
    fields = {"draft": draft, "verify": verify}
    on_time = run(engine_of(*tables()), sampling, pipeline="off", **fields)
    for checks in (0, 1, 2, 3, 4, 5, 7, 99):
        ahead = run(engine_ahead(checks), sampling, **fields)
        assert ids_of_events(ahead) == ids_of_events(on_time), checks
        assert trees(ahead) == trees(on_time), checks
        assert any(one.hit for event in rounds_of(ahead) for one in event.ahead) or checks < 4


def test_guesses_that_come_true_are_reported() -> None:
    events = run(engine_ahead())
    results = [(event.round, one) for event in rounds_of(events) for one in event.ahead]
    assert any(one.hit for _, one in results) and not rounds_of(events)[0].ahead
    drafted = {e.round: e.drafts for e in events if isinstance(e, Drafted)}
    for number, one in results:
        assert 0 <= one.outcomes <= 4 and 0 <= one.probability <= 1
        assert one.saved_ms == 0.0  # PunctualLane drafts before the pass, not during it
        assert one.wasted_ms > 0 or one.hit
        # In the last round, too few tokens may be left for a draft.
        records = [d.drafted_ahead for d in drafted[number] if d.drafter == one.drafter]
        assert records == [one.hit] or (not records and not one.hit)
    assert not any(record.drafted_ahead for record in drafted[0])


def test_a_draft_that_was_ready_took_no_pass() -> None:
    events = run(engine_ahead())
    drafted = [r for e in events if isinstance(e, Drafted) for r in e.drafts]
    assert all((not r.spans) == r.drafted_ahead for r in drafted)
    spans = [span.name for event in rounds_of(events) for span in event.spans]
    assert spans.count("ahead") > 4


def test_a_drafter_that_is_the_llm_always_guesses_right() -> None:
    events = run(engine_ahead(count=1))
    hits = [one.hit for event in rounds_of(events) for one in event.ahead]
    # At the end of the text, too few tokens are left for a draft.
    assert len(hits) > 5 and all(hits[:-1])


@pytest.mark.parametrize("draft", ["coupled", "topk"])
def test_under_match_the_drawn_token_is_guessed(draft: str) -> None:
    """A right guess is no hit if too few tokens are left for another draft."""
    hits: list[bool] = []
    for seed in range(3):
        sampling = SamplingParams(40, temperature=0.8, seed=seed)
        events = run(engine_ahead(count=1), sampling, draft=draft, verify="match")
        hits += [one.hit for event in rounds_of(events) for one in event.ahead if one.outcomes]
    assert len(hits) > 30 and sum(hits) > 0.9 * len(hits)


def test_tokens_of_wrong_guesses_are_removed_from_the_row() -> None:
    engine = engine_ahead()
    config = SpeculationConfig(**TREE, pipeline="ahead")
    (live,) = admit_all(engine, [Request("w1 w2 w3", LONG, config)])
    ssm = engine.models.ssms["same"]
    max_pending = 0
    while not live.sequence.finish_reason:
        list(engine.round([live]))
        max_pending = max([max_pending, *(ssm.pending(row) for row in ssm.open_rows)])
    engine.release(live)
    assert 0 < max_pending < 8


def test_a_run_that_drafts_ahead_ends_at_its_limit() -> None:
    events = run(engine_ahead(), SamplingParams(9, seed=1))
    assert len(ids_of_events(events)) == 9
    assert isinstance(events[-1], RunCompleted)


def test_a_drafter_with_a_small_context_does_not_change_the_text() -> None:
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
    def __init__(self, limit: int) -> None:
        super().__init__("broken", 8, random_table(8, 5), 64)
        self.counted, self.limit = 0, limit
        self.counting = False

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        self.counted += self.counting
        if self.counting and self.counted > self.limit:
            raise RuntimeError("the device went away")
        return super().forward(feeds)


@pytest.mark.loses_drafters
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4])
def test_a_drafter_that_fails_while_drafting_ahead_does_not_change_the_text(limit: int) -> None:
    llm, (same, *_) = tables(1)
    broken = FailsAhead(limit)

    class Marking(PunctualLane):
        @contextmanager
        def run_during(self, jobs: Sequence[Job]) -> Iterator[None]:
            broken.counting = True
            with super().run_during(jobs):
                broken.counting = False
                yield

    engine = Engine(loaded_tables(llm, [same, broken]))
    engine._draft_thread = Marking()
    events = run(engine)
    assert ids_of_events(events) == ids_of_events(
        run(engine_of(*tables()), drafters=(), pipeline="off")
    )
    notes = [note for event in rounds_of(events) for note in event.notes]
    assert len(notes) == 1 and "broken failed" in notes[0]
    assert open_rows(engine) == [(), (), ()]


def test_auto_notes_its_decision() -> None:
    # The run is long enough for the longest trial of `auto`, 24 rounds.
    engine = engine_of(*tables(context=512))
    events = run(engine, SamplingParams(400, seed=1), pipeline="auto")
    notes = [note for event in rounds_of(events) for note in event.notes]
    assert notes and notes[0].startswith("drafting ahead takes ")
    assert notes[0].endswith((": on", ": off"))
    first = [event.round for event in rounds_of(events) if event.ahead]
    assert first and first[0] > 6
