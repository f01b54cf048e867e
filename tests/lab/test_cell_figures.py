"""The stored figures of a `lab.order.Cell`."""

import json
from dataclasses import replace
from itertools import cycle

import pytest

from core.errors import CellInterruptedError, StudyError
from core.events import Combined, Event, RoundCompleted, RunStarted, Scheduled, Verified
from lab.measured import Measured, measure_run
from tests.core.engines import rounds_of
from tests.synthetic import VOTE_AHEAD, Mechanisms, synthetic_run
from tests.ui.fakes import plain_twin


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rules", [None, VOTE_AHEAD, Mechanisms(routing="cosine", draft="fused")])
def test_figures_are_those_of_the_events(seed: int, rules: object) -> None:
    options = {} if rules is None else {"mechanisms": rules}
    events = synthetic_run(12, seed=seed, run_id="r", **options)  # type: ignore[arg-type]
    result = measure_run(events)
    rounds = rounds_of(events)
    trees = [e for e in events if isinstance(e, Combined)]
    verdicts = [e for e in events if isinstance(e, Verified)]
    end = events[-1]
    assert result.run_id == "r" and result.stats == end.stats
    assert result.token_ids == tuple(t for e in rounds for t in e.token_ids)
    assert result.accepted_per_round == tuple(e.num_accepted for e in rounds)
    assert result.drafted_per_round == tuple(max(e.depths, default=0) for e in trees)
    for name, count in result.accepted_by:
        expected = 0
        for tree, verdict, round_event in zip(trees, verdicts, rounds, strict=True):
            emitted = verdict.path[: round_event.num_accepted]
            if tree.origins:
                expected += sum(tree.origins[n] == name for n in emitted)
                continue
            expected += sum(name in [p.drafter for p in tree.proposals[n]] for n in emitted)
        assert count == expected
    recovered = [
        len(round_event.token_ids) > len(verdict.path)
        for verdict, round_event in zip(verdicts, rounds, strict=True)
        if verdict.own_kind == "recovered"
    ]
    assert sum(result.rejected_at) == sum(recovered)


def run_without_drafts(lengths: list[int], reason: str) -> list[Event]:
    events = plain_twin(synthetic_run(2, run_id="r"))
    chosen = cycle(lengths)
    changed: list[Event] = []
    for event in events:
        if isinstance(event, RunStarted):
            event = replace(event, drafters=("a", "b"))
        if isinstance(event, RoundCompleted):
            event = replace(event, speculation_length=next(chosen), length_reason=reason)
            event = replace(event, next_speculation_length=0)
        changed.append(event)
    return changed


@pytest.mark.parametrize(
    ("lengths", "reason", "message"),
    [
        (
            [0, 0],
            "0 stays: no draft beats plain decoding at 46 tokens a second; drafts are at most 0",
            "no draft beats plain decoding at 46 tokens a second",
        ),
        ([0, 0], "", "the length chosen was 0"),
        ([0, 0, 1], "0 stays: no draft beats plain decoding", "no draft beats plain decoding"),
        (
            [4],
            "4 stays: a fifth step would cost more",
            "drafts were asked for in {0} of {0} rounds, and no drafter had a token to offer",
        ),
    ],
)
def test_the_reason_for_a_run_without_drafts_is_kept(
    lengths: list[int], reason: str, message: str
) -> None:
    result = measure_run(run_without_drafts(lengths, reason))
    assert result.idle == message.format(result.stats.num_rounds)
    assert measure_run(synthetic_run(6, run_id="r")).idle == ""
    alone = measure_run(plain_twin(synthetic_run(6, run_id="r")))
    assert alone.idle == "", "a run without drafters needs no reason"


def test_schedules_and_the_number_of_other_requests_are_kept() -> None:
    parts = [Scheduled(name, live, 1, 0, None, None, 1, 1, 1, 1, 0.0, "", "")
             for name, live in (("cosine", 1), ("cosine", 4), ("shared", 2))]  # fmt: skip
    events = [
        replace(event, scheduled=parts[event.round % 3])
        if isinstance(event, RoundCompleted) and event.round
        else event
        for event in synthetic_run(8)
    ]
    result = measure_run(events)
    assert (result.schedule, result.num_others) == ("cosine and shared", 3)
    assert Measured.from_plain(json.loads(json.dumps(result.to_plain()))) == result
    alone = measure_run(synthetic_run(8))
    assert (alone.schedule, alone.num_others) == ("", 0)
    older = {k: v for k, v in alone.to_plain().items() if k not in ("schedule", "num_others")}
    assert Measured.from_plain(older) == alone


def test_figures_survive_json() -> None:
    result = measure_run(synthetic_run(6, run_id="r"))
    assert Measured.from_plain(json.loads(json.dumps(result.to_plain()))) == result


def test_a_run_without_its_end_is_interrupted_and_a_failed_one_an_error() -> None:
    for end in ("cancelled", "cut"):
        with pytest.raises(CellInterruptedError):
            measure_run(synthetic_run(6, end=end))
    with pytest.raises(CellInterruptedError):
        measure_run([])

    with pytest.raises(StudyError, match="failed") as caught:
        measure_run(synthetic_run(6, end="failed"))
    assert not isinstance(caught.value, CellInterruptedError)
