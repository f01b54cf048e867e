"""Stacked SSMs draft what each SSM drafts alone."""

from dataclasses import replace
from typing import Any

import pytest

from core import SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.pooled_drafting import PooledRequest
from core.drafters.ssm_pool import SsmPool
from core.models import fastest
from core.models.stacking import common_stack, stack_alike
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from tests.core.cuda.test_draft_graph import NAMES, open_all
from tests.core.models.test_stack import small
from tests.fakes import VOCAB, sequence_of

CASES = [
    ("topk", "greedy", "union"),
    ("best_first", "greedy", "vote_tree"),
    ("coupled", "match", "union"),
    ("sampled", "mss", "union"),
    ("sampled_iid", "traversal", "union"),
    ("topk", "greedy", "log_pool"),
]


def pools() -> tuple[SsmPool, SsmPool]:
    models = [small("llama", seed) for seed in range(3)]
    others = [small("llama", seed) for seed in range(3)]
    stack_alike(others)
    assert common_stack(others) and not common_stack(models)
    apart, together = dict(zip(NAMES, models, strict=True)), dict(zip(NAMES, others, strict=True))
    return SsmPool({**apart}, VOCAB), SsmPool({**together}, VOCAB)


def sequences(draft: str, verify: str, combine: str) -> list[TokenSequence]:
    config = SpeculationConfig(drafters=NAMES, draft=draft, verify=verify, combine=combine)
    sampling = SamplingParams(30, temperature=0.0 if verify == "greedy" else 0.9, seed=3)
    texts = ((1, 2, 3), (4, 5, 6, 7, 8, 9))
    several = [
        sequence_of(text, config, sampling, SeededNoise(3, VOCAB), context_length=64)
        for text in texts
    ]
    several[1].run_id = "another"
    return several


def drafts_of(
    pool: SsmPool, several: list[TokenSequence], kind: str, shape: tuple[int, ...]
) -> Any:
    if several[0].speculation.combine == "log_pool":
        by_sequence = pool.draft_together(
            [
                PooledRequest(tuple(_request(s, i, kind, shape) for i in range(3)), (1.0, 2.0, 0.5))
                for s in several
            ]
        )
        return {name: [drafts[i] for drafts in by_sequence] for i, name in enumerate(NAMES)}
    asked = {name: [_request(s, i, kind, shape) for s in several] for i, name in enumerate(NAMES)}
    return pool.draft(asked)


def _request(
    sequence: TokenSequence, index: int, kind: str, shape: tuple[int, ...]
) -> DraftRequest:
    return DraftRequest(sequence, index, kind, shape, 9, NAMES[index])


def values_of(draft: Draft) -> tuple[object, ...]:
    return draft.token_ids, draft.parents, draft.ranks, draft.rows, draft.passes, draft.passes_ahead


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("draft", "verify", "combine"), CASES)
def test_stacked_ssms_draft_what_each_drafts_alone(draft, verify, combine, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(fastest, "find_spec", lambda _: None)
    results: list[list[Any]] = []
    for pool in pools():
        results.append([])
        several = sequences(draft, verify, combine)
        open_all(pool, several)
        for committed in ((4,), (5, 6), (7,)):
            drafts = drafts_of(pool, several, draft, (2, 2, 1))
            results[-1] += [values_of(one) for name in NAMES for one in drafts[name]]
            for i, sequence in enumerate(several):
                sequence.tokens.extend(committed)
                for name in NAMES:
                    pool.ssms[name].commit(sequence, drafts[name][i], committed)
                    results[-1].append(round(pool.ssms[name].temperature(sequence), 5))
    assert results[0] == results[1]
    assert any(len(one[0]) > 2 for one in results[0] if isinstance(one, tuple))


@pytest.mark.parametrize("combine", ["union", "log_pool"])
def test_time_of_shared_passes_is_counted_once(
    combine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Passes run in torch: a compiled pass of such a small model takes less time than the
    # bookkeeping.
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
    _, pool = pools()
    ratios = []
    for number in range(5):  # repeated: other processes may run between two spans
        several = sequences("topk", "greedy", combine)[:1]
        several[0].run_id = f"run {number}"
        open_all(pool, [several[0]])
        drafts = drafts_of(pool, several, "topk", (1, 1, 1, 1))
        spans = [timings for name in NAMES for timings in drafts[name][0].timings]
        total_s = max(t.end for t in spans) - min(t.start for t in spans)
        ratios.append(sum(t.seconds for t in spans) / total_s)
        assert ratios[-1] < 1.001 and min(t.share for t in spans) < 0.7
    assert max(ratios) > 0.7


def test_an_ssm_that_fails_does_not_end_the_others_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Passes run in torch: a compiled draft has no separate pass that could fail.
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
    _, pool = pools()
    (sequence, _) = sequences("topk", "greedy", "union")
    open_all(pool, [sequence])
    two = pool.ssms["two"].model

    def full(_: object) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(two, "forward", full)
    stack = common_stack([one.model for one in pool.ssms.values()])
    monkeypatch.setattr(type(stack), "fits", lambda *_: False)
    drafts = drafts_of(pool, [sequence], "topk", (1, 1))
    assert isinstance(drafts["two"], ValueError)
    assert [len(drafts[name][0]) for name in ("one", "three")] == [2, 2]


def test_while_one_ssm_does_not_draft_the_others_share_no_pass() -> None:
    apart, together = pools()
    results = []
    for pool in (apart, together):
        (sequence, _) = sequences("topk", "greedy", "union")
        open_all(pool, [sequence])
        asked = {name: [_request(sequence, i, "topk", (2, 1))] for i, name in enumerate(NAMES[:2])}
        results.append([values_of(drafts[0]) for drafts in pool.draft(asked).values()])  # type: ignore[index]
        third = pool.ssms["three"].model
        assert third.pending(0) == 0 and third.length(0) == 2
    assert results[0] == results[1]


def test_an_ssm_whose_context_ends_stops_alone() -> None:
    models = [small("llama", seed) for seed in range(3)]
    stack_alike(models)
    models[1]._info = replace(models[1].info, context_length=5)
    pool = SsmPool(dict(zip(NAMES, models, strict=True)), VOCAB)
    (sequence, _) = sequences("topk", "greedy", "union")
    open_all(pool, [sequence])
    drafts = drafts_of(pool, [sequence], "topk", (1, 1, 1, 1))
    assert [len(drafts[name][0]) for name in NAMES] == [4, 3, 4]
