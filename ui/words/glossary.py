"""Labels, meanings and number formats of the page's quantities; kinds of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["GLOSSARY", "TOKEN_KINDS", "Quantity", "TokenKind"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """`label` and `means` are shown to visitors. A number is shown multiplied by `scale`, with
    `places` decimals, followed by `sign`."""

    label: str
    means: str
    places: int = 0
    sign: str = ""
    scale: float = 1.0

    @property
    def title(self) -> str:
        """The label with a capital."""
        return self.label[:1].upper() + self.label[1:]

    def text(self, value: float | None) -> str:
        """`1.20x`, `64 %`; a dash for None, which was not measured."""
        return "–" if value is None else f"{self.scale * value:.{self.places}f}{self.sign}"

    def part_text(self, part: float | None, whole: float | None) -> str:
        """`2.5 of 2.9`; a dash if a number is None."""
        if part is None or whole is None:
            return self.text(None)
        return f"{self.text(part)} of {self.text(whole)}"

    def with_label(self, value: float | None) -> str:
        """`2.53 tokens / pass`."""
        return f"{self.text(value)} {self.label}"


def _share(label: str, means: str) -> Quantity:
    return Quantity(label, means, 0, " %", 100.0)


def _ms(label: str, means: str, places: int = 1) -> Quantity:
    return Quantity(label, means, places, " ms")


GLOSSARY: Mapping[str, Quantity] = MappingProxyType(
    {
        "mean_acceptance_length": Quantity(
            "tokens / pass",
            "1 + accepted tokens / rounds: the mean number of tokens that an LLM pass commits. A "
            "count, not a time: it depends on the machine only where measured times decide what is "
            "drafted.",
            2,
        ),
        "accepted_per_pass": Quantity(
            "accepted / pass",
            "Mean accepted tokens per pass, of the mean depth of the trees: a pass accepts at most "
            "one branch of a tree.",
            1,
        ),
        # Not divided by nodes: even a completely accepted branch has few of a wide tree's nodes.
        "draft_acceptance_rate": _share(
            "accepted of depth",
            "Accepted tokens divided by the depths of the trees, not by their nodes: a pass "
            "accepts at most one branch of a tree.",
        ),
        "acceptance_rate_per_position": _share(
            "rate by position", "Share of rounds that accepted a token at this depth of the draft."
        ),
        "tokens_per_second": Quantity(
            "tokens / s",
            "New tokens per second, from the end of the prefill to the end of the run.",
            1,
        ),
        "speedup": Quantity("speed-up", "Speed divided by that of plain decoding.", 2, "x"),
        "num_rounds": Quantity(
            "LLM passes",
            "Rounds, one LLM pass each. A round drafts a tree, or nothing; the LLM verifies all of "
            "it in the pass; the accepted tokens and the LLM's own are committed.",
        ),
        "num_new_tokens": Quantity(
            "tokens", "Tokens written after the prompt: accepted drafts, and the LLM's own."
        ),
        "num_verified_nodes": Quantity(
            "nodes verified", "Nodes of all trees that the LLM verified."
        ),
        "ttft_ms": _ms("first token", "Time from leaving the queue to the first new token.", 0),
        "draft_ms": _ms("drafting", "Time of all drafting after the prompt, auditions included."),
        "verify_ms": _ms("LLM", "Time of all LLM passes after the prompt."),
        "total_ms": _ms("whole run", "Time from leaving the queue to the end of the run."),
        "overlap_ratio": _share(
            "overlap", "Share of the time of LLM passes in which a drafter of the run worked too."
        ),
        "draft_share": _share(
            "drafting, of model time",
            "Time of drafting, divided by that of drafting and LLM passes together.",
        ),
        # Columns of the lessons' tables, about one pass or one round.
        "pass_tokens": Quantity(
            "tokens in a pass",
            "Median number of tokens in one LLM pass: the last token and the tree.",
        ),
        "pass_nodes": Quantity(
            "nodes verified / pass", "Median number of tree nodes that one LLM pass verifies."
        ),
        "pass_ms": Quantity("ms / pass", "Median time of an LLM pass, in milliseconds.", 2),
        "token_ms": Quantity(
            "ms / token in the pass",
            "Time of an LLM pass divided by its tokens, of which only some are committed.",
            2,
        ),
        "round_drafted": Quantity(
            "drafted / round", "Mean number of tokens drafted for this request in a round.", 1
        ),
        "round_verified": Quantity(
            "checked / round",
            "Mean number of drafted tokens of this request that the LLM verified in a round.",
            1,
        ),
        "round_ms": Quantity("ms / round", "Mean time of a round, drafting and verifying.", 2),
        "exchanges": Quantity(
            "exchanges / pass", "How often the LLM's ranks exchange tensors in one pass."
        ),
        "exchange_ms": Quantity(
            "ms exchanging",
            "Median time that rank 0 spends in a pass's exchanges, waiting for others included.",
            2,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class TokenKind:
    """A kind of token."""

    name: str
    means: str


TOKEN_KINDS: Mapping[str, TokenKind] = MappingProxyType(
    {
        "accepted": TokenKind("accepted draft", "Drafted, and accepted by the LLM"),
        "recovered": TokenKind(
            "LLM after a rejection", "The LLM's own token where it rejected the drafts"
        ),
        "bonus": TokenKind(
            "bonus token", "The LLM's own token after an accepted branch, from the same pass"
        ),
        "plain": TokenKind("no draft", "The LLM's own token where no draft was verified"),
    }
)
"""By `kind` of `ui.run.view.TokenView`."""
