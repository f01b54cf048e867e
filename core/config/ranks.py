"""RankSplit: how an LLM is divided among processes (ranks)."""

from __future__ import annotations

from dataclasses import dataclass

from core.config.checks import choice, integer
from core.config.offload import Offload
from core.errors import ConfigError

__all__ = ["RankSplit", "SPLITS", "ranks_of"]

SPLITS = ("tp", "pp")
MOST_RANKS = 64
ALLOWED = "tp=N or pp=N (tensor parallel or pipeline stages over N processes)"


@dataclass(frozen=True, slots=True)
class RankSplit:
    """`split`: with `tp` each layer's matrices are divided among the ranks; with `pp` each rank has
    some of the layers. `count`: the number of ranks."""

    split: str
    count: int

    def __post_init__(self) -> None:
        choice("llm_ranks", self.split, SPLITS)
        integer("llm_ranks", self.count, 2, MOST_RANKS)

    def __str__(self) -> str:
        return f"{self.split}={self.count}"


def ranks_of(text: str | None, offload: Offload | None = None) -> RankSplit | None:
    """A RankSplit from a command-line argument; None without `text`. Raises ConfigError."""
    if text is None:
        return None
    split, separator, count = text.partition("=")
    if not separator or split not in SPLITS or not count.isdecimal():
        raise ConfigError.of("llm_ranks", text, ALLOWED)
    if offload is not None:
        raise ConfigError.of("llm_ranks", text, "only without --offload")
    # At most four digits are read: Python refuses numbers of thousands of digits.
    number = int(count[:4])
    if not 2 <= number <= MOST_RANKS or len(count) > 4:
        raise ConfigError.of("llm_ranks", text, f"{ALLOWED}, N from 2 to {MOST_RANKS}")
    return RankSplit(split, number)
