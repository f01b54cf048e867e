"""Questions of several kinds for a chat LLM.

A question is a template filled in with one of its topics (`chat_prompts.json`), or with a passage
of the corpora.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from core.errors import ConfigError
from zoo.corpora import Domain

__all__ = ["chat_prompts"]

# By kind: groups of templates, each group with the topics that are filled in.
TOPICS = Path(__file__).parent / "chat_prompts.json"

# By kind: pairs of a domain and a template for passages of that domain.
_PASSAGES: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType(
    {
        "writing": (("stories", "Continue this story: {}"),),
        "how": (("docs", "Explain this to a beginner: {}"),),
        "text": (
            ("stories", "Summarise in one sentence: {}"),
            ("stories", "Who are the people in this text, and what do they want? {}"),
            ("docs", "Summarise this for a busy reader: {}"),
            ("dialogue", "What does the customer want in this conversation? {}"),
            ("math", "Solve this, step by step: {}"),
        ),
        "code": (("code", "What does this code do?\n\n{}"),),
    }
)
_PASSAGE_CHARACTERS = 400
_PASSAGES_OF_A_TEMPLATE = 200


def chat_prompts(
    domains: Sequence[Domain], left_out: Sequence[str], seed: int
) -> dict[str, list[str]]:
    """The prompts by kind, in a random order: each template with each topic or with passages of the
    `domains`, except `left_out`. Raises ConfigError if no prompt remains."""
    texts_left_out = {text.casefold() for text in left_out}
    documents = {domain.name: domain.documents for domain in domains}
    by_kind = {}
    for kind, groups in json.loads(TOPICS.read_text("utf-8")).items():
        prompts = [*_of_topics(groups), *_of_passages(kind, documents, random.Random(seed))]
        prompts = [each for each in dict.fromkeys(prompts) if each.casefold() not in texts_left_out]
        # Each kind has its own seed, so that its order does not depend on the other kinds.
        random.Random(f"{seed} {kind}").shuffle(prompts)
        by_kind[kind] = prompts
    if not any(by_kind.values()):
        raise ConfigError.of("prompts", 0, "one or more that are not left out")
    return by_kind


def _of_topics(groups: Sequence[Mapping[str, Sequence[str]]]) -> Iterator[str]:
    for group in groups:
        for template, topic in itertools.product(group["templates"], group["topics"]):
            yield template.format(topic)


def _of_passages(
    kind: str, documents: Mapping[str, Sequence[str]], rng: random.Random
) -> Iterator[str]:
    for domain, template in _PASSAGES.get(kind, ()):
        for document in _sample(documents.get(domain, ()), rng):
            yield template.format(_passage(document, rng))


def _sample(documents: Sequence[str], rng: random.Random) -> Sequence[str]:
    return rng.sample(documents, min(len(documents), _PASSAGES_OF_A_TEMPLATE))


def _passage(document: str, rng: random.Random) -> str:
    """Consecutive lines or sentences of a document, at most _PASSAGE_CHARACTERS characters."""
    separator = "\n" if "\n" in document else ". "
    parts = document.split(separator)
    first = rng.randrange(max(1, len(parts) - 3))
    return separator.join(parts[first:])[:_PASSAGE_CHARACTERS].rsplit(separator, 1)[0].strip()
