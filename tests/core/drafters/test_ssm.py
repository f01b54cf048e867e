"""SsmDrafter over tables of probabilities."""

import pytest
import torch

from core.config import SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.ssm import SsmDrafter
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from core.trees.sampling import process_logits, to_probabilities
from core.trees.tree import ROOT
from tests.fakes import TableModel, random_table, sequence_of
from tests.laws.trees import paths

VOCAB = 6
PROMPT = (0, 3, 1)


def drafter_of(
    seed: int = 1, vocab: int = VOCAB, context: int = 64
) -> tuple[SsmDrafter, TableModel]:
    model = TableModel("ssm", vocab, random_table(vocab, seed), context)
    return SsmDrafter("ssm", model, VOCAB), model


def draft_request(
    kind: str = "topk", shape: tuple[int, ...] = (2, 1), temperature: float = 0.0, **fields: object
) -> DraftRequest:
    config = SpeculationConfig(draft=kind if kind != "coupled" else "auto", expansion=shape)
    sampling = SamplingParams(50, temperature=temperature, seed=3)
    noise = SeededNoise(3, VOCAB)
    sequence = sequence_of(PROMPT, config, sampling, noise, **fields)
    return DraftRequest(sequence, 0, kind, shape, 99)


def draft_of(drafter: SsmDrafter, one: DraftRequest) -> Draft:
    drafter.open(one.sequence)
    return drafter.draft([one])[0]


def best(model: TableModel, context: tuple[int, ...], count: int) -> list[int]:
    return model.logits(context).topk(count).indices.tolist()


def test_topk_children_are_the_most_probable_of_each_context() -> None:
    drafter, model = drafter_of()
    draft = draft_of(drafter, draft_request(shape=(2, 3)))
    assert len(draft) == 2 + 6
    for node, path in [(ROOT, ()), *enumerate(paths(draft.token_ids, draft.parents))]:
        children = [draft.token_ids[i] for i in range(8) if draft.parents[i] == node]
        if len(path) < 2:
            assert children == best(model, (*PROMPT, *path), len(children))
            expected = model.logits((*PROMPT, *path)).softmax(-1)
            scores = [draft.scores[i] for i in range(8) if draft.parents[i] == node]
            assert scores == pytest.approx(expected[children].tolist(), rel=1e-5)
    assert draft.qs == [1.0] * 8
    assert draft.q is None


def test_a_draft_takes_one_pass_a_step() -> None:
    drafter, model = drafter_of()
    one = draft_request(shape=(2, 2, 1))
    drafter.open(one.sequence)
    assert model.passes == 1, "the prefill, without the root"
    drafter.draft([one])
    assert model.passes == 1 + 3, "the root, then a pass for each step but the last"


def test_sequences_are_drafted_in_lock_step() -> None:
    drafter, model = drafter_of()
    one, two = draft_request(shape=(2, 1)), draft_request(shape=(1, 1, 1))
    two.sequence.run_id = "other"
    two.sequence.tokens[:] = [2, 2, 5, 0, 4]
    for each in (one, two):
        drafter.open(each.sequence)
    before = model.passes
    together = drafter.draft([one, two])
    assert model.passes - before == 3
    for each, draft in zip((one, two), together, strict=True):
        alone, _ = drafter_of()
        same = draft_of(alone, each)
        assert (draft.token_ids, draft.parents) == (same.token_ids, same.parents)


@pytest.mark.parametrize("kind", ["sampled", "sampled_iid"])
def test_drawn_children_have_the_q_that_they_were_drawn_from(kind: str) -> None:
    drafter, model = drafter_of()
    one = draft_request(kind, (3, 1), temperature=0.7)
    draft = draft_of(drafter, one)
    assert draft.q is not None and draft.q.dtype == torch.float64
    for node, path in enumerate(paths(draft.token_ids, draft.parents)):
        logits = model.logits((*PROMPT, *path[:-1]))[None]
        q = to_probabilities(process_logits(logits, one.sequence.sampling))[0]
        assert torch.equal(draft.q[draft.rows[draft.parents[node]]], q)
        assert draft.scores[node] == pytest.approx(float(logits[0].softmax(-1)[path[-1]]), rel=1e-5)
    if kind == "sampled":
        assert len(set(draft.token_ids[:3])) == 3
        remaining = 1.0
        for node in range(3):
            mass = float(draft.q[0, draft.token_ids[node]])
            assert draft.qs[node] == pytest.approx(mass / remaining)
            remaining -= mass
    else:
        assert draft.qs[0] == pytest.approx(float(draft.q[0, draft.token_ids[0]]))


def test_coupled_children_are_the_best_under_the_targets_noise() -> None:
    drafter, model = drafter_of()
    one = draft_request("coupled", (2, 2), temperature=0.9)
    draft = draft_of(drafter, one)
    noise = one.sequence.noise
    for node, path in [(ROOT, ()), *enumerate(paths(draft.token_ids, draft.parents))]:
        if len(path) == 2:
            continue
        position = len(PROMPT) - 1 + len(path) + 1
        log_q = (model.logits((*PROMPT, *path)) / 0.9).double().log_softmax(-1)
        expected = (log_q + noise.gumbel(position)[:VOCAB]).topk(2).indices.tolist()
        children = [t for t, at in zip(draft.token_ids, draft.parents, strict=True) if at == node]
        assert children == expected


def test_top_k_leaves_no_more_children_than_tokens() -> None:
    drafter, _ = drafter_of()
    sampling = SamplingParams(9, temperature=1.0, top_k=2, seed=1)
    config = SpeculationConfig(draft="sampled")
    sequence = sequence_of(PROMPT, config, sampling, SeededNoise(1, VOCAB))
    assert len(draft_of(drafter, DraftRequest(sequence, 0, "sampled", (4,), 99))) == 2
    drafter, _ = drafter_of()
    assert len(draft_of(drafter, DraftRequest(sequence, 0, "coupled", (4,), 99))) == 2


