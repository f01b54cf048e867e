"""The development prompts, and a selection that is spread over their domains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.examples import PROMPTS, example_prompts

CHAT_PROMPTS = PROMPTS.with_name("prompts-chat.jsonl")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue, or a message to answer (`chat`). `number`: its position in the file, from
    0."""

    id: str
    domain: str
    text: str
    number: int
    chat: bool = False

    def seed(self, repeat: int = 0) -> int:
        return 1000 * (repeat + 1) + self.number


def load_prompts(path: Path = PROMPTS, *, chat: bool = False) -> tuple[Prompt, ...]:
    rows = enumerate(example_prompts(path))
    return tuple(Prompt(one.id, one.domain, one.text, i, chat) for i, one in rows)


def domains(prompts: tuple[Prompt, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(prompt.domain for prompt in prompts))


def take_round_robin(prompts: tuple[Prompt, ...], count: int) -> tuple[Prompt, ...]:
    """At most `count` prompts, taken in turn from the domains; returned in the file's order."""
    by_domain = {name: [p for p in prompts if p.domain == name] for name in domains(prompts)}
    longest = max(map(len, by_domain.values()), default=0)
    turns = [group[i] for i in range(longest) for group in by_domain.values() if i < len(group)]
    return tuple(sorted(turns[:count], key=lambda prompt: prompt.number))
