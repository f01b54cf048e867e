"""TokenSequence: the mutable state of one request, and the rules that end it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from core.config import Request, SamplingParams, SpeculationConfig
from core.events import Span
from core.events.parts import Timed
from core.metrics import StatsFold
from core.models.detokenize import Detokenizer
from core.trees.noise import Noise

__all__ = ["CommitResult", "TokenSequence"]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The tokens that a round committed. `text_deltas`: the text that each token completed.
    `finish_reason`: `eos`, `stop`, `length` or `context`; empty if the run goes on."""

    token_ids: tuple[int, ...]
    text_deltas: tuple[str, ...]
    finish_reason: str


@dataclass(eq=False)
class TokenSequence:
    """One request that is being decoded.

    `tokens`: the prompt's tokens, then all committed tokens. Between rounds the LLM's cache lacks
    the KV of the last token, the next round's root. `eos_ids` is empty under `ignore_eos`.
    `special_texts`: texts of special tokens by id. `started`: seconds of time.perf_counter.
    """

    run_id: str
    request: Request
    sampling: SamplingParams
    speculation: SpeculationConfig
    prompt_ids: tuple[int, ...]
    noise: Noise
    detokenizer: Detokenizer
    eos_ids: frozenset[int]
    context_length: int
    special_texts: Mapping[int, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    started: float = field(default_factory=time.perf_counter)
    fold: StatsFold = field(default_factory=StatsFold)
    round: int = 0
    finish_reason: str = ""
    tokens: list[int] = field(init=False)
    _num_events: int = field(init=False, default=0)
    _tail: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt_ids)

    @property
    def root_position(self) -> int:
        """Index of the last token."""
        return len(self.tokens) - 1

    @property
    def num_new(self) -> int:
        """The number of generated tokens."""
        return len(self.tokens) - len(self.prompt_ids)

    @property
    def room(self) -> int:
        """Depth of the deepest useful draft: its path and the LLM's own token must both fit."""
        remaining = self.sampling.max_new_tokens - self.num_new
        return max(0, min(remaining, self.context_length - len(self.tokens)) - 1)

    def ms(self, at: float | None = None) -> float:
        """Milliseconds from `started` to `at` (seconds of time.perf_counter; None: now)."""
        return ((time.perf_counter() if at is None else at) - self.started) * 1000

    def next_seq(self) -> int:
        """The next event's number, from 0."""
        self._num_events += 1
        return self._num_events - 1

    def spans(self, timings: list[Timed]) -> tuple[Span, ...]:
        """The timings as spans, in milliseconds from `started`."""
        return tuple(
            Span(t.lane, t.name, self.ms(t.start), self.ms(t.end), t.share) for t in timings
        )

    def commit(self, token_ids: tuple[int, ...]) -> CommitResult:
        """Appends tokens up to the first token that ends the run."""
        deltas: list[str] = []
        for token_id in token_ids:
            self.tokens.append(token_id)
            deltas.append(self.detokenizer.push(token_id))
            self.finish_reason = self._finish_reason(token_id, deltas[-1])
            if self.finish_reason:
                break
        return CommitResult(token_ids[: len(deltas)], tuple(deltas), self.finish_reason)

    def _finish_reason(self, token_id: int, delta: str) -> str:
        if token_id in self.eos_ids:
            return "eos"
        if self.sampling.stop:
            longest = max(map(len, self.sampling.stop))
            # A special token is not shown, but a stop string may name it.
            text = self._tail + (delta or self.special_texts.get(token_id, ""))
            if any(stop in text for stop in self.sampling.stop):
                return "stop"
            # A stop string may span tokens: keep the characters that may be its beginning.
            self._tail = text[-(longest - 1) :] if longest > 1 else ""
        if self.num_new >= self.sampling.max_new_tokens:
            return "length"
        return "context" if len(self.tokens) >= self.context_length else ""
