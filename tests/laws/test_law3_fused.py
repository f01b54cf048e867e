"""Fused drafts under `match`, on every outcome of a noise with few values: the LLM's text, exactly.

No single SSM's q stands behind a fused token; the trap `fused_with_the_winners_q` shows that `mss`
with the winner's q does not keep the distribution.
"""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from core import SamplingParams, SpeculationConfig
from tests.laws.enumeration import WalkNoise, every_walk
from tests.laws.law3_cases import EXACT, NOTICED, tables
from tests.laws.whole_rounds import EnumeratedCase, total_variation

# Each favours another token, so that the texts differ.
NOISES = ((2.5, 0.0, 0.3), (0.2, 2.5, 0.0), (0.0, 0.4, 2.5))
TOKENS = 3
SAMPLING = SamplingParams(TOKENS, temperature=1.0, seed=0)
FUSED = SpeculationConfig(draft="fused", speculation_length=2, max_tree_nodes=6)


class FewGumbels(WalkNoise):
    """The LLM's noise at a position is one of NOISES, each equally likely."""

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        super().__init__(script)
        self.drawn: dict[int, int] = {}

    def gumbel(self, position: int) -> torch.Tensor:
        if position not in self.drawn:
            values = [(value, 1 / len(NOISES)) for value in range(len(NOISES))]
            self.drawn[position] = self._answer(("gumbel", position), values)
        return torch.tensor(NOISES[self.drawn[position]], dtype=torch.float64)


def joint(of: EnumeratedCase) -> tuple[dict[tuple[int, ...], float], set[int]]:
    """The probability of each text, and the numbers of tokens that a round committed."""
    found: dict[tuple[int, ...], float] = defaultdict(float)
    lengths: set[int] = set()
    for noise, end in every_walk(lambda walk: of.rounds(walk, TOKENS), kind=FewGumbels):
        found[end.tokens] += noise.probability
        lengths |= {*end.lengths}
    assert sum(found.values()) == pytest.approx(1.0, abs=EXACT)
    return found, lengths


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("fields", [{}, {"draft": "fused_credit"}, {"routing": "cosine"}])
def test_a_fused_text_is_plain_decoding_s(fields: dict[str, str], seed: int) -> None:
    llm, *ssms = tables(2, seed)
    plain, _ = joint(EnumeratedCase(llm, [], SpeculationConfig.preset("autoregressive"), SAMPLING))
    routed = {"routed_drafters": 1} if "routing" in fields else {}
    config = replace(FUSED, **fields, **routed)  # type: ignore[arg-type]
    fused, lengths = joint(EnumeratedCase(llm, ssms, config, SAMPLING))
    assert len(plain) > len(NOISES) and {1, 2} <= lengths, "drafts are accepted, and rejected"
    assert total_variation(fused, plain) <= EXACT


def test_control_another_noise_for_the_drafts_than_for_the_llm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The measure sees a law that is broken: the LLM's own token drawn at another position."""
    llm, *ssms = tables(2)
    plain, _ = joint(EnumeratedCase(llm, [], SpeculationConfig.preset("autoregressive"), SAMPLING))
    gumbel = FewGumbels.gumbel
    monkeypatch.setattr(FewGumbels, "gumbel", lambda noise, at: gumbel(noise, at // 2))
    other, _ = joint(EnumeratedCase(llm, ssms, FUSED, SAMPLING))
    assert total_variation(other, plain) > NOTICED
