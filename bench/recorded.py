"""RecordedLlm: an LLM that chooses a recorded text's tokens, with the cost of the real LLM.

Used for texts that change their domain in the middle, which a small LLM does not write by itself.
Its results are labelled as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bench.prompts import Prompt
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.events import RoundCompleted
from core.models.protocol import Feed, LanguageModel
from core.trees.tree import depths_of

__all__ = ["RecordedLlm", "SplicedText", "splice"]

# A logit; all others are 0, so that its probability is 1 in float32.
LIKELY = 100.0


@dataclass(frozen=True)
class SplicedText:
    """A prompt, and a continuation made of segments; `domains` and `starts` of the segments."""

    name: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    domains: tuple[str, ...]
    starts: tuple[int, ...]


class RecordedLlm:
    """See LanguageModel. Every pass is computed, then its logits are replaced by the recorded
    choice for each position. `text`: the prompt and text of the only open run."""

    def __init__(self, llm: LanguageModel) -> None:
        self._llm = llm
        self.text: Sequence[int] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        logits = self._llm.forward(feeds)
        return [self._recorded_logits(feed, own) for feed, own in zip(feeds, logits, strict=True)]

    def _recorded_logits(self, feed: Feed, logits: torch.Tensor) -> torch.Tensor:
        depths = depths_of(feed.parents)[-len(logits) :]
        behind = [self._llm.length(feed.row) + depth for depth in depths]
        # The pass is computed all the same: its time is that of the real LLM.
        one_hot = torch.zeros_like(logits)
        for row, place in enumerate(behind):
            # A node after the end of the text is never committed: its token does not matter.
            one_hot[row, self.text[place] if place < len(self.text) else 0] = LIKELY
        return one_hot


def splice(
    engine: Engine, prompts: Sequence[Prompt], domains: Sequence[str], tokens: int
) -> SplicedText:
    """The LLM's continuations, of `tokens` tokens each, of one prompt of each domain, joined to one
    text; its prompt is that of the first domain."""
    plain = SpeculationConfig.preset("autoregressive")
    sampling = SamplingParams(tokens, ignore_eos=True)
    parts: list[int] = []
    starts = []
    for domain in domains:
        prompt = next(one for one in prompts if one.domain == domain)
        starts.append(len(parts))
        for event in engine.generate(Request(prompt.text, sampling, plain)):
            if isinstance(event, RoundCompleted):
                parts += event.token_ids
    first = next(one for one in prompts if one.domain == domains[0])
    prompt_ids = tuple(engine.models.tokenizer(first.text)["input_ids"])
    return SplicedText(" > ".join(domains), prompt_ids, tuple(parts), tuple(domains), tuple(starts))
