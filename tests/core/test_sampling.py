"""Processing of logits, residuals, and the probabilities of a Target."""

import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from core.config import SamplingParams
from core.trees.sampling import (
    Target,
    one_hot_residual,
    penalize_repetition,
    process_logits,
    residual,
    to_probabilities,
    unprocessed_probabilities,
)
from tests.laws.pairwise import parametrize_pairs

SETTINGS = parametrize_pairs(
    temperature=(0.3, 1.0, 1.7),
    top_k=(0, 1, 3, 7, 100),
    top_p=(1.0, 0.95, 0.5, 0.01),
    min_p=(0.0, 0.05, 0.5, 1.0),
)
MINUS_INF = float("-inf")


def logits_of(seed: int, rows: int = 3, vocab: int = 11) -> torch.Tensor:
    return 2 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def logits_with_ties(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 3, (3, 11), generator=generator).float()


def warp(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> torch.Tensor:
    scores = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return MinPLogitsWarper(min_p)(None, scores) if min_p else scores


@SETTINGS
def test_processing_equals_transformers_warpers(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for logits in (logits_of(1), logits_with_ties(2), logits_with_ties(3)):
        expected = warp(logits, temperature, top_k, top_p, min_p)
        assert torch.equal(process_logits(logits, sampling), expected)


def test_temperature_comes_before_top_k_and_top_k_before_top_p() -> None:
    logits = torch.tensor([[4.0, 3.9, 3.8, 0.0]])

    def num_kept(**settings: float) -> int:
        return int((process_logits(logits, SamplingParams(**settings)) > MINUS_INF).sum())

    assert num_kept(temperature=1.0, top_p=0.78) == 3
    assert num_kept(temperature=1.0, top_p=0.78, top_k=2) == 2
    assert num_kept(temperature=50.0, top_p=0.78) == 4, "temperature comes first"


@pytest.mark.parametrize("penalty", [1.0, 1.3, 0.5, 40.0])
def test_the_repetition_penalty_equals_transformers(penalty: float) -> None:
    """Ids past the logits' vocabulary are ignored."""
    logits, tokens, paths = logits_of(1, rows=4), [3, 3, 0, 11], [(), (5,), (5, 3), (99, 1)]
    got = penalize_repetition(logits, penalty, tokens, paths)
    processor = RepetitionPenaltyLogitsProcessor(penalty)
    for row, path in enumerate(paths):
        ids = torch.tensor([[*tokens, *path]])
        assert torch.equal(got[row], processor(ids, logits[row : row + 1])[0])


def test_temperature_zero_is_one_hot_at_the_lowest_arg_max() -> None:
    got = process_logits(torch.tensor([[0.5, 2.0, 2.0], [1.0, 0.0, 1.0]]), SamplingParams())
    assert got.tolist() == [[MINUS_INF, 0.0, MINUS_INF], [0.0, MINUS_INF, MINUS_INF]]
    assert to_probabilities(got).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def test_rows_do_not_affect_each_other_or_the_input() -> None:
    logits, sampling = logits_of(7), SamplingParams(temperature=0.6, top_k=4, top_p=0.8)
    before = logits.clone()
    together = process_logits(logits, sampling)
    alone = torch.cat([process_logits(row[None], sampling) for row in logits])
    assert torch.equal(together, alone)
    assert torch.equal(logits, before)


def test_bfloat16_is_processed_in_float32() -> None:
    sampling = SamplingParams(temperature=0.7, top_k=3)
    half = logits_of(8).bfloat16()
    assert process_logits(half, sampling).dtype == torch.float32
    assert torch.equal(process_logits(half, sampling), process_logits(half.float(), sampling))


def test_probabilities_are_float64_and_sum_to_one() -> None:
    p = to_probabilities(process_logits(logits_of(9), SamplingParams(temperature=0.9, top_p=0.7)))
    assert p.dtype == torch.float64
    assert p.sum(dim=-1).tolist() == pytest.approx([1.0] * 3, abs=1e-12)


def test_the_unprocessed_probabilities_are_the_plain_softmax() -> None:
    logits = logits_of(10)
    assert torch.equal(unprocessed_probabilities(logits), logits.softmax(-1))


P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def test_a_residual_is_the_normalized_excess_of_p_over_q() -> None:
    q = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    assert residual(P, q).tolist() == [1.0, 0.0, 0.0]
    q = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    assert residual(P, q).tolist() == pytest.approx([0.8, 0.2, 0.0])
    assert P.tolist() == [0.5, 0.3, 0.2], "p is not changed"


def test_a_residual_of_rounding_alone_is_p() -> None:
    assert residual(P, P.clone()).tolist() == P.tolist()
    assert residual(P, P + torch.tensor([-1e-13, 0.0, 1e-13])).tolist() == P.tolist()


def test_the_residual_of_a_certain_proposal_excludes_its_token() -> None:
    assert one_hot_residual(P, 0).tolist() == pytest.approx([0.0, 0.6, 0.4])
    one_hot = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    assert one_hot_residual(P, 0).tolist() == pytest.approx(residual(P, one_hot).tolist())
    assert one_hot_residual(one_hot, 0).tolist() == one_hot.tolist()


def test_acceptance_and_residual_add_up_to_p() -> None:
    """The identity behind `mss`."""
    generator = torch.Generator().manual_seed(11)
    for _ in range(50):
        p, q = torch.rand(2, 6, generator=generator, dtype=torch.float64) ** 3
        p, q = p / p.sum(), q / q.sum()
        accepted = torch.minimum(p, q)
        total = accepted + (1 - accepted.sum()) * residual(p, q)
        assert (total - p).abs().max() < 1e-12


@pytest.mark.parametrize("vocab", [3, 17, 64, 4096])
def test_ties_go_to_the_lowest_id(vocab: int) -> None:
    logits = torch.zeros(2, vocab)
    logits[1, vocab // 2 :] = 1.0
    assert Target(logits, SamplingParams()).argmax == [0, vocab // 2]


def test_a_target_displays_p_or_at_temperature_zero_the_plain_softmax() -> None:
    logits = logits_of(12)
    drawn = SamplingParams(temperature=0.5, top_k=2)
    assert torch.allclose(
        Target(logits, drawn).display_probabilities, process_logits(logits, drawn).softmax(-1)
    )
    plain = SamplingParams()
    assert torch.allclose(Target(logits, plain).display_probabilities, logits.softmax(-1))
    assert len(Target(logits, drawn)) == 3


def test_a_targets_probabilities_are_copies() -> None:
    target = Target(logits_of(13), SamplingParams(temperature=1.0))
    target.probabilities(1).zero_()
    assert float(target.probabilities(1).sum()) == pytest.approx(1.0)
