"""Drafters by name: the loaded SSMs (small speculative models), `ngram`, `suffix`, `table`, and
user-defined drafters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.config.mechanisms import MODEL_FREE, NGRAM, SUFFIX, TABLE
from core.drafters.base import Drafter, DraftRequest
from core.drafters.count_table import new_table
from core.drafters.ssm_pool import SsmPool
from core.drafters.suffix import EARLIER_TOKENS, SuffixDrafter
from core.drafters.table import TableDrafter
from core.drafters.user_drafters import make_user_drafter
from core.errors import ConfigError
from core.sequence import TokenSequence

__all__ = ["compile_lookups", "make_drafters", "resolve_drafters"]


def make_drafters(
    ssm_pool: SsmPool,
    vocab_size: int,
    counts: np.ndarray | None = None,
    own: Sequence[str] = (),
) -> dict[str, Drafter]:
    """The drafters of this process by name. `vocab_size`: the LLM's. `counts`: the rows with which
    `table` begins. `own`: import paths of user-defined drafters."""
    others: tuple[Drafter, ...] = (
        SuffixDrafter(NGRAM),
        SuffixDrafter(SUFFIX, EARLIER_TOKENS),
        TableDrafter(TABLE, counts),
        *(make_user_drafter(path, vocab_size) for path in own),
    )
    return {**ssm_pool.ssms, **{one.name: one for one in others}}


def compile_lookups(sequence: TokenSequence) -> None:
    """Calls the functions of `suffix` and `table`: no later call waits for compiling."""
    # `table` gets rows, so that `insert_rows` is compiled too.
    for drafter in (SuffixDrafter(SUFFIX, 64), TableDrafter(TABLE, new_table(4))):
        drafter.open(sequence)
        (draft,) = drafter.draft([DraftRequest(sequence, 0, "topk", (1,), 1)])
        drafter.commit(sequence, draft, (0,))
        drafter.learn(sequence)
        drafter.close(sequence)


def resolve_drafters(
    entries: Sequence[str], ssms: Sequence[str], own: Sequence[str] = ()
) -> tuple[str, ...]:
    """Replaces `all` by the names of all SSMs, and `first` by the first SSM's name. If no SSM is
    loaded, `all` stands for `suffix` and `table`, `first` for `suffix`, and `ngram` next to `all`
    is left out. Each name is returned once, in order. Raises ConfigError for an unknown name."""
    names: list[str] = []
    every = tuple(ssms) or (SUFFIX, TABLE)
    available = (*ssms, *MODEL_FREE, *own)
    for name in entries:
        if name in ("all", "first"):
            names.extend(every if name == "all" else every[:1])
        elif name == NGRAM and every[0] == SUFFIX and "all" in entries:
            continue  # `suffix` searches the run's text too
        elif name in available:
            names.append(name)
        else:
            raise ConfigError.must_be(
                "drafters", name, f"one of {', '.join(('all', 'first', *available))}"
            )
    return tuple(dict.fromkeys(names))
