"""How a drafter chooses the children of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.config.mechanisms.records import by_name

__all__ = ["DRAFT_KINDS", "DraftKind"]


@dataclass(frozen=True, slots=True)
class DraftKind:
    """How a drafter chooses the children of a node.

    `drawn`: children are drawn at random from a distribution q. `distinct`: without replacement, so
    that verification renormalizes q after each draw. `coupled`: above temperature 0 the
    LLM's own noise is added to the SSM's log-probabilities. `by_score`: the likeliest paths come
    first, without a fixed shape. `fused`: the SSMs draft one chain together; their other proposals
    are branches. `by_credit`: the scores of SSMs that predicted well count more.
    """

    name: str
    label: str = ""
    drawn: bool = False
    distinct: bool = False
    coupled: bool = False
    by_score: bool = False
    fused: bool = False
    by_credit: bool = False
    meaning: str = ""


DRAFT_KINDS: Mapping[str, DraftKind] = by_name(
    [
        # Replaced by `SpeculationConfig.resolve`.
        DraftKind(
            "auto",
            "what suits verify",
            meaning="`topk` at temperature 0, above it what suits `verify`",
        ),
        DraftKind("topk", "the likeliest tokens", meaning="the SSM's most probable tokens"),
        # Top-k of log q + G. G: the Gumbel noise with which `match` draws the LLM's token.
        DraftKind(
            "coupled",
            "with the LLM's own noise",
            coupled=True,
            meaning="the SSM's choice under the noise with which the LLM will choose",
        ),
        # Gumbel-top-k (arXiv 1903.06059), in sorted order.
        DraftKind(
            "sampled",
            "drawn, each once",
            drawn=True,
            distinct=True,
            meaning="tokens drawn from the SSM without replacement",
        ),
        DraftKind(
            "sampled_iid",
            "drawn, with repeats",
            drawn=True,
            meaning="tokens drawn independently, repeats included",
        ),
        DraftKind(
            "best_first",
            "likeliest paths first",
            coupled=True,
            by_score=True,
            meaning="no fixed shape: the most probable paths first, until the node budget is spent",
        ),
        # CoSine's confidence-based token fusion (arXiv 2503.10325).
        DraftKind(
            "fused",
            "SSMs write one chain, the highest score decides",
            coupled=True,
            fused=True,
            meaning=(
                "the SSMs write one chain together: at each place each proposes a token, and that "
                "with the highest score is taken (CoSine)"
            ),
        ),
        # Not in CoSine's paper.
        DraftKind(
            "fused_credit",
            "fused; SSMs that predicted well count more",
            coupled=True,
            fused=True,
            by_credit=True,
            meaning=(
                "as `fused`, but an SSM that has predicted this text well counts for more, so that "
                "one that is sure and wrong stops being taken"
            ),
        ),
    ]
)
