"""A family to grow: which models become how large, decided before any weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.grown.module import shape_of
from bench.grown.shape import Plan, plan_growth
from core.config.checks import choice, integer
from core.errors import ConfigError, ModelLoadError
from core.models.loading.catalog import BUNDLED, is_folder, locate, snapshot
from core.models.loading.placing import DTYPES, expand_bundled, resolve_llm

# SpecInfer's pair is 7 B with 68 M: a smaller SSM would cost less than real ones do.
LEAST_SHARE = 100
MOST_PARAMS = 10**12


@dataclass(frozen=True, slots=True)
class Wish:
    """Names as in `load_models`. `ssm_params` None: a hundredth of `params`; 0: SSMs as they are.
    SSMs that have as many already stay as they are too."""

    params: int
    ssm_params: int | None = None
    llm: str = BUNDLED
    ssms: tuple[str, ...] = (BUNDLED,)
    dtype: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        integer("params", self.params, 1, MOST_PARAMS)
        least = self.params // LEAST_SHARE
        if self.ssm_params and not least <= self.ssm_params < self.params:
            raise ConfigError.of(
                "ssm-params",
                self.ssm_params,
                f"0 (SSMs as they are) or from {least}, 1/{LEAST_SHARE} of params, to below params",
            )
        integer("ssm-params", self.of_ssms, 0, MOST_PARAMS)
        choice("dtype", self.dtype, tuple(DTYPES))
        integer("seed", self.seed, 0, 2**63 - 1)

    @property
    def of_ssms(self) -> int:
        """How many parameters an SSM is to have; 0: as many as it has."""
        return self.params // LEAST_SHARE if self.ssm_params is None else self.ssm_params


@dataclass(frozen=True, slots=True)
class Member:
    """A model's folder, what the model is called, and what becomes of it; without a plan it stays
    as it is."""

    folder: Path
    source: str
    plan: Plan | None
    wished: int = 0

    @property
    def name(self) -> str:
        """Its own name, or one that says `grown`."""
        return f"{self.source}-grown-{short(self.wished)}" if self.plan else self.source


@dataclass(frozen=True, slots=True)
class Family:
    """What is asked for, as it is to be made. Members have names of their own."""

    wish: Wish
    llm: Member
    ssms: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """The LLM first."""
        return self.llm, *self.ssms


def family_of(wish: Wish) -> Family:
    """Reads configurations alone. Raises ConfigError, ModelLoadError, UnsupportedModelError."""
    llm = _member(resolve_llm(wish.llm), wish.params, "params")
    every = [name for ssm in wish.ssms for name in expand_bundled(ssm)]
    ssms = tuple(_member(name, wish.of_ssms, "ssm-params", stay=True) for name in every)
    names = [member.name for member in (llm, *ssms)]
    if len(set(names)) < len(names):
        raise ConfigError.of("ssm", " ".join(names), "models with names of their own")
    return Family(wish, llm, ssms)


def _member(name: str, params: int, field: str, stay: bool = False) -> Member:
    folder = Path(locate(name).name) if is_folder(name) else snapshot(name)
    if folder is None:
        raise ModelLoadError(
            f"model is {name!r}: bundled, a folder or a hub id in the local cache is allowed"
        )
    source = folder.resolve().name if is_folder(name) else name.rpartition("/")[2]
    shape = shape_of(_without_weights(folder))
    if stay and params <= shape.parameters:
        return Member(folder, source, None)
    return Member(folder, source, plan_growth(shape, params, field), params)


def _without_weights(folder: Path) -> Any:
    """The module that a folder's configuration describes, on the device `meta`."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind: Any = AutoModelForCausalLM
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            return kind.from_config(config)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelLoadError(
            f"model is {str(folder)!r}: it cannot be read ({reason}); the folder of a decoder-only "
            "model is allowed"
        ) from error


def short(params: int) -> str:
    """500M, 7B: how a size is named in folders."""
    return f"{params / 1e9:g}B" if params >= 10**9 else f"{params / 1e6:g}M"
