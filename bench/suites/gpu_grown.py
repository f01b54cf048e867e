"""`gpu-grown-1b`, `gpu-grown-7b`: the contest of `gpu-bundled` on models grown on the device, each
with SSMs as they are and with SSMs grown to a hundredth of the LLM.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.grown.family import Wish, family_of
from bench.settings import Settings
from bench.suites.cpu_grown import InMemory
from bench.suites.gpu import GpuContest
from bench.theirs import Theirs
from core.engine.engine import Engine
from core.models.loading.load import load_models


@dataclass(frozen=True, slots=True)
class Growing:
    """Summons the bundled family grown to so many parameters; `ssm_params` 0: SSMs as they are."""

    params: int
    ssm_params: int

    def __call__(self, dtype: str, device: str) -> tuple[Engine, Theirs]:
        """One LLM in memory, which both sides read: of 7 B two might not fit."""
        family = family_of(Wish(self.params, self.ssm_params, dtype=dtype))
        small = load_models(dtype=dtype, device="cpu")
        made = InMemory(family, small, lambda message: None, device)
        large = made.module(family.llm)
        return Engine(made.ours(large)), Theirs(dtype, large)


SIZES = {"1b": (10**9, "1 B"), "7b": (7 * 10**9, "7 B")}
GPU_GROWN = tuple(
    GpuContest(
        name=f"gpu-grown-{size}{'-ssms' if grown_ssms else ''}",
        about=f"gpu-bundled, the LLM grown to {words}; SSMs "
        + (f"grown to {params // 10**8} M" if grown_ssms else "as they are"),
        defaults=Settings(prompts=4, tokens=64, repeats=3, dtypes=("bfloat16",)),
        summon=Growing(params, params // 100 if grown_ssms else 0),
    )
    for size, (params, words) in SIZES.items()
    for grown_ssms in (False, True)
)
