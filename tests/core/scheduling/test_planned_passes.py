"""Schedules with pipelining."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.events import Event, RoundCompleted
from core.scheduling import FREE, BatchOutcome, Grant, LiveRequest, Plan, Scheduler
from core.scheduling.cosine import Cosine
from core.scheduling.guard import PlainGuard
from core.scheduling.shared import Shared
from core.speculation_length.cost_model import Switch
from tests.core.engines import admit_all, by_run, ids_of_events, tables, texts_of
from tests.fakes import loaded_tables

PROMPTS = tuple(" ".join(["w1", "w5", "w3", "w2"] * n) for n in (1, 4, 1, 2, 4, 2, 3))
QUEUE = (0, 0, 0, *range(1, 18), *(0,) * 200)


@dataclass
class RecordingScheduler:
    inner: Scheduler
    plans: list[Plan] = field(default_factory=list)
    live: Sequence[LiveRequest] = ()

    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        self.live = live
        self.plans.append(self.inner.plan(live, num_queued))
        return self.plans[-1]

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        return self.inner.budget(chances, context)

    def observe(self, outcome: BatchOutcome) -> None:
        self.inner.observe(outcome)


def requests(pipeline: Sequence[str]) -> list[Request]:
    return [
        Request(
            prompt,
            SamplingParams(32 + number, seed=1, ignore_eos=True),
            SpeculationConfig(expansion=(1,), speculation_length=3, pipeline=mode),
        )
        for number, (prompt, mode) in enumerate(zip(PROMPTS, pipeline, strict=True))
    ]


@pytest.mark.parametrize(
    "pipeline",
    [("across",) * 7, ("auto",) * 7, ("across", "off", "across", "off", "across", "ahead", "auto")],
)
def test_the_planned_group_is_verified(
    pipeline: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, plain = (Engine(loaded_tables(*tables(2)), schedule=s) for s in ("cosine", "each"))
    engine.costs.pipeline_switch("across", {"same", "ssm-2"}).on = True
    monkeypatch.setattr(Switch, "observe", lambda *_: None)  # `auto` stays on
    recorded = RecordingScheduler(engine._schedule._scheduler)
    engine._schedule._scheduler = recorded
    live = admit_all(engine, requests(pipeline))
    # For each request with a draft: its grant, and the decision that its next round must report.
    drafted: dict[str, tuple[Grant, str]] = {}
    mode = {one.sequence.run_id: one.sequence.speculation.pipeline for one in live}
    unreported: dict[str, str] = {}
    events: list[Event] = []
    pooled, decisions = 0, []
    for waiting in QUEUE:
        active = [one for one in live if not one.sequence.finish_reason]
        if not active:
            break
        passed = list(engine.round(active, waiting))
        plan, names = recorded.plans[-1], [one.sequence.run_id for one in active]
        round_event = {e.run_id: e.scheduled for e in passed if isinstance(e, RoundCompleted)}
        assert {*round_event} == {names[i] for i in plan.group}
        pooled += len(round_event.keys() & drafted.keys())
        across = [name for name in names if mode[name] == "across"]
        if drafted and len(across) > 1:  # pipelined requests are verified with a draft
            assert {*across} & round_event.keys() <= drafted.keys()
        if plan.decision:
            unreported |= dict.fromkeys(names, plan.decision)
        for i in {*plan.group, *(plan.next_group or ())}:
            if (name := names[i]) not in drafted:
                drafted[name] = (plan.grants[i], unreported.pop(name, ""))
        for name, part in round_event.items():
            assert part is not None
            grant, decision = drafted.pop(name)
            assert Grant(part.length_limit, part.drafter_limit) == grant
            assert part.num_batch == len(round_event)
            assert part.decision == decision
            if not decision and not plan.decision:
                assert part.reason == plan.reason
                size = re.match(r"(\d+) of (\d+) requests ", part.reason)
                counts = [int(number) for number in size.groups()] if size else [1, len(active)]
                assert counts == [len(round_event), len(active)] and (size or len(active) == 1)
            decisions.append(part.decision)
        events += passed
    engine.close()
    assert pooled > 10 and "fewer" in decisions
    texts = {run[0].run_id: ids_of_events(run) for run in by_run(events)}
    assert [texts[one.sequence.run_id] for one in live] == texts_of(
        plain.generate_many(requests(("off",) * 7))
    )


def test_where_plain_rounds_are_faster_no_request_drafts_or_waits() -> None:
    engine, plain = (Engine(loaded_tables(*tables(2)), schedule=s) for s in ("shared", "each"))
    scheduler = engine._schedule._scheduler
    assert isinstance(scheduler, Shared)
    live = admit_all(engine, requests(("across",) * 7))
    events: list[Event] = []
    for number in range(200):
        active = [one for one in live if not one.sequence.finish_reason]
        if not active:
            break
        for size in range(2, 8):
            if number >= 3:
                scheduler._record(size).guard.forbid_like(PlainGuard())
        passed = list(engine.round(active))
        parts = [e.scheduled for e in passed if isinstance(e, RoundCompleted)]
        assert [part.num_batch for part in parts if part] == [len(parts)] * len(parts)
        assert len(parts) < len(active) if number < 3 else len(parts) == len(active)
        events += passed
    engine.close()
    texts = {run[0].run_id: ids_of_events(run) for run in by_run(events)}
    assert [texts[one.sequence.run_id] for one in live] == texts_of(
        plain.generate_many(requests(("off",) * 7))
    )


class DecidingScheduler:
    def plan(self, live: Sequence[LiveRequest], num_queued: int) -> Plan:
        grants = (Grant(1, 1),) * len(live)
        return Plan((0,), grants, reason="decided", decision="fewer", next_group=(1,))

    def budget(self, chances: Sequence[Sequence[float]], context: int) -> int | None:
        return None

    def observe(self, outcome: BatchOutcome) -> None:
        """Nothing is measured."""


@pytest.mark.parametrize("schedule", ["shared", "each"])
def test_a_decision_ends_with_its_schedule(schedule: str) -> None:
    engine = Engine(loaded_tables(*tables(2)), schedule="cosine")
    engine._schedule._scheduler = DecidingScheduler()
    live = admit_all(engine, requests(("across",) * 7)[:3])
    assert [one.scheduled for one in engine.round(live) if isinstance(one, RoundCompleted)]
    waiting, undrafted = engine._draft_pool.states[live[1].run_id], live[2]
    assert waiting.decision is not None and undrafted.decision is not None
    engine.schedule = schedule
    events = [one for _ in range(4) for one in engine.round(live)]
    assert {one.run_id for one in events} == {one.run_id for one in live}
    parts = [one.scheduled for one in events if isinstance(one, RoundCompleted)]
    assert not [part for part in parts if part and part.decision == "fewer"]
    # `shared` may have stopped all drafts by now.
    assert schedule == "shared" or all(one.grant == FREE for one in live)
    engine.close()


def test_a_past_queue_limits_nothing_after_a_change_of_schedule() -> None:
    engine = Engine(loaded_tables(*tables(2, context=256)), schedule="cosine")
    shape = SpeculationConfig(expansion=(1,), speculation_length=3)
    sampling = SamplingParams(160, seed=1, ignore_eos=True)
    live = admit_all(engine, [Request(PROMPTS[0], sampling, shape)])

    def limits(queue: Iterable[int]) -> list[tuple[int | None, int | None, str]]:
        events = [event for waiting in queue for event in engine.round(live, waiting)]
        parts = [one.scheduled for one in events if isinstance(one, RoundCompleted)]
        return [(part.length_limit, part.drafter_limit, part.decision) for part in parts if part]

    # The twelfth round shortens drafts once more; the next plan would report this decision.
    assert limits(range(1, 13))[-1] == (2, 1, "")
    assert engine.schedule_decision is not None
    engine.schedule = "shared"
    assert engine.schedule_decision is None
    limits([0] * 3)
    engine.schedule = "cosine"
    assert engine.schedule_decision is None, "the last decision was about another load"
    assert limits([0] * 3) == [(3, 2, "")] * 3
    assert engine.schedule_decision is None
    engine.close()


class TimeOfLongestText:
    def verify_ms(self, requests: int, nodes: int, context: int) -> float:
        return float(context)

    def draft_ms(self, requests: int, length: int) -> float:
        return 0.0

    def fits(self, requests: int, width: int, extent: int) -> bool:
        return True

    def observe(self, outcome: BatchOutcome) -> None:
        """Nothing is measured."""


def test_no_request_waits_for_ever() -> None:
    """The long text is verified only because it has waited."""
    engine = Engine(loaded_tables(*tables(1, context=128)), schedule="cosine")
    scheduler = engine._schedule._scheduler
    assert isinstance(scheduler, Cosine)
    scheduler._times = TimeOfLongestText()  # type: ignore[assignment]
    shape = SpeculationConfig(expansion=(1,), speculation_length=1)
    prompts = (" ".join(["w1", "w5", "w3", "w2"] * n) for n in (1, 18, 1))
    live = admit_all(
        engine,
        [Request(one, SamplingParams(40, seed=1, ignore_eos=True), shape) for one in prompts],
    )
    waited = dict.fromkeys((one.run_id for one in live), 0)
    group_sizes = set()
    for _ in range(12):
        verified = {e.run_id for e in engine.round(live) if isinstance(e, RoundCompleted)}
        group_sizes.add(len(verified))
        waited = {run: 0 if run in verified else 1 + rounds for run, rounds in waited.items()}
        assert [one.rounds_waited for one in live] == [*waited.values()]
        # Each group includes the request that has waited longest.
        assert max(waited.values()) < len(live)
    assert group_sizes == {2, 3}, "the two short texts, or all three"
    engine.close()


def test_the_width_of_a_request_is_its_nodes_per_step() -> None:
    engine = Engine(loaded_tables(*tables(1)), schedule="cosine")
    recorded = RecordingScheduler(engine._schedule._scheduler)
    engine._schedule._scheduler = recorded
    shapes = [SpeculationConfig(expansion=e, speculation_length=2) for e in ((1, 2), (1, 1))]
    sampling = SamplingParams(48, seed=1, ignore_eos=True)
    live = admit_all(engine, [Request("w1 w2", sampling, shape) for shape in shapes])
    for _ in range(14):
        list(engine.round(live))
    assert [one.width for one in recorded.live] == pytest.approx([1.5, 1.0], abs=0.05)
