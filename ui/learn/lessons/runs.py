"""Prompts, drafters and speculation settings of lessons' runs."""

from __future__ import annotations

from core.config import SpeculationConfig
from ui.learn.lessons.lesson import DrafterChoice

__all__ = [
    "AHEAD_4",
    "ALL",
    "CODE",
    "DIALOGUE",
    "DRAFT_4",
    "DRAFT_5",
    "DRAFT_8",
    "DRAFT_12",
    "ALL_AND_NGRAM",
    "FORK_4",
    "NO_DRAFTERS",
    "ONE",
    "PASS_8",
    "PASS_16",
    "STORIES",
    "STORY",
    "TREE_16",
    "TREE_4",
]

DIALOGUE = "User: I want to book a table for two at an Italian restaurant.\nAssistant:"
STORY = "Once upon a time, in a small village by the sea, there lived"
CODE = (
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
)

NO_DRAFTERS = DrafterChoice("none")
ALL = DrafterChoice("all")
ALL_AND_NGRAM = DrafterChoice("all_and_ngram")
ONE = DrafterChoice("one", "dialogue")
STORIES = DrafterChoice("one", "stories")


def chain(length: int, width: int = 1, pipeline: str = "off") -> SpeculationConfig:
    """Drafts of a fixed length: `width` tokens at the first position, a chain after each."""
    return SpeculationConfig(
        expansion=(width, *(1,) * (length - 1)),
        speculation_length=length,
        max_tree_nodes=64,
        pipeline=pipeline,
    )


def pass_of(tokens: int) -> SpeculationConfig:
    """A configuration for LLM passes over `tokens` tokens: the root and its children."""
    guesses = tokens - 1
    return SpeculationConfig(expansion=(guesses,), speculation_length=1, max_tree_nodes=guesses)


PASS_8, PASS_16 = pass_of(8), pass_of(16)
DRAFT_4, DRAFT_5, DRAFT_8, DRAFT_12 = chain(4), chain(5), chain(8), chain(12)
FORK_4, TREE_4 = chain(4, 2), chain(4, 3)
# `vote_tree`, because with `union` each of the five bundled SSMs could draft at most four nodes.
TREE_16 = SpeculationConfig(
    expansion=(2, 1, 1, 1, 1, 1), speculation_length=6, max_tree_nodes=16, combine="vote_tree"
)
AHEAD_4 = chain(4, pipeline="ahead")