def test_an_end_of_text_has_no_children() -> None:
    drafter, model = drafter_of()
    first, second = best(model, PROMPT, 2)
    draft = draft_of(drafter, draft_request(shape=(2, 1, 1), eos_ids=frozenset({first})))
    parents = [draft.token_ids[p] for p in draft.parents if p != ROOT]
    assert draft.token_ids[:2] == [first, second]
    assert len(draft) == 2 + 2 and first not in parents


def test_nothing_is_fed_after_every_path_has_ended() -> None:
    drafter, model = drafter_of()
    every = frozenset(range(VOCAB))
    draft = draft_of(drafter, draft_request(shape=(2, 2, 2), eos_ids=every))
    assert (len(draft), model.passes) == (2, 2)


def run_round(drafter: SsmDrafter, sequence: TokenSequence, committed: tuple[int, ...]) -> Draft:
    one = DraftRequest(sequence, 0, "topk", (2, 1, 1), 99)
    (draft,) = drafter.draft([one])
    sequence.tokens += committed
    drafter.commit(sequence, draft, committed)
    return draft


@pytest.mark.parametrize("accepted", range(4))
def test_the_accepted_part_of_a_draft_stays_in_the_cache(accepted: int) -> None:
    drafter, model = drafter_of()
    one = draft_request(shape=(2, 1, 1))
    draft = draft_of(drafter, one)
    second = [1, 3, 5]  # the path of the second-best first token
    path = tuple(draft.token_ids[node] for node in second[:accepted])
    own = next(t for t in range(VOCAB) if t not in draft.token_ids)
    one.sequence.tokens += (*path, own)
    drafter.commit(one.sequence, draft, (*path, own))
    (row,) = model.open_rows
    # The last step's nodes are not fed.
    assert model.tokens(row) == (*PROMPT, *path[:2])
    again = run_round(drafter, one.sequence, (own,))
    fresh, _ = drafter_of()
    other = sequence_of(one.sequence.tokens[:-1], SpeculationConfig())
    expected = draft_of(fresh, DraftRequest(other, 0, "topk", (2, 1, 1), 99))
    assert again.token_ids == expected.token_ids


def test_tokens_of_other_drafters_are_caught_up_in_one_pass() -> None:
    drafter, model = drafter_of()
    one = draft_request(shape=(1,))
    draft = draft_of(drafter, one)
    one.sequence.tokens += [5, 5, 2, 4]
    drafter.commit(one.sequence, draft, (5, 5, 2, 4))
    before = model.passes
    drafter.draft([one])
    assert model.passes - before == 1
    (row,) = model.open_rows
    assert model.tokens(row) == tuple(one.sequence.tokens)


def test_the_cache_of_a_drafter_that_did_not_draft_is_unchanged() -> None:
    drafter, model = drafter_of()
    one = draft_request()
    drafter.open(one.sequence)
    drafter.commit(one.sequence, None, (1, 2))
    (row,) = model.open_rows
    assert model.tokens(row) == PROMPT[:-1]


def test_closing_frees_the_row_and_may_be_repeated() -> None:
    drafter, model = drafter_of()
    one = draft_request()
    draft_of(drafter, one)
    drafter.close(one.sequence)
    drafter.close(one.sequence)
    assert model.open_rows == ()
    assert drafter.temperature(one.sequence) == 1.0


def test_a_smaller_vocabulary_is_padded_and_a_larger_one_cut() -> None:
    small, _ = drafter_of(vocab=4)
    draft = draft_of(small, draft_request(shape=(6,)))
    assert sorted(draft.token_ids) == [0, 1, 2, 3]
    assert draft.logits is not None and draft.logits.shape[-1] == VOCAB
    large, _ = drafter_of(vocab=9)
    assert max(draft_of(large, draft_request(shape=(6,))).token_ids) < VOCAB


@pytest.mark.parametrize(("context", "steps"), [(2, 0), (3, 1), (4, 2), (5, 3), (9, 3)])
def test_a_short_context_shortens_the_draft(context: int, steps: int) -> None:
    drafter, _ = drafter_of(context=context)
    draft = draft_of(drafter, draft_request(shape=(1, 1, 1)))
    assert len(draft) == steps


def test_calibration_is_fresh_for_each_run_unless_carried_over() -> None:
    for carry_over in (False, True):
        drafter, model = drafter_of()
        for run in range(2):
            config = SpeculationConfig(carry_over=carry_over)
            sequence = sequence_of(PROMPT, config)
            drafter.open(sequence)
            if run == 0:
                assert drafter.temperature(sequence) == 1.0
                for _ in range(6):
                    worst = int(model.logits(tuple(sequence.tokens)).argmin())
                    run_round(drafter, sequence, (worst,))
                learnt = drafter.temperature(sequence)
                assert learnt > 1.0, "improbable tokens flatten the drafter's scores"
            else:
                assert drafter.temperature(sequence) == (learnt if carry_over else 1.0)
            drafter.close(sequence)


def test_scores_follow_the_calibration_and_q_does_not() -> None:
    one = draft_request("sampled_iid", (1,), temperature=1.0)
    before = draft_of(drafter_of()[0], one)
    drafter, _ = drafter_of()
    drafter.open(one.sequence)
    drafter._states[one.sequence.run_id].calibration.temperature = 3.0
    (after,) = drafter.draft([one])
    assert after.token_ids == before.token_ids
    assert after.qs == before.qs
    assert after.scores != before.scores
