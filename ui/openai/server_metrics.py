"""Figures of the logged runs since the server's start, as text for Prometheus under vLLM's
names."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from core.events import Event, RunCancelled, RunCompleted, RunFailed, RunStarted
from ui.openai.steps import DraftCounts, RoundStep, StepFold

__all__ = ["CONTENT_TYPE", "ServerMetrics", "finish_reason"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper bounds in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
FINISH_REASONS = ("stop", "length", "abort", "error")

Sample = tuple[str, dict[str, str], float]
"""Suffix of the family's name; labels in addition to `engine` and `model_name`; value."""


def finish_reason(event: RunCompleted | RunCancelled | RunFailed) -> str:
    """vLLM's word for a run's end: one of FINISH_REASONS."""
    if isinstance(event, RunCancelled):
        return "abort"
    if isinstance(event, RunFailed):
        return "error"
    return "stop" if event.finish_reason in ("eos", "stop") else "length"


@dataclass(slots=True)
class _Histogram:
    """Observations in seconds. `counts`: one for each bucket; the last bucket has no bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        # `bisect_left`, since a bucket includes its upper bound (`le`).
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def samples(self) -> Iterator[Sample]:
        cumulative = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            # Prometheus's buckets are cumulative.
            cumulative += count
            yield "_bucket", {"le": bound}, cumulative
        yield "_sum", {}, self.total
        yield "_count", {}, cumulative


@dataclass(slots=True)
class _ModelFigures:
    """Sums over the runs of one LLM."""

    drafts: DraftCounts = field(default_factory=DraftCounts)
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0))
    first_token: _Histogram = field(default_factory=_Histogram)
    inter_token: _Histogram = field(default_factory=_Histogram)

    @property
    def accepted_per_position(self) -> list[int]:
        return self.drafts.accepted_per_position()


@dataclass(slots=True)
class _LiveRun:
    """A run that has begun. `last_ms`: the `at_ms` of the latest round with tokens, None before the
    first."""

    figures: _ModelFigures
    queue_ms: float
    steps: StepFold = field(default_factory=StepFold)
    last_ms: float | None = None

    def add(self, step: RoundStep) -> None:
        self.figures.drafts.add(step)
        if not step.num_tokens:
            return
        self.figures.num_generation_tokens += step.num_tokens
        if self.last_ms is None:
            self.figures.first_token.add((self.queue_ms + step.at_ms) / 1000)
        else:
            self.figures.inter_token.add((step.at_ms - self.last_ms) / 1000)
        self.last_ms = step.at_ms


class ServerMetrics:
    """Observes the events of all logged runs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, _ModelFigures] = {}
        self._live: dict[str, _LiveRun] = {}

    def observe(self, event: Event) -> None:
        """Takes an event. The events of a run must come in order."""
        with self._lock:
            if isinstance(event, RunStarted):
                figures = self._models.setdefault(event.models[0].name, _ModelFigures())
                figures.num_prompt_tokens += len(event.prompt_token_ids)
                self._live[event.run_id] = _LiveRun(figures, event.queue_ms)
            elif (run := self._live.get(event.run_id)) is not None:
                if (step := run.steps.observe(event)) is not None:
                    run.add(step)
                if isinstance(event, (RunCompleted, RunCancelled, RunFailed)):
                    run.figures.finished[finish_reason(event)] += 1
                    del self._live[event.run_id]

    def text(self, model: str, num_running: int, num_waiting: int) -> str:
        """All series, in Prometheus's text format. `model`: the loaded LLM, which has series even
        before the LLM's first run."""
        with self._lock:
            models = {model: _ModelFigures(), **self._models}
            return "".join(
                [
                    *_gauge("num_requests_running", "Requests being decoded.", model, num_running),
                    *_gauge("num_requests_waiting", "Requests in the queue.", model, num_waiting),
                    *(line for family in FAMILIES for line in _family(*family, models)),
                ]
            )


# -- the text format --

# Name, help text, attribute of _ModelFigures.
FAMILIES = (
    ("spec_decode_num_drafts_total", "Verified token trees.", "drafts.num_drafts"),
    (
        "spec_decode_num_draft_tokens_total",
        "Depths of the verified token trees.",
        "drafts.num_draft_tokens",
    ),
    (
        "spec_decode_num_accepted_tokens_total",
        "Accepted draft tokens.",
        "drafts.num_accepted_tokens",
    ),
    (
        "spec_decode_num_accepted_tokens_per_pos_total",
        "Accepted draft tokens by depth in the tree, from 0.",
        "accepted_per_position",
    ),
    ("prompt_tokens_total", "Tokens of prompts.", "num_prompt_tokens"),
    ("generation_tokens_total", "Generated tokens.", "num_generation_tokens"),
    ("request_success_total", "Requests that have ended, by reason.", "finished"),
    (
        "time_to_first_token_seconds",
        "From a request to its first token, the queue included.",
        "first_token",
    ),
    (
        "inter_token_latency_seconds",
        "Between successive rounds of a request, each of one or more tokens.",
        "inter_token",
    ),
)


def _family(
    name: str, about: str, attribute: str, models: dict[str, _ModelFigures]
) -> Iterator[str]:
    yield from _header(name, "counter" if name.endswith("_total") else "histogram", about)
    for model, figures in models.items():
        for suffix, labels, value in _samples(attrgetter(attribute)(figures)):
            yield _line(name + suffix, model, labels, value)


def _samples(value: int | list[int] | dict[str, int] | _Histogram) -> Iterator[Sample]:
    if isinstance(value, _Histogram):
        yield from value.samples()
    elif isinstance(value, dict):
        yield from (("", {"finished_reason": reason}, count) for reason, count in value.items())
    elif isinstance(value, list):
        yield from (("", {"position": str(place)}, count) for place, count in enumerate(value))
    else:
        yield "", {}, value


def _gauge(name: str, about: str, model: str, value: int) -> tuple[str, ...]:
    return (*_header(name, "gauge", about), _line(name, model, {}, value))


def _header(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP vllm:{name} {about}\n", f"# TYPE vllm:{name} {kind}\n"


def _line(name: str, model: str, labels: dict[str, str], value: float) -> str:
    # vLLM labels series by engine; SpecScope has one engine.
    all_labels = {"engine": "0", "model_name": model, **labels}
    labels_text = ",".join(f'{label}="{_escape(text)}"' for label, text in all_labels.items())
    return f"vllm:{name}{{{labels_text}}} {float(value)!r}\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
