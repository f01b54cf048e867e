"""TokenSequence: the mutable state of one request, and the rules that end it.

It has a run's tokens, text, counts and clock, but no model and no row of a KV cache.
"""

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
    """The tokens that a round committed: the verdict's tokens, up to the token that ends the run.
    `text_deltas`: the text that each of these tokens completed.

    `finish_reason` is empty until the run ends, then `eos`, `stop`, `length` or `context`.
    """

    token_ids: tuple[int, ...]
    text_deltas: tuple[str, ...]
    finish_reason: str


@dataclass(eq=False)
class TokenSequence:
    """One request that is being decoded.

    `tokens`: the prompt's tokens, then all committed tokens. The last token is the next round's
    root, whose KV is not in the LLM's cache yet. In `speculation` every `auto` is resolved except
    `pipeline=auto`; `Engine.admit` resolves `max_tree_nodes`. `eos_ids` is empty under
    `ignore_eos`. `context_length` is the LLM's. `special_texts`: texts of special tokens by id, for
    stop strings that name a special token. `warnings`: the request's warnings, for the run's first
    event. `started`: time.perf_counter at which the run left the queue. `round`: the number of
    rounds so far.
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
        """Position of the last committed token."""
        return len(self.tokens) - 1

    @property
    def num_new(self) -> int:
        """Generated tokens."""
        return len(self.tokens) - len(self.prompt_ids)

    @property
    def room(self) -> int:
        """Depth of the deepest useful draft: its path and the LLM's own token must both fit."""
        # A round commits depth + 1 tokens at most, hence the - 1 below.
        remaining = self.sampling.max_new_tokens - self.num_new
        return max(0, min(remaining, self.context_length - len(self.tokens)) - 1)

    def ms(self, at: float | None = None) -> float:
        """Milliseconds from the start of the run to `at` (now, if not given)."""
        return ((time.perf_counter() if at is None else at) - self.started) * 1000

    def next_seq(self) -> int:
        """The next event's number."""
        self._num_events += 1
        return self._num_events - 1

    def spans(self, timings: list[Timed]) -> tuple[Span, ...]:
        """Converts timings (seconds of time.perf_counter) to spans (ms from the start of this
        run)."""
        return tuple(
            Span(t.lane, t.name, self.ms(t.start), self.ms(t.end), t.share) for t in timings
        )

    def commit(self, token_ids: tuple[int, ...]) -> CommitResult:
        """Appends tokens one by one until one of them ends the run; the rest is dropped."""
        # One by one: plain decoding would have stopped at the same token.
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
