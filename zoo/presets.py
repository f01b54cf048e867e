"""Sizes, mixtures and budgets of the families that can be trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from core.config import checks

__all__ = ["PRESETS", "ModelRecipe", "Preset", "Schedule", "only", "preset"]

Mixture = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class ModelRecipe:
    """One Llama-architecture model with tied embeddings, and what it is trained on."""

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    head_dim: int
    mixture: Mixture  # (domain, weight): how often a training window is of the domain
    budget_share: float  # of the preset's minutes, relative to the other models' shares
    tokens_per_step: int
    learning_rate: float

    @property
    def num_heads(self) -> int:
        return self.hidden_size // self.head_dim


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a training run spends its budget. `late_fraction` and `warmup_fraction` are fractions of
    the time budget, not of the steps."""

    context: int = 256
    late_context: int = 512  # the window length of the last `late_fraction`
    late_fraction: float = 0.25
    warmup_fraction: float = 0.02
    final_rate: float = 0.05  # fraction of the peak learning rate at which the cosine ends
    weight_decay: float = 0.1
    max_gradient_norm: float = 1.0
    checkpoint_seconds: float = 30.0
    evaluations: int = 5  # held-out measurements during training


@dataclass(frozen=True, slots=True)
class Preset:
    """A family: its models in training order, tokenizer size and time budget."""

    name: str
    models: tuple[ModelRecipe, ...]
    minutes: float
    schedule: Schedule = Schedule()
    vocab_size: int = 4096
    tokenizer_bytes: int = 4_000_000  # of each domain, to train the tokenizer on
    max_position_embeddings: int = 1024
    own_corpus_bytes: int = 0  # of Python's library, read if no corpora are given; 0: needs corpora


def preset(name: str) -> Preset:
    """The preset of that name. Raises ConfigError for an unknown name."""
    checks.choice("preset", name, tuple(PRESETS))
    return PRESETS[name]


def only(preset: Preset, names: Sequence[str]) -> Preset:
    """The preset with these models only; with all models if none is named. Raises ConfigError."""
    all_names = tuple(recipe.name for recipe in preset.models)
    for name in names:
        checks.choice("only", name, all_names)
    recipes = tuple(recipe for recipe in preset.models if not names or recipe.name in names)
    return replace(preset, models=recipes)


def _mostly(own: str, **others: float) -> Mixture:
    """The weights `others`, and the rest of 1 for `own`."""
    return ((own, 1.0 - sum(others.values())), *others.items())


_SMOKE_MIX = _mostly("code", docs=0.5)
_CPU_MIX = _mostly("stories", dialogue=0.25, math=0.15, code=0.25)
_ALL_MIX = _mostly("stories", dialogue=0.2, math=0.15, docs=0.15, code=0.25)


def _others(own: str, each: float) -> dict[str, float]:
    return {domain: each for domain, _ in _ALL_MIX if domain != own}


def _smoke_ssm(own: str, other: str) -> ModelRecipe:
    return ModelRecipe(
        name=f"ssm-{own}", num_layers=1, hidden_size=32, intermediate_size=88, head_dim=16,
        mixture=_mostly(own, **{other: 0.2}), budget_share=0.2,
        tokens_per_step=512, learning_rate=1e-2,
    )  # fmt: skip


def _cpu_ssm(own: str, **others: float) -> ModelRecipe:
    return ModelRecipe(
        name=f"ssm-{own}", num_layers=2, hidden_size=128, intermediate_size=352, head_dim=64,
        mixture=_mostly(own, **others), budget_share=0.1,
        tokens_per_step=2048, learning_rate=3e-3,
    )  # fmt: skip


def _deep_ssm(own: str) -> ModelRecipe:
    return replace(_cpu_ssm(own, **_others(own, 0.04)), budget_share=0.08)


def _gpu_ssm(own: str) -> ModelRecipe:
    return ModelRecipe(
        name=f"ssm-{own}", num_layers=2, hidden_size=160, intermediate_size=448, head_dim=32,
        mixture=_mostly(own, **_others(own, 0.04)), budget_share=0.08,
        tokens_per_step=32_768, learning_rate=3e-3,
    )  # fmt: skip


_SMOKE = Preset(
    name="smoke",
    models=(
        ModelRecipe(
            name="llm", num_layers=2, hidden_size=64, intermediate_size=176, head_dim=32,
            mixture=_SMOKE_MIX, budget_share=0.6, tokens_per_step=512, learning_rate=5e-3,
        ),
        _smoke_ssm("code", "docs"),
        _smoke_ssm("docs", "code"),
    ),
    minutes=0.2,
    schedule=Schedule(context=64, late_context=128, checkpoint_seconds=1.0, evaluations=2),
    vocab_size=512,
    tokenizer_bytes=200_000,
    max_position_embeddings=256,
    own_corpus_bytes=600_000,
)  # fmt: skip

# For two CPU cores.
_CPU = Preset(
    name="cpu",
    models=(
        ModelRecipe(
            name="llm", num_layers=8, hidden_size=256, intermediate_size=704, head_dim=64,
            mixture=_CPU_MIX, budget_share=0.7, tokens_per_step=2048, learning_rate=1.5e-3,
        ),
        _cpu_ssm("stories", dialogue=0.05, math=0.03, code=0.05),
        _cpu_ssm("dialogue", math=0.3, stories=0.05, code=0.05),
        _cpu_ssm("code", stories=0.05, dialogue=0.05, math=0.03),
    ),
    minutes=120.0,
)  # fmt: skip

# The family under bundled/. Its LLM's training is meant to start from the weights of an LLM of
# eight layers (`--start`).
_DEEP = Preset(
    name="deep",
    models=(
        ModelRecipe(
            name="llm", num_layers=16, hidden_size=256, intermediate_size=704, head_dim=64,
            mixture=_ALL_MIX, budget_share=0.6, tokens_per_step=4096, learning_rate=1e-3,
        ),
        *(_deep_ssm(domain) for domain, _ in _ALL_MIX),
    ),
    minutes=300.0,
    schedule=Schedule(context=512, late_context=1024, late_fraction=0.15),
)  # fmt: skip

# Deep and narrow: an LLM pass has twelve times as many layers as an SSM step.
_GPU = Preset(
    name="gpu",
    models=(
        ModelRecipe(
            name="llm", num_layers=24, hidden_size=224, intermediate_size=608, head_dim=32,
            mixture=_ALL_MIX, budget_share=0.6, tokens_per_step=32_768, learning_rate=2e-3,
        ),
        *(_gpu_ssm(domain) for domain, _ in _ALL_MIX),
    ),
    minutes=20.0,
    schedule=Schedule(context=512, late_context=1024),
)  # fmt: skip

PRESETS = MappingProxyType({each.name: each for each in (_SMOKE, _CPU, _DEEP, _GPU)})
