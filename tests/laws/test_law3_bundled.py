"""Law 3 on the bundled models: a round's first two tokens are distributed as in plain sampling."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig
from core.trees.sampling import process_logits, to_probabilities
from tests.laws.cached import CachedModel
from tests.laws.chi_square import pooled_chi_square, survival
from tests.laws.runs import bundled_engine, prompts
from tests.laws.traps import duplicates_merged

pytestmark = pytest.mark.usefixtures("bundled")
FALSE_ALARM = 1e-6
RULES = ("mss", "traversal")
PREFIXES = prompts(8)
SAMPLINGS = (
    SamplingParams(3, temperature=1.0), SamplingParams(3, temperature=1.0, top_k=4),
    SamplingParams(3, temperature=0.7, top_p=0.9), SamplingParams(3, temperature=1.3, top_k=30),
)  # fmt: skip
DRAFTS = (
    SpeculationConfig(
        draft="sampled", expansion=(2, 2), speculation_length=2, max_tree_nodes="uncut"
    ),
    SpeculationConfig(
        draft="sampled_iid", expansion=(3, 1), speculation_length=2, max_tree_nodes="uncut"
    ),
    SpeculationConfig(
        drafters=("ngram", "ssm-code", "ssm-stories"), draft="sampled", expansion=(2, 1),
        speculation_length=2, max_tree_nodes="uncut",
    ),
)  # fmt: skip


class Rounds:
    def __init__(self, prompt: str) -> None:
        models = bundled_engine().models
        self.prefix = tuple(models.tokenizer(prompt)["input_ids"])
        self.prompt = prompt
        self.llm = CachedModel(models.llm, self.prefix)
        self.ssms = {name: CachedModel(ssm, self.prefix) for name, ssm in models.ssms.items()}
        self.engine = Engine(LoadedModels(self.llm, self.ssms, models.tokenizer, models.eos_ids))

    def forget(self) -> None:
        for model in (self.llm, *self.ssms.values()):
            model.forget()

    def pair(
        self, seed: int, sampling: SamplingParams, config: SpeculationConfig
    ) -> tuple[int, ...]:
        """If the round commits only one token, plain sampling adds the second."""
        request = Request(self.prompt, sampling_with(sampling, seed), config)
        sequence = self.engine.prepare(request)
        live = self.engine.admit(sequence)
        for _ in self.engine.prefill(live):
            pass
        for _ in self.engine.round([live]):
            pass
        self.engine.release(live)
        tokens = tuple(sequence.tokens[len(self.prefix) :][:2])
        if len(tokens) == 1 and not sequence.finish_reason:
            p = self.target(sampling, tokens)
            tokens += (sequence.noise.choose(p, ("plain", tokens)),)
        return tokens

    def target(self, sampling: SamplingParams, tokens: tuple[int, ...]) -> torch.Tensor:
        logits = self.llm.logits((*self.prefix, *tokens))
        return to_probabilities(process_logits(logits[None], sampling))[0]

    def joint(self, sampling: SamplingParams, smallest: float) -> dict[tuple[int, ...], float]:
        """Plain sampling's probabilities that are at least `smallest`."""
        cells: dict[tuple[int, ...], float] = {}
        first = self.target(sampling, ())
        for one in (first >= smallest).nonzero().flatten().tolist():
            if one in bundled_engine().models.eos_ids:
                cells[(one,)] = float(first[one])
                continue
            second = first[one] * self.target(sampling, (one,))
            for other in (second >= smallest).nonzero().flatten().tolist():
                cells[one, other] = float(second[other])
        return cells


def sampling_with(sampling: SamplingParams, seed: int) -> SamplingParams:
    return SamplingParams(
        sampling.max_new_tokens, sampling.temperature, sampling.top_k, sampling.top_p, seed
    )


@contextmanager
def rounds_from(prompt: str) -> Iterator[Rounds]:
    rounds = Rounds(prompt)
    try:
        yield rounds
    finally:
        rounds.forget()


def p_value(
    rounds: Rounds, sampling: SamplingParams, config: SpeculationConfig, count: int
) -> float:
    start = time.perf_counter()
    counts = Counter(rounds.pair(seed, sampling, config) for seed in range(count))
    p, cells = pooled_chi_square(counts, rounds.joint(sampling, 5 / count))
    print(f"{count} rounds, {cells} cells, p = {p:.3g}, {time.perf_counter() - start:.1f} s")
    assert cells >= 10
    return p


@pytest.mark.nightly
@pytest.mark.parametrize(("draft", "rule"), [(0, "mss"), (1, "mss"), (2, "mss"), (2, "traversal")])
def test_a_round_is_plain_sampling(draft: int, rule: str) -> None:
    with rounds_from(PREFIXES[3 * draft]) as rounds:
        config = replace(DRAFTS[draft], verify=rule)
        assert p_value(rounds, SAMPLINGS[1], config, 400) > FALSE_ALARM


@pytest.mark.nightly
@pytest.mark.parametrize("rule", RULES)
def test_control_duplicates_tried_once_are_noticed(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    duplicates_merged(monkeypatch)
    with rounds_from(PREFIXES[0]) as rounds:
        config = replace(DRAFTS[1], verify=rule)
        assert p_value(rounds, SAMPLINGS[1], config, 400) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("prefix", range(len(PREFIXES)))
def test_twenty_thousand_rounds_are_plain_sampling(prefix: int, rule: str) -> None:
    sampling, draft = SAMPLINGS[prefix % len(SAMPLINGS)], DRAFTS[prefix % len(DRAFTS)]
    with rounds_from(PREFIXES[prefix]) as rounds:
        assert p_value(rounds, sampling, replace(draft, verify=rule), 20_000) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("prefix", range(len(PREFIXES)))
def test_control_duplicates_are_noticed(prefix: int, rule: str, monkeypatch: pytest.MonkeyPatch):
    config = replace(DRAFTS[1], expansion=(10, 1), verify=rule)
    duplicates_merged(monkeypatch)
    with rounds_from(PREFIXES[prefix]) as rounds:
        # If the next tokens are nearly certain, merging duplicates changes little.
        counts = (5_000, 20_000)
        assert any(p_value(rounds, SAMPLINGS[1], config, n) < FALSE_ALARM for n in counts)


def test_survival_agrees_with_published_tables() -> None:
    assert survival(3.841459, 1) == pytest.approx(0.05, rel=1e-5)
    assert survival(18.307038, 10) == pytest.approx(0.05, rel=1e-5)
    assert survival(29.588298, 10) == pytest.approx(0.001, rel=1e-5)


def test_pooling_keeps_every_count() -> None:
    probabilities = {"a": 0.6, "b": 0.3, "c": 0.06, "d": 0.04}
    fair = Counter({"a": 60, "b": 30, "c": 6, "d": 4})
    assert pooled_chi_square(fair, probabilities) == (pytest.approx(1.0), 3)
    p, _ = pooled_chi_square(Counter({"a": 30, "b": 60, "c": 6, "d": 4}), probabilities)
    assert p < 1e-6
