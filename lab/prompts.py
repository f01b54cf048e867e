"""Prompts of a study: typed, pasted or from a file, split and named.

A `.txt` has a prompt on each line, or prompts of several lines separated by lines of `---`; a
`.jsonl` has an object on each line with `prompt` (or `text`) and optionally `domain` and `id`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.config.checks import text, whole_characters
from core.errors import ConfigError

__all__ = [
    "MAX_PROMPTS",
    "NO_DOMAIN",
    "StudyPrompt",
    "is_separated",
    "prompts_from_file",
    "prompts_from_text",
    "unique_prompts",
]

MAX_PROMPTS = 500
SEPARATOR = "---"
LONGEST_ID = 80
EXCERPT = 50
# The filter value for prompts without a domain; no prompt may have this domain.
NO_DOMAIN = "none"


@dataclass(frozen=True, slots=True)
class StudyPrompt:
    """One text to continue; `id` is unique within its study, `domain` may be empty."""

    id: str
    text: str
    domain: str = ""

    def __post_init__(self) -> None:
        text("prompt", self.text)
        for name, value in (("prompt id", self.id), ("domain", self.domain)):
            if not isinstance(value, str) or len(value) > LONGEST_ID:
                raise ConfigError.must_be(name, value, f"a text of at most {LONGEST_ID} characters")
            whole_characters(name, value)

    @property
    def words(self) -> str:
        """The prompt's number and beginning: `prompt 3 ("Once upon a time...")`."""
        flat = " ".join(self.text.split())
        short = flat if len(flat) <= EXCERPT else f"{flat[:EXCERPT]}..."
        return f'prompt {self.id} ("{short}")'


def prompts_from_text(typed: str) -> tuple[StudyPrompt, ...]:
    """Prompts as typed by a person. Raises ConfigError if there are none or too many."""
    lines = _lines(typed)
    separated = is_separated(typed)
    blocks = _between(lines) if separated else [line for line in lines if line.strip()]
    return unique_prompts(StudyPrompt(str(i), one) for i, one in enumerate(blocks, start=1))


def is_separated(typed: str) -> bool:
    """Whether lines of SEPARATOR divide the prompts, so that these may have several lines."""
    return any(line.strip() == SEPARATOR for line in _lines(typed))


def _lines(typed: str) -> list[str]:
    return typed.replace("\r\n", "\n").split("\n")


def prompts_from_file(name: str, content: bytes) -> tuple[StudyPrompt, ...]:
    """The prompts of a `.txt` or `.jsonl`. Raises ConfigError naming the wrong line."""
    try:
        # With or without a byte order mark.
        read = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError.must_be(
            "file", name, f"text in UTF-8; byte {error.start} is not"
        ) from error
    if name.lower().endswith(".jsonl"):
        return unique_prompts(
            # Not splitlines(), which also cuts at U+2028, valid within a JSON string.
            _of_line(i, line)
            for i, line in enumerate(read.split("\n"), 1)
            if line.strip()
        )
    if name.lower().endswith(".txt"):
        return prompts_from_text(read)
    raise ConfigError.must_be("file", name, "a .txt or .jsonl file")


def unique_prompts(prompts: Iterable[StudyPrompt]) -> tuple[StudyPrompt, ...]:
    """The prompts with unique ids: a second `x` becomes `x-2`."""
    counts: dict[str, int] = {}
    results: list[StudyPrompt] = []
    for prompt in prompts:
        if prompt.domain == NO_DOMAIN:
            allowed = "another word: none names prompts without a domain"
            raise ConfigError.must_be("domain", prompt.domain, allowed)
        if len(results) == MAX_PROMPTS:
            raise ConfigError.must_be(
                "prompts", f"more than {MAX_PROMPTS}", f"at most {MAX_PROMPTS}"
            )
        name, number = prompt.id, counts.get(prompt.id, 0) + 1
        # `x-2` may be the id of another prompt.
        while number > 1 and f"{name}-{number}" in counts:
            number += 1
        counts[name] = number
        if number > 1:
            name = f"{name}-{number}"
            counts.setdefault(name, 1)
        results.append(StudyPrompt(name, prompt.text, prompt.domain))
    if not results:
        raise ConfigError.must_be("prompts", "", "at least one prompt")
    return tuple(results)


def _between(lines: list[str]) -> list[str]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(line)
    return [whole for part in parts if (whole := "\n".join(part).strip("\n")).strip()]


def _of_line(number: int, line: str) -> StudyPrompt:
    allowed = 'an object like {"prompt": "...", "domain": "..."}'
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError.must_be(f"line {number}", line[:80], f"{allowed} ({error})") from error
    if not isinstance(entry, dict):
        raise ConfigError.must_be(f"line {number}", line[:80], allowed)
    text = entry.get("prompt", entry.get("text"))
    if not isinstance(text, str) or not text.strip():
        raise ConfigError.must_be(f"line {number}", line[:80], f"{allowed}, its prompt not empty")
    # null counts as missing; 0 is an id.
    name, domain = entry.get("id"), entry.get("domain")
    prompt_id = str(number) if name in (None, "") else str(name)
    try:
        return StudyPrompt(prompt_id, text, "" if domain is None else str(domain))
    except ConfigError as error:
        raise ConfigError(f"line {number}: {error}") from error
