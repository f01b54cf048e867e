"""OpenAI's response and chunk objects for `/v1`, folded from a run's events.

The field `metrics` has vLLM's per-request metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.config import SpeculationConfig
from core.config.mechanisms import length_policy
from core.events import Event, RunCancelled, RunCompleted, RunFailed, RunStarted, RunStats
from core.events.outcome import Outcome
from ui.openai.server_metrics import finish_reason
from ui.openai.steps import DraftCounts, StepFold

__all__ = ["CHAT", "COMPLETION", "Completion", "CompletionFormat", "StopCut"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionFormat:
    """The format of one of OpenAI's two APIs. `message` and `delta` take a text and return fields
    of a choice: `message` for a response, `delta` for a chunk of a stream. `first_delta`: the
    fields of the first chunk, which has no text; None if the API has no such chunk."""

    prefix: str
    response_object: str
    chunk_object: str
    message: Callable[[str], Json]
    delta: Callable[[str], Json]
    first_delta: Json | None = None


def _text(text: str) -> Json:
    return {"text": text}


def _message(text: str) -> Json:
    return {"message": {"role": "assistant", "content": text, "refusal": None}}


def _delta(text: str) -> Json:
    return {"delta": {"content": text} if text else {}}


COMPLETION = CompletionFormat("cmpl", "text_completion", "text_completion", _text, _text)
CHAT = CompletionFormat(
    "chatcmpl",
    "chat.completion",
    "chat.completion.chunk",
    _message,
    _delta,
    {"delta": {"role": "assistant", "content": ""}},
)


class StopCut:
    """Cuts a text before the stop string that ends first in the text. If several stop strings end
    at the same place, cuts before the longest.

    `push` holds back a suffix that may be the beginning of a stop string. So the result does not
    depend on how the text is divided into pieces.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._tail = ""
        self._has_stopped = False

    def push(self, delta: str) -> str:
        """Takes the next piece; returns text that certainly comes before every stop string."""
        if self._has_stopped:
            return ""
        text = self._tail + delta
        # Pairs (end, begin): the minimum has the first end and, of equal ends, the longest string.
        places = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        self._has_stopped = bool(places)
        end = min(places)[1] if places else len(text) - self._unsure(text)
        self._tail = "" if places else text[end:]
        return text[:end]

    def flush(self) -> str:
        """Ends the text; returns the text that `push` held back, empty after a stop string."""
        rest, self._tail = self._tail, ""
        return rest

    def _unsure(self, text: str) -> int:
        """The length of the longest suffix of the text that is a proper prefix of a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        lengths = range(min(longest, len(text)), 0, -1)
        return next((n for n in lengths if any(s.startswith(text[-n:]) for s in self._stops)), 0)


@dataclass(slots=True)
class Completion:
    """The answer to one request. `observe` must get every event of the request's run, in order.

    `stops`: the stop strings; `continuous_usage`: whether chunks have the usage so far; `error`:
    the error of a failed run, else empty."""

    shape: CompletionFormat
    model: str
    run_id: str
    stops: tuple[str, ...] = ()
    continuous_usage: bool = False
    error: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    _outcome: Outcome = field(default_factory=Outcome)
    _steps: StepFold = field(default_factory=StepFold)
    _drafts: DraftCounts = field(default_factory=DraftCounts)
    _cut: StopCut = field(init=False)
    _pieces: list[str] = field(default_factory=list)
    _started: RunStarted | None = None
    _ended: RunCompleted | RunCancelled | RunFailed | None = None
    _last_ms: float = 0.0

    def __post_init__(self) -> None:
        self._cut = StopCut(self.stops)

    def observe(self, event: Event) -> str:
        """Takes an event; returns the text that may be sent."""
        piece = self._cut.push(self._outcome.observe(event))
        if isinstance(event, RunStarted):
            self._started = event
        elif (step := self._steps.observe(event)) is not None:
            self._drafts.add(step)
            self._last_ms = step.at_ms if step.num_tokens else self._last_ms
        elif isinstance(event, (RunCompleted, RunCancelled, RunFailed)):
            self._ended = event
            piece += self._cut.flush()
            if isinstance(event, RunFailed):
                self.error = f"{event.error}: {event.message}"
        self._pieces.append(piece)
        return piece

    @property
    def has_ended(self) -> bool:
        """Whether the run's last event was observed."""
        return self._ended is not None

    # -- objects --

    def response(self) -> Json:
        """The response without streaming; valid after the run's end."""
        choice = self._choice(self.shape.message("".join(self._pieces)), self._finish_reason)
        return {
            **self._frame(self.shape.response_object),
            "choices": [choice],
            "usage": self._usage(),
            "metrics": self._metrics(),
        }

    def first_chunk(self) -> Json | None:
        """A stream's first chunk, without text; None if the API has no such chunk."""
        return None if self.shape.first_delta is None else self._chunk(self.shape.first_delta)

    def text_chunk(self, text: str) -> Json:
        """A chunk with text."""
        return self._chunk(self.shape.delta(text))

    def finish_chunk(self) -> Json:
        """The chunk with the finish reason; valid after the run's end."""
        return self._chunk(self.shape.delta(""), self._finish_reason)

    def usage_chunk(self) -> Json:
        """The last chunk of a stream with `include_usage`; valid after the run's end."""
        frame = self._frame(self.shape.chunk_object)
        return {**frame, "choices": [], "usage": self._usage(), "metrics": self._metrics()}

    def _frame(self, kind: str) -> Json:
        return {
            "id": f"{self.shape.prefix}-{self.run_id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
        }

    def _chunk(self, part: Json, reason: str | None = None) -> Json:
        return {
            **self._frame(self.shape.chunk_object),
            "choices": [self._choice(part, reason)],
            "usage": self._usage() if self.continuous_usage else None,
        }

    def _choice(self, part: Json, reason: str | None) -> Json:
        return {"index": 0, **part, "logprobs": None, "finish_reason": reason}

    @property
    def _finish_reason(self) -> str | None:
        return finish_reason(self._ended) if self._ended else None

    # -- figures --

    @property
    def _stats(self) -> RunStats:
        return self._ended.stats if self._ended else RunStats()

    def _usage(self) -> Json:
        prompt = len(self._started.prompt_token_ids) if self._started else 0
        new = len(self._outcome.token_ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
        }

    def _metrics(self) -> Json:
        stats, last_ms = self._stats, self._last_ms
        new = stats.num_new_tokens
        decode_ms = last_ms - stats.ttft_ms
        return {
            "time_to_first_token_ms": stats.ttft_ms if new else None,
            "generation_time_ms": decode_ms if new else None,
            "queue_time_ms": stats.queue_ms,
            "mean_itl_ms": decode_ms / (new - 1) if new > 1 else None,
            "tokens_per_second": 1000 * new / last_ms if last_ms else None,
            "speculative_decoding": self._speculative_decoding(),
        }

    def _speculative_decoding(self) -> Json | None:
        """vLLM's figures of the drafts; None for plain decoding and before the run's start."""
        if self._started is None:
            return None
        config = SpeculationConfig.from_plain(self._started.config["speculation"])
        if config.never_drafts:
            return None
        set_by_user = length_policy(config.length).set_by_user
        longest = config.speculation_length if set_by_user else config.max_speculation_length
        drafts = self._drafts
        steps, accepted = drafts.num_drafts, drafts.num_accepted_tokens
        return {
            "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
            "draft_acceptance_rate": (
                accepted / drafts.num_draft_tokens if drafts.num_draft_tokens else 0.0
            ),
            "acceptance_histogram": drafts.histogram(longest),
            "acceptance_histogram_by_draft_length": {
                str(length): row for length, row in sorted(drafts.by_length.items())
            },
            "acceptance_rate_per_position": [
                count / steps if steps else 0.0 for count in drafts.accepted_per_position(longest)
            ],
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafts.num_draft_tokens,
            "num_spec_tokens": longest,
        }
