"""Drafters by name: the loaded SSMs (small speculative models) and `ngram`."""

from __future__ import annotations

from collections.abc import Sequence as Many

from core.drafters.base import Drafter
from core.drafters.ngram import NGRAM, NgramDrafter
from core.drafters.ssm_pool import SsmPool
from core.errors import ConfigError

__all__ = ["make_drafters", "resolve_drafters"]


def make_drafters(ssm_pool: SsmPool) -> dict[str, Drafter]:
    """Every drafter that the loaded models allow, by name."""
    return {**ssm_pool.ssms, NGRAM: NgramDrafter()}


def resolve_drafters(wanted: Many[str], ssms: Many[str]) -> tuple[str, ...]:
    """`all` and `first` replaced by names of SSMs, each name once, in order.

    Raises ConfigError for an unknown name, or where an SSM is asked for and none is loaded.
    """
    names: list[str] = []
    for name in wanted:
        if name in ("all", "first"):
            if not ssms:
                raise ConfigError.of(
                    "drafters", name, "no SSM is loaded: give --ssm, or choose ngram"
                )
            names.extend(ssms if name == "all" else ssms[:1])
        elif name in (*ssms, NGRAM):
            names.append(name)
        else:
            raise ConfigError.of(
                "drafters", name, f"one of {', '.join(('all', 'first', *ssms, NGRAM))}"
            )
    # A name that `all` covers and the caller gave too is one drafter.
    return tuple(dict.fromkeys(names))
