"""A request drafts within its scheduler's grant."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters.ssm_pool import SsmPool
from core.engine.round_state import ActiveRequest
from core.events import Drafted
from core.routing.cosine import CosineRouter
from core.routing.credit import CreditRouter
from core.scheduling import FREE, BatchOutcome, Grant, LiveRequest, Plan
from tests.core.engines import admit_all, engine_of, tables
from tests.fakes import note_results

PROMPT = " ".join(["w1 w5 w3 w2"] * 4)


@dataclass
class SameGrant:
    """A Scheduler that gives every request the same grant."""

    grant: Grant = FREE
    live: Sequence[LiveRequest] = ()

    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        self.live = live
        return Plan(tuple(range(len(live))), (self.grant,) * len(live))

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        return None

    def observe(self, outcome: BatchOutcome) -> None:
        """Nothing is measured."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    result = engine_of(*tables(3))
    result.schedule = "cosine"
    yield result
    result.close()


def admit(engine: Engine, **fields: object) -> ActiveRequest:
    shape = {"expansion": (1,), "speculation_length": 4, "max_tree_nodes": "uncut"}
    config = SpeculationConfig(**{**shape, **fields})  # type: ignore[arg-type]
    (live,) = admit_all(engine, [Request(PROMPT, SamplingParams(32, ignore_eos=True), config)])
    return live


def drafts_within(engine: Engine, live: ActiveRequest, grant: Grant) -> dict[str, int]:
    engine._schedule._scheduler = SameGrant(grant)
    (event,) = [one for one in engine.round([live]) if isinstance(one, Drafted)]
    return {one.drafter: len(one.token_ids) for one in event.drafts if one.token_ids}


def request_of(engine: Engine) -> LiveRequest:
    scheduler = engine._schedule._scheduler
    assert isinstance(scheduler, SameGrant)
    return scheduler.live[0]


@pytest.mark.parametrize("routing", ["all", "cosine", "credit"])
def test_no_draft_is_deeper_than_granted(engine: Engine, routing: str) -> None:
    live = admit(engine, routing=routing)
    for granted in (3, 1, 0, 2):
        result = drafts_within(engine, live, Grant(length=granted))
        assert {*result.values()} == ({granted} if granted else set())
    assert {*drafts_within(engine, live, Grant(length=9)).values()} == {4}, "the requested length"


def test_the_reason_names_the_grant(engine: Engine) -> None:
    live = admit(engine)
    live.grant = Grant(length=2)
    assert (live.choose().length, live.choose().reason) == (2, "")
    live = admit(engine, length="goodput")
    live.grant = Grant(length=1)
    assert live.choose().length == 1 and live.choose().reason.endswith("; the batch grants 1")


@pytest.mark.parametrize("routing", ["all", "cosine", "credit"])
def test_no_more_ssms_draft_than_granted(engine: Engine, routing: str) -> None:
    live = admit(engine, routing=routing, routed_drafters=3)
    for granted, count in ((2, 2), (1, 1), (3, 3), (0, 1)):
        assert len(drafts_within(engine, live, Grant(drafters=granted))) == count


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 3),
        ({"speculation_length": 0}, 0),
        ({"length": "goodput"}, 1),
        ({"routing": "audition", "routed_drafters": 2}, 1),
        ({"routing": "credit", "routed_drafters": 2}, 2),
        ({"routing": "cosine", "routed_drafters": 2, "length": "goodput"}, 2),
    ],
)
def test_the_scheduler_counts_the_ssms_that_draft(
    engine: Engine, fields: dict[str, object], count: int
) -> None:
    live = admit(engine, **fields)
    assert len(drafts_within(engine, live, FREE)) == count
    assert request_of(engine).drafters == max(1, count)
    # A grant of one SSM does not change how many SSMs the request wants.
    for _ in range(2):
        drafts_within(engine, live, Grant(drafters=1))
        assert request_of(engine).drafters == max(1, count)


@pytest.mark.loses_drafters
@pytest.mark.parametrize("routing", ["all", "credit"])
def test_the_scheduler_counts_no_ssm_that_failed(engine: Engine, routing: str) -> None:
    live = admit(engine, routing=routing, routed_drafters=3)
    live.drop_drafter(1, RuntimeError("no memory"))
    assert len(drafts_within(engine, live, FREE)) == request_of(engine).drafters == 2


@pytest.mark.parametrize("fields", [{"routing": "credit"}, {"length": "goodput"}])
def test_there_is_no_audition_before_a_draft_is_granted(
    engine: Engine, fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    auditions = note_results(monkeypatch, SsmPool, "audition", lambda result: result)
    live = admit(engine, **fields)
    for _ in range(3):
        assert not drafts_within(engine, live, Grant(length=0))
    assert not auditions and not live.had_audition
    # A router that wants an audition in every round also has to wait.
    with monkeypatch.context() as patched:
        patched.setattr(CreditRouter, "needs_audition", True)
        assert not drafts_within(engine, live, Grant(length=0)) and not auditions
    assert drafts_within(engine, live, FREE)
    assert len(auditions) == 1 and live.had_audition


def test_a_rule_that_wants_no_audition_gets_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    auditions = note_results(monkeypatch, SsmPool, "audition", lambda result: result)
    assert drafts_within(engine, admit(engine, routing="cosine"), FREE)
    assert not auditions


def test_cosine_counts_only_granted_drafts_as_tried(engine: Engine) -> None:
    live = admit(engine, routing="cosine", routed_drafters=2)
    router = live.router
    assert isinstance(router, CosineRouter)
    for _ in range(4):
        assert not drafts_within(engine, live, Grant(length=0))
    assert not any(router._num_routed.values()), "no SSM drafted"
    drafted = Counter(
        name for _ in range(5) for name in drafts_within(engine, live, Grant(None, 1))
    )
    assert Counter(router._num_routed) == drafted
