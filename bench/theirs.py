"""transformers as a contestant on the same weights: generate, assisted, prompt lookup.

Loads its own copy of the models, so that what it gives owes nothing to our loading.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.clocked import timed
from bench.ours import DecodeCase
from core.models.loading.catalog import bundled_llm


def load_module(folder: Path, dtype: torch.dtype) -> Any:
    """A bundled model as transformers loads it, in eval mode."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    quiet: Any = logging.disable_progress_bar
    quiet()
    module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return module.eval()


class Theirs:
    """The bundled LLM, or another `module` with its tokenizer, under transformers' own generation
    loop."""

    def __init__(self, dtype: str = "float32", module: Any = None) -> None:
        from transformers import AutoTokenizer

        self.dtype = getattr(torch, dtype)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(bundled_llm())
        self.module = load_module(bundled_llm(), self.dtype) if module is None else module

    def tokenize(self, text: str) -> list[int]:
        return [int(token_id) for token_id in self.tokenizer(text)["input_ids"]]

    @torch.inference_mode()
    def generate(
        self,
        prompt_ids: Sequence[int],
        tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        **options: Any,
    ) -> list[int]:
        """The new token ids; `options` go to `generate` as they are."""
        ids: Any = torch.tensor([list(prompt_ids)], device=self.module.device)
        drawn: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            torch.manual_seed(seed)
            drawn = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        found = self.module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **drawn, **options
        )
        return [int(token_id) for token_id in found[0, ids.shape[1] :]]

    def figures(self, case: DecodeCase, **options: Any) -> dict[str, float]:
        """A case's new tokens and its seconds, prefill included."""
        ids = self.tokenize(case.prompt.text)
        found, seconds = timed(
            lambda: self.generate(ids, case.tokens, case.temperature, case.seed, **options)
        )
        return {"tokens": len(found), "seconds": seconds}

    @staticmethod
    def assistant(module: Any, schedule: str, count: int) -> Any:
        """A copy of an SSM of its own: schedule and threshold persist in an assistant."""
        own = copy.deepcopy(module)
        own.generation_config.num_assistant_tokens = count
        own.generation_config.num_assistant_tokens_schedule = schedule
        return own
