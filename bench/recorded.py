"""RecordedLlm: an LLM that chooses a recorded text's tokens, with the cost of the real LLM.

Used for texts that change their domain.
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

# The recorded token's logit; all other logits are 0. The token's probability is 1 in float32.
LIKELY = 100.0


@dataclass(frozen=True)
class SplicedText:
    """`domains`: the domain of each segment; `starts`: the index in `token_ids` at which each
    segment starts."""

    name: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    domains: tuple[str, ...]
    starts: tuple[int, ...]


class RecordedLlm:
    """A LanguageModel that computes each pass, then replaces its logits. `text`: the token ids of
    the prompt and of the recorded text. Only one run may be open."""

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
        # `text[next_positions[i]]` is the token after the tree node of `logits[i]`.
        next_positions = [self._llm.length(feed.row) + depth for depth in depths]
        one_hot = torch.zeros_like(logits)
        for row, position in enumerate(next_positions):
            # A tree node after the end of the text is never committed.
            one_hot[row, self.text[position] if position < len(self.text) else 0] = LIKELY
        return one_hot


def splice(
    engine: Engine, prompts: Sequence[Prompt], domains: Sequence[str], tokens: int
) -> SplicedText:
    """The LLM continues the first prompt of each domain by `tokens` tokens. The continuations are
    joined to one text, after the first domain's prompt."""
    plain = SpeculationConfig.preset("autoregressive")
    sampling = SamplingParams(tokens, ignore_eos=True)
    spliced = [next(one for one in prompts if one.domain == domain) for domain in domains]
    ids: list[int] = []
    starts = []
    for prompt in spliced:
        starts.append(len(ids))
        for event in engine.generate(Request(prompt.text, sampling, plain)):
            if isinstance(event, RoundCompleted):
                ids += event.token_ids
    prompt_ids = tuple(engine.models.tokenizer(spliced[0].text)["input_ids"])
    return SplicedText(" > ".join(domains), prompt_ids, tuple(ids), tuple(domains), tuple(starts))
