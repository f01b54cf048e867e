"""The prompts that come along, by domain: those that the benchmarks measure too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.config.checks import integer
from core.errors import ConfigError
from lab.prompts import StudyPrompt, prompts_from_file

__all__ = ["domains_of", "example_prompts", "of_domains"]

# One file for both: what a visitor tunes on is what the tables of the benchmarks were measured on.
PROMPTS = Path(__file__).resolve().parent.parent / "bench" / "prompts.jsonl"


def example_prompts(path: Path = PROMPTS) -> tuple[StudyPrompt, ...]:
    """Every prompt of the file, in its order."""
    return prompts_from_file(path.name, path.read_bytes())


def domains_of(prompts: Sequence[StudyPrompt]) -> tuple[str, ...]:
    """Their domains, in order of appearance."""
    return tuple(dict.fromkeys(prompt.domain for prompt in prompts))


def of_domains(
    prompts: Sequence[StudyPrompt], chosen: Sequence[str], count: int
) -> tuple[StudyPrompt, ...]:
    """The first `count` prompts of each chosen domain. ConfigError names an unknown one."""
    integer("prompts of each domain", count, 1, len(prompts))
    known = domains_of(prompts)
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        raise ConfigError.of("domains", unknown or chosen, f"at least one of {', '.join(known)}")
    return tuple(
        prompt
        for name in known
        if name in chosen
        for prompt in [p for p in prompts if p.domain == name][:count]
    )
