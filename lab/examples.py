"""The bundled prompts, by domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.config.checks import integer
from core.errors import ConfigError
from lab.prompts import StudyPrompt, prompts_from_file

__all__ = ["domains_of", "example_prompts", "of_domains"]

# The benchmarks' file, so that the page measures on the same prompts as the benchmarks.
PROMPTS = Path(__file__).resolve().parent.parent / "bench" / "prompts.jsonl"


def example_prompts(path: Path = PROMPTS) -> tuple[StudyPrompt, ...]:
    """Every prompt of the file, in its order."""
    return prompts_from_file(path.name, path.read_bytes())


def domains_of(prompts: Sequence[StudyPrompt]) -> tuple[str, ...]:
    """The domains of these prompts, in order of appearance."""
    return tuple(dict.fromkeys(prompt.domain for prompt in prompts))


def of_domains(
    prompts: Sequence[StudyPrompt], wanted_domains: Sequence[str], count: int
) -> tuple[StudyPrompt, ...]:
    """The first `count` prompts of each chosen domain. Raises ConfigError for an unknown domain,
    without a domain, or for a `count` out of range."""
    integer("prompts of each domain", count, 1, len(prompts))
    domains = domains_of(prompts)
    unknown = [name for name in wanted_domains if name not in domains]
    if unknown or not wanted_domains:
        raise ConfigError.must_be(
            "domains", unknown or wanted_domains, f"at least one of {', '.join(domains)}"
        )
    return tuple(
        prompt
        for name in domains
        if name in wanted_domains
        for prompt in [p for p in prompts if p.domain == name][:count]
    )
