"""Drafters by name: the loaded SSMs (small speculative models), `ngram`, `suffix` and `table`."""

from __future__ import annotations

from collections.abc import Sequence as Many

import numpy as np

from core.config.mechanisms import MODEL_FREE, NGRAM, SUFFIX, TABLE
from core.drafters.base import Drafter
from core.drafters.ssm_pool import SsmPool
from core.drafters.suffix import EARLIER_TOKENS, SuffixDrafter
from core.drafters.table import TableDrafter
from core.errors import ConfigError

__all__ = ["make_drafters", "resolve_drafters"]


def make_drafters(ssm_pool: SsmPool, counts: np.ndarray | None = None) -> dict[str, Drafter]:
    """Every drafter that the loaded models allow, by name. `counts`: rows for `table` to begin
    with."""
    lookups: tuple[Drafter, ...] = (
        SuffixDrafter(NGRAM),
        SuffixDrafter(SUFFIX, EARLIER_TOKENS),
        TableDrafter(TABLE, counts),
    )
    return {**ssm_pool.ssms, **{one.name: one for one in lookups}}


def resolve_drafters(entries: Many[str], ssms: Many[str]) -> tuple[str, ...]:
    """`all` and `first` replaced by names of SSMs, or where none is loaded of the drafters that
    learn from texts; each name once, in order. Raises ConfigError for an unknown name.
    """
    names: list[str] = []
    every = tuple(ssms) or (SUFFIX, TABLE)
    for name in entries:
        if name in ("all", "first"):
            names.extend(every if name == "all" else every[:1])
        elif name == NGRAM and every[0] == SUFFIX and "all" in entries:
            continue  # `suffix` looks in this text too
        elif name in (*ssms, *MODEL_FREE):
            names.append(name)
        else:
            raise ConfigError.of(
                "drafters", name, f"one of {', '.join(('all', 'first', *ssms, *MODEL_FREE))}"
            )
    # A name that `all` covers and the caller gave too is one drafter.
    return tuple(dict.fromkeys(names))
