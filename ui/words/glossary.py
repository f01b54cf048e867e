"""The words of the page for quantities: of each its label, its meaning and how numbers are shown;
and for the kinds of tokens in a text.

Heads of tables, axes, figures and tooltips, the report and the guide's table take them from here,
scripts too: `glossary.js` is made of them (ui/components/assets.py). Files and endpoints have the
names of RunStats instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["GLOSSARY", "TOKEN_KINDS", "Quantity", "TokenKind"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number is shown times `scale`, with `places` decimals, followed by `sign`."""

    label: str
    means: str
    places: int = 0
    sign: str = ""
    scale: float = 1.0

    @property
    def title(self) -> str:
        """The label as the beginning of a line."""
        return self.label[:1].upper() + self.label[1:]

    def text(self, value: float | None) -> str:
        """`1.20x`, `64 %`; a dash for what was not measured."""
        return "–" if value is None else f"{self.scale * value:.{self.places}f}{self.sign}"

    def of_text(self, part: float | None, whole: float | None) -> str:
        """`2.5 of 2.9`; a dash for what was not measured."""
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
            "1 + accepted tokens / rounds: what one pass of the LLM brings: a count, not a time. "
            "Only where measured times choose the length does it depend on the machine.",
            2,
        ),
        "accepted_per_pass": Quantity(
            "accepted / pass",
            "Accepted tokens in each pass, of the depth of the draft: of a tree a pass accepts at "
            "most one branch.",
            1,
        ),
        # Not over nodes: in a wide tree even the longest accepted branch is a part of the nodes.
        "draft_acceptance_rate": _share(
            "accepted of depth",
            "Accepted tokens over the depth of the drafts, not their nodes: of a tree a pass "
            "accepts at most one branch.",
        ),
        "acceptance_rate_per_position": _share(
            "rate by position", "Share of rounds that accepted the token at this position."
        ),
        "tokens_per_second": Quantity(
            "tokens / s",
            "New tokens per second, from the end of the prefill to the end of the run.",
            1,
        ),
        "speedup": Quantity("speed-up", "Speed over that of plain decoding.", 2, "x"),
        "num_rounds": Quantity(
            "LLM passes",
            "Rounds: each drafts a tree, has the LLM check all of it in one pass, and commits what "
            "it accepts.",
        ),
        "num_new_tokens": Quantity(
            "tokens", "Tokens written after the prompt, accepted drafts and the LLM's own."
        ),
        "num_verified_nodes": Quantity(
            "nodes verified", "Nodes of all trees that the LLM checked."
        ),
        "ttft_ms": _ms("first token", "Time from leaving the queue to the first new token.", 0),
        "draft_ms": _ms("drafting", "Time of all drafting."),
        "verify_ms": _ms("LLM", "Time of all passes of the LLM."),
        "total_ms": _ms("whole run", "Time from leaving the queue to the end of the run."),
        "overlap_ratio": _share(
            "overlap", "Share of the LLM's time in which a drafter worked too."
        ),
        "draft_share": _share(
            "drafting, of model time",
            "Of the time that drafters and LLM were at work, the drafters' part.",
        ),
        # Of one pass or one round, in the lessons.
        "pass_tokens": Quantity(
            "tokens in a pass", "Median of the tokens that the LLM works on in one pass."
        ),
        "pass_nodes": Quantity(
            "nodes verified / pass", "Median of the nodes verified in one pass."
        ),
        "pass_ms": Quantity("ms / pass", "Median time of one pass of the LLM, in milliseconds.", 2),
        "token_ms": Quantity(
            "ms / token in the pass",
            "Time of a pass over the tokens in it, of which most are only checked.",
            2,
        ),
        "round_drafted": Quantity(
            "drafted / round", "Mean of the drafted tokens of this request in a round.", 1
        ),
        "round_verified": Quantity("checked / round", "Mean of those that the LLM checked.", 1),
        "round_ms": Quantity("ms / round", "Mean time of a round, drafting and checking.", 2),
        "exchanges": Quantity(
            "exchanges / pass", "How often the parts of the LLM exchange numbers."
        ),
        "exchange_ms": Quantity(
            "ms exchanging", "Median time of a pass spent on that, with waiting.", 2
        ),
    }
)


@dataclass(frozen=True, slots=True)
class TokenKind:
    """What a token of the text is called, and what that means."""

    name: str
    means: str


TOKEN_KINDS: Mapping[str, TokenKind] = MappingProxyType(
    {
        "accepted": TokenKind("accepted draft", "Drafted, and accepted by the LLM"),
        "recovered": TokenKind(
            "LLM after a rejection", "The LLM's own token, where it rejected the drafts"
        ),
        "bonus": TokenKind(
            "bonus token", "The LLM's own token after an accepted branch, from the same pass"
        ),
        "plain": TokenKind("no draft", "The LLM's own token; nothing had been drafted"),
    }
)
"""By a token's `kind` (TokenView)."""
