"""With fused drafts, texts under `match` have exactly plain decoding's distribution."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from core import SamplingParams, SpeculationConfig
from core.config import config as config_module
from core.drafters import fused_drafting, ssm_pool
from core.drafters.fused_drafting import draft_fused
from core.drafters.fused_tree import FusedSsm
from core.drafters.proposers import Frontier, Proposals, draw_independent
from core.engine import round as round_module
from core.errors import ConfigError
from core.trees.combine import CombinedTree, combine
from core.trees.draft import Draft
from core.trees.sampling import process_logits, to_probabilities
from tests.laws.enumeration import WalkNoise, every_walk
from tests.laws.law3_cases import EXACT, NOTICED, deviation, tables
from tests.laws.whole_rounds import EnumeratedCase, total_variation

# Each noise favours a different token: the texts differ.
NOISES = ((2.5, 0.0, 0.3), (0.2, 2.5, 0.0), (0.0, 0.4, 2.5))
TOKENS = 3
SAMPLING = SamplingParams(TOKENS, temperature=1.0, seed=0)
FUSED = SpeculationConfig(draft="fused", speculation_length=2, max_tree_nodes=6)


class FewGumbels(WalkNoise):
    """Noise that is one of NOISES at each position, all equally likely."""

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        super().__init__(script)
        self.drawn: dict[int, int] = {}

    def gumbel(self, position: int) -> torch.Tensor:
        if position not in self.drawn:
            values = [(value, 1 / len(NOISES)) for value in range(len(NOISES))]
            self.drawn[position] = self._answer(("gumbel", position), values)
        return torch.tensor(NOISES[self.drawn[position]], dtype=torch.float64)


def joint(enumerated: EnumeratedCase) -> tuple[dict[tuple[int, ...], float], set[int]]:
    results: dict[tuple[int, ...], float] = defaultdict(float)
    lengths: set[int] = set()
    for noise, end in every_walk(lambda walk: enumerated.rounds(walk, TOKENS), kind=FewGumbels):
        results[end.tokens] += noise.probability
        lengths |= {*end.lengths}
    assert sum(results.values()) == pytest.approx(1.0, abs=EXACT)
    return results, lengths


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("fields", [{}, {"draft": "fused_credit"}, {"routing": "cosine"}])
def test_a_fused_text_is_that_of_plain_decoding(fields: dict[str, str], seed: int) -> None:
    llm, *ssms = tables(2, seed)
    plain, _ = joint(EnumeratedCase(llm, [], SpeculationConfig.preset("autoregressive"), SAMPLING))
    routed = {"routed_drafters": 1} if "routing" in fields else {}
    config = replace(FUSED, **fields, **routed)  # type: ignore[arg-type]
    fused, lengths = joint(EnumeratedCase(llm, ssms, config, SAMPLING))
    assert len(plain) > len(NOISES) and {1, 2} <= lengths, "drafts are accepted and rejected"
    assert total_variation(fused, plain) <= EXACT


def test_control_another_noise_for_the_llm_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm, *ssms = tables(2)
    plain, _ = joint(EnumeratedCase(llm, [], SpeculationConfig.preset("autoregressive"), SAMPLING))
    gumbel = FewGumbels.gumbel
    monkeypatch.setattr(FewGumbels, "gumbel", lambda noise, at: gumbel(noise, at // 2))
    other, _ = joint(EnumeratedCase(llm, ssms, FUSED, SAMPLING))
    assert total_variation(other, plain) > NOTICED


def draw_proposals(frontiers: Sequence[Frontier], widths: Sequence[int]) -> list[Proposals]:
    proposals = []
    for one, width in zip(frontiers, widths, strict=True):
        assert isinstance(one.noise, WalkNoise)
        num_keys = len(one.noise.asked)  # grows with each key, so no two keys are equal
        keys = [("fused", num_keys, row) for row in range(len(one.logits))]
        proposals += draw_independent([replace(one, keys=keys)], [width])
    return proposals


@pytest.mark.parametrize("rule", ["mss", "traversal"])
def test_control_drawn_fused_tokens_with_the_winners_q_are_noticed(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fused token's distribution is no single SSM's q."""
    draft_of, trunks = FusedSsm.draft, []

    def with_q(member: FusedSsm, kept: list[int]) -> Draft:
        results = draft_of(member, kept)
        assert results.logits is not None
        q = to_probabilities(process_logits(results.logits, member.request.sequence.sampling))
        rows = [results.rows[parent] for parent in results.parents]
        return replace(results, q=q, qs=q[rows, results.token_ids].tolist())

    def note_trunks(*args: object) -> list[list[Draft]]:
        drafts = draft_fused(*args)  # type: ignore[arg-type]
        trunks.extend(drafts)
        return drafts

    def winner_of(drafts: Iterable[Draft]) -> int:
        # The winner's draft has one node: the fused token is the winner's own token.
        return next(draft.origins[0] for draft in drafts if len(draft) == 1)

    def winners_alone(name: str, drafts: Mapping[int, Draft], *_: object) -> CombinedTree:
        winner = winner_of(drafts.values())
        return combine("union", {winner: drafts[winner]})

    monkeypatch.setattr(fused_drafting, "proposer", lambda kind, *, greedy: draw_proposals)
    monkeypatch.setattr(FusedSsm, "draft", with_q)
    monkeypatch.setattr(ssm_pool, "draft_fused", note_trunks)
    monkeypatch.setattr(round_module, "combine", winners_alone)
    config = replace(FUSED, speculation_length=1, verify=rule)
    with pytest.raises(ConfigError, match=f"verify is '{rule}': with draft=fused"):
        config.resolve(1.0)
    monkeypatch.setattr(config_module, "lossless_rules", lambda *_: (rule,))
    results = {}
    for count in (1, 2):
        llm, *ssms = tables(count)
        results[count] = deviation(EnumeratedCase(llm, ssms, config), rounds=1, count=2)
    assert {winner_of(drafts) for drafts in trunks if len(drafts) == 2} == {0, 1}
    assert results[1] <= EXACT and results[2] > NOTICED
