"""`python -m zoo samples`: texts by an LLM for a person to read; for code, whether it parses."""

from __future__ import annotations

import ast
import codeop
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig, checks
from core.engine.engine import Engine
from core.events.outcome import Outcome
from zoo.prompts import rows_of
from zoo.result_cache import NO_CACHE, ResultCache

__all__ = [
    "CODE",
    "DOES_NOT",
    "PARSES",
    "UNDECIDED",
    "VERDICTS",
    "SamplePrompt",
    "Sample",
    "as_json",
    "count_verdicts",
    "parse_verdict",
    "prompts_of",
    "sample_text",
    "samples",
]

CODE = "code"
"""The domain whose texts should parse."""
VERDICTS = PARSES, DOES_NOT, UNDECIDED = "parses", "does not parse", "ends before it can be told"

_PLURAL_VERDICTS = MappingProxyType(
    {PARSES: "parse", DOES_NOT: "do not", UNDECIDED: "end before it can be told"}
)


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """A text to continue, and its domain."""

    domain: str
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and its continuation; `verdict`: for code, one of VERDICTS, else empty."""

    prompt: SamplePrompt
    continuation: str
    verdict: str = ""


def prompts_of(path: Path, domains: Sequence[str], count: int) -> list[SamplePrompt]:
    """The first `count` prompts of each of these domains, or of all if `domains` is empty, from a
    file of JSON lines. Raises ConfigError."""
    checks.integer("count", count, 1, 10_000)
    prompts = [
        SamplePrompt(row["domain"], row["prompt"]) for row in rows_of(path, "prompt", "domain")
    ]
    all_domains = tuple(dict.fromkeys(prompt.domain for prompt in prompts))
    for domain in domains:
        checks.choice("domains", domain, all_domains)
    return [
        prompt
        for domain in domains or all_domains
        for prompt in [each for each in prompts if each.domain == domain][:count]
    ]


def samples(
    engine: Engine,
    prompts: Sequence[SamplePrompt],
    sampling: SamplingParams,
    cache: ResultCache = NO_CACHE,
) -> Iterator[Sample]:
    """Each prompt continued by the LLM alone. `cache`: texts of an interrupted run."""
    for number, prompt in enumerate(prompts):
        result = cache.get_or_compute(
            f"{number:04}", partial(_generate_sample, engine, prompt.text, sampling)
        )
        text, cut = result["text"], result["cut"]
        is_code = prompt.domain == CODE
        yield Sample(prompt, text, parse_verdict(prompt.text, text, cut) if is_code else "")


def _generate_sample(engine: Engine, prompt: str, sampling: SamplingParams) -> dict[str, Any]:
    plain = SpeculationConfig.preset("autoregressive", sampling.temperature)
    outcome = Outcome()
    for event in engine.generate(Request(prompt, sampling, plain)):
        outcome.observe(event)
    return {"text": outcome.text, "cut": outcome.summary["finish_reason"] == "length"}


def parse_verdict(prompt: str, continuation: str, cut: bool) -> str:
    """Whether prompt and continuation together are Python: one of VERDICTS.

    If the token limit `cut` the text, its last line is removed, then more lines while the text is
    merely incomplete. Of the continuation's lines before the last, at least half, rounded down, are
    kept, and at least one.
    """
    num_prompt_lines = prompt.count("\n")
    lines = (prompt + continuation).split("\n")
    if cut:
        del lines[-1]  # cut within the line
    half = num_prompt_lines + max(1, (len(lines) - num_prompt_lines) // 2)
    min_lines = half if cut else len(lines)
    while len(lines) >= min_lines:
        try:
            _compile("\n".join(lines) + "\n")
        except SyntaxError as error:
            if error.msg != "incomplete input" or not cut:
                return DOES_NOT
            lines.pop()
        except (ValueError, RecursionError, MemoryError):  # a lone surrogate; nested too deeply
            return DOES_NOT
        else:
            return PARSES
    return UNDECIDED


def _compile(text: str) -> None:
    # The second flag distinguishes incomplete source from wrong source.
    flags = ast.PyCF_ONLY_AST | codeop.PyCF_ALLOW_INCOMPLETE_INPUT  # type: ignore[attr-defined]
    compile(text, "<sample>", "exec", flags, dont_inherit=True)


def sample_text(sample: Sample) -> str:
    """The prompt, a bar, and the continuation, under a heading."""
    verdict = f" ({sample.verdict})" if sample.verdict else ""
    head = f"=== {sample.prompt.domain}{verdict} "
    return f"{head.ljust(100, '=')}\n{sample.prompt.text}|{sample.continuation}"


def count_verdicts(verdicts: Sequence[str]) -> str:
    """A line with the number of texts of code by verdict."""
    counts = ", ".join(f"{verdicts.count(one)} {_PLURAL_VERDICTS[one]}" for one in VERDICTS)
    return f"=== of {len(verdicts)} texts of code {counts}"


def as_json(all_samples: Sequence[Sample], sampling: SamplingParams) -> dict[str, Any]:
    """The samples and how they were sampled, as plain values."""
    settings = {name: getattr(sampling, name) for name in ("temperature", "seed")}
    texts = [
        asdict(one.prompt) | {"continuation": one.continuation, "verdict": one.verdict}
        for one in all_samples
    ]
    return {"tokens": sampling.max_new_tokens, **settings, "samples": texts}
