"""What SYNTHETIC runs are made of: their vocabulary, hostile texts, and the merging of drafts.

Knows core's contracts only; see bench/made/run.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from core.events import DraftRecord, ModelInfo, ProposalRecord

MAX_NODES = 32
PROSE = "the river ran past old mill and into town where nobody had seen a fox since winter"
CODE = "def turn ( left , right ) : return left + right ; She said yes . No one knew why"
WORDS = (*PROSE.split(), *CODE.split(), "\n")
CHARACTERS = ("é", "—", "狐", "🦊")

HOSTILE_TEXTS = (
    "<img src=x onerror=\"globalThis.pwned='img'\">",
    "</script><script>globalThis.pwned='script'</script>",
    "${globalThis.pwned='template'}",
    r"\u{zz}",
    "{{value}}{% raw %}`",
    "\u202eright to left\u2066 isolate\u200f",
    "\x1b[31mred\x07\x08\x7f\x85",
    "nul\x00inside",
    "\x00",
    "\r\n\t\v\f\u2028\u2029",
    "e" + "\u0301" * 40,
    "&lt;&#39;\"'--;DROP TABLE runs;/*",
    "\ufeff\u200b\u00ad",
    "x" * 3000,
)


def vocabulary(hostile: bool) -> list[bytes]:
    """Token id -> bytes; a character above ASCII is two tokens, neither of them text by itself."""
    words = [b"<|endoftext|>", *((" " + word).encode() for word in WORDS)]
    for character in CHARACTERS:
        whole = character.encode()
        words += [whole[:1], whole[1:]]
    return words + [text.encode() for text in HOSTILE_TEXTS if hostile]


def models(drafters: tuple[str, ...], vocab_size: int) -> tuple[ModelInfo, ...]:
    """An LLM that does not exist, and one SSM a drafter."""
    shared = ("None", vocab_size, 512, "float32", "cpu")
    return (
        ModelInfo("synthetic-llm", "llm", 31_000, *shared),
        *(ModelInfo(name, "ssm", 1_000, *shared) for name in drafters),
    )


@dataclass
class MergedTree:
    """The merged tree while it grows."""

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    proposals: list[list[ProposalRecord]] = field(default_factory=list)
    dropped: list[tuple[str, int]] = field(default_factory=list)
    index: dict[tuple[int, int], int] = field(default_factory=dict)
    most: int = MAX_NODES

    def add(self, draft: DraftRecord) -> dict[int, int]:
        """Merge a draft; what no longer fits is dropped with all that follows it. Returns the node
        of each of its tokens."""
        place: dict[int, int] = {-1: -1}
        for i, token in enumerate(draft.token_ids):
            parent = place.get(draft.parents[i])
            known = None if parent is None else self.index.get((parent, token))
            if parent is None or (known is None and len(self.token_ids) >= self.most):
                self.dropped.append((draft.drafter, i))
                continue
            node = len(self.token_ids) if known is None else known
            if known is None:
                self.index[parent, token] = node
                self.token_ids.append(token)
                self.parents.append(parent)
                self.depths.append(draft.depths[i])
                self.proposals.append([])
            place[i] = node
            self.proposals[node].append(
                ProposalRecord(draft.drafter, draft.scores[i], draft.qs[i], draft.ranks[i])
            )
        return place

    def only(self, nodes: list[int]) -> MergedTree:
        """The tree of these nodes, which are in order and closed under ancestors."""
        number = {-1: -1} | {node: i for i, node in enumerate(nodes)}
        made = MergedTree(dropped=self.dropped)
        for node in nodes:
            made.index[number[self.parents[node]], self.token_ids[node]] = number[node]
            made.token_ids.append(self.token_ids[node])
            made.parents.append(number[self.parents[node]])
            made.depths.append(self.depths[node])
            made.proposals.append(self.proposals[node])
        return made

    def children(self, node: int) -> list[int]:
        return [i for i, parent in enumerate(self.parents) if parent == node]


class Target:
    """The text "the LLM would write": token ids, and how hard each is to guess (0 to 1)."""

    def __init__(self, rng: random.Random, hostile: bool) -> None:
        self.token_ids: list[int] = []
        self.hardness: list[float] = []
        self._rng, self._hostile = rng, hostile

    def extend(self, length: int) -> None:
        """Go on until there are `length` tokens or more, whole characters only."""
        while len(self.token_ids) < length:
            unit = self._unit()
            self.token_ids += unit
            self.hardness += [self._rng.random() for _ in unit]

    def _unit(self) -> list[int]:
        first_pair = 1 + len(WORDS)
        first_hostile = first_pair + 2 * len(CHARACTERS)
        chance = self._rng.random()
        if self._hostile and chance < 0.2:
            return [first_hostile + self._rng.randrange(len(HOSTILE_TEXTS))]
        if chance > 0.85:
            lead = first_pair + 2 * self._rng.randrange(len(CHARACTERS))
            return [lead, lead + 1]
        return [self._rng.randrange(1, first_pair)]
