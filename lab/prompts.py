"""Prompts of a study, from a text or a file.

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
# The most characters in an id or a domain.
LONGEST_ID = 80
# Characters of a prompt's beginning in `StudyPrompt.words`.
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
        """The prompt's id and beginning: `prompt 3 ("Once upon a time...")`."""
        flat = " ".join(self.text.split())
        short = flat if len(flat) <= EXCERPT else f"{flat[:EXCERPT]}..."
        return f'prompt {self.id} ("{short}")'


def prompts_from_text(typed: str) -> tuple[StudyPrompt, ...]:
    """Prompts with the ids 1, 2, .... Raises ConfigError."""
    lines = _lines(typed)
    texts = _blocks(lines) if _has_separator(lines) else [line for line in lines if line.strip()]
    return unique_prompts(StudyPrompt(str(i), one) for i, one in enumerate(texts, start=1))


def is_separated(typed: str) -> bool:
    """Whether lines of SEPARATOR divide the prompts, so that a prompt may have several lines."""
    return _has_separator(_lines(typed))


def _has_separator(lines: list[str]) -> bool:
    return any(line.strip() == SEPARATOR for line in lines)


def _lines(typed: str) -> list[str]:
    return typed.replace("\r\n", "\n").split("\n")


def prompts_from_file(name: str, content: bytes) -> tuple[StudyPrompt, ...]:
    """Prompts of a `.txt` or `.jsonl`. Raises ConfigError."""
    try:
        # With or without a byte order mark.
        decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError.must_be(
            "file", name, f"text in UTF-8; byte {error.start} is not"
        ) from error
    if name.lower().endswith(".jsonl"):
        return unique_prompts(
            # splitlines() would also cut at U+2028, which is valid within a JSON string.
            _from_line(i, line)
            for i, line in enumerate(decoded.split("\n"), 1)
            if line.strip()
        )
    if name.lower().endswith(".txt"):
        return prompts_from_text(decoded)
    raise ConfigError.must_be("file", name, "a .txt or .jsonl file")


def unique_prompts(prompts: Iterable[StudyPrompt]) -> tuple[StudyPrompt, ...]:
    """The prompts with unique ids: a second `x` becomes `x-2`. Raises ConfigError if there are none
    or too many, or for the domain NO_DOMAIN."""
    # By id: the last number given to it, 1 for the id itself.
    numbers: dict[str, int] = {}
    results: list[StudyPrompt] = []
    for prompt in prompts:
        if prompt.domain == NO_DOMAIN:
            allowed = f"another name: {NO_DOMAIN!r} stands for prompts without a domain"
            raise ConfigError.must_be("domain", prompt.domain, allowed)
        if len(results) == MAX_PROMPTS:
            raise ConfigError.must_be(
                "prompts", f"more than {MAX_PROMPTS}", f"at most {MAX_PROMPTS}"
            )
        prompt_id, number = prompt.id, numbers.get(prompt.id, 0) + 1
        # `x-2` may be the id of another prompt.
        while number > 1 and _with_number(prompt.id, number) in numbers:
            number += 1
        numbers[prompt.id] = number
        if number > 1:
            prompt_id = _with_number(prompt.id, number)
            numbers.setdefault(prompt_id, 1)
        results.append(StudyPrompt(prompt_id, prompt.text, prompt.domain))
    if not results:
        raise ConfigError.must_be("prompts", "", "at least one prompt")
    return tuple(results)


def _with_number(prompt_id: str, number: int) -> str:
    suffix = f"-{number}"
    # A long id is cut, so that the result has at most LONGEST_ID characters.
    return f"{prompt_id[: LONGEST_ID - len(suffix)]}{suffix}"


def _blocks(lines: list[str]) -> list[str]:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == SEPARATOR:
            blocks.append([])
        else:
            blocks[-1].append(line)
    # A prompt keeps its indentation: only empty lines at its ends are dropped.
    texts = ("\n".join(block).strip("\n") for block in blocks)
    return [one for one in texts if one.strip()]


def _from_line(number: int, line: str) -> StudyPrompt:
    allowed = 'an object like {"prompt": "...", "domain": "..."}'
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError.must_be(f"line {number}", line[:80], f"{allowed} ({error})") from error
    if not isinstance(entry, dict):
        raise ConfigError.must_be(f"line {number}", line[:80], allowed)
    prompt_text = entry.get("prompt", entry.get("text"))
    if not isinstance(prompt_text, str) or not prompt_text.strip():
        raise ConfigError.must_be(f"line {number}", line[:80], f"{allowed}, its prompt not empty")
    given_id, domain = entry.get("id"), entry.get("domain")
    # null and "" count as missing; 0 is an id.
    prompt_id = str(number) if given_id in (None, "") else str(given_id)
    try:
        return StudyPrompt(prompt_id, prompt_text, "" if domain is None else str(domain))
    except ConfigError as error:
        raise ConfigError(f"line {number}: {error}") from error
