"""The two sides of a pipelined round, apart from each other and from the engine: a draftsman with
the SSMs and one text, and a verifier with the LLM.

A rehearsal: the text is known beforehand, each round commits one token of it, and the LLM verifies
what was drafted a round ago. So both sides do their real work, of the same size in every form of
running them side by side. What the sides tell each other is plain: it fits through a pipe.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from core.budget import cut_shape, shape_nodes, shares
from core.config import Request, SamplingParams, SpeculationConfig
from core.drafters import make_drafters
from core.drafters.base import Ask, Draft, Drafter
from core.drafters.homes import Homes
from core.intake import prepare
from core.models.language_model import Feed, LanguageModel, chain
from core.models.loading import LoadedModels
from core.sequence import Sequence as Text
from core.tree import ROOT

__all__ = ["Drafted", "Draftsman", "Verifier"]

ROOM = 4096  # tokens a text may grow by: more than any rehearsal has


@dataclass(frozen=True, slots=True)
class Drafted:
    """The drafters' trees beside each other under one root, and how long drafting took."""

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    ms: float


class Draftsman:
    """Drafts for one text at a time, as `work` says."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models
        homes = Homes(models.ssms, models.llm, "thread")
        self._drafters = make_drafters(homes)
        self._text: Text | None = None
        self._drafts: dict[str, Draft] = {}

    def open(self, prompt: str, work: SpeculationConfig) -> None:
        """Takes up a text; the one before is forgotten."""
        self.close()
        sampling = SamplingParams(max_new_tokens=ROOM, ignore_eos=True, seed=0)
        text = self._text = prepare(self._models, Request(prompt, sampling, work))
        self._drafts = {}
        for drafter in self._chosen(text):
            drafter.open(text)

    def next(self, token_id: int | None = None) -> Drafted:
        """Commits a token (none before the first draft) and drafts what may follow it."""
        assert self._text is not None, "open a text first"
        start = time.perf_counter()
        if token_id is not None:
            self._text.commit((token_id,))
            for drafter in self._chosen(self._text):
                drafter.commit(self._text, self._drafts.get(drafter.name), (token_id,))
        self._drafts = {}
        for ask in self._asks(self._text):
            (self._drafts[ask.name],) = self._drafters[ask.name].draft([ask])
        token_ids, parents = beside(list(self._drafts.values()))
        return Drafted(token_ids, parents, (time.perf_counter() - start) * 1000)

    def close(self) -> None:
        """Forgets the text; safe to call in any state."""
        if self._text is not None:
            for drafter in self._chosen(self._text):
                drafter.close(self._text)
            self._text = None

    def _chosen(self, text: Text) -> list[Drafter]:
        return [self._drafters[name] for name in text.speculation.drafters]

    def _asks(self, text: Text) -> list[Ask]:
        config = text.speculation
        shape = config.shape(config.speculation_length)
        nodes = config.max_tree_nodes
        whole = nodes if isinstance(nodes, int) else shape_nodes(shape) * len(config.drafters)
        budgets = shares(config.combine, whole, config.drafters)
        return [
            Ask(text, index, config.draft, cut_shape(shape, budget), budget, name)
            for index, (name, budget) in enumerate(zip(config.drafters, budgets, strict=True))
        ]


class Verifier:
    """The LLM's side: one row, one pass a round."""

    def __init__(self, llm: LanguageModel) -> None:
        self._llm = llm
        self._row: int | None = None

    def open(self, token_ids: Sequence[int]) -> None:
        """Reads a prompt but its last token, which is the first root."""
        self.close()
        self._row = self._llm.open_row()
        if len(token_ids) > 1:
            self._llm.forward([chain(self._row, token_ids[:-1], last_only=True)])
            self._llm.commit(self._row, range(len(token_ids) - 1))

    def verify(self, root: int, drafted: Drafted) -> float:
        """One pass over the root and what was drafted; keeps the root. Its milliseconds."""
        assert self._row is not None, "open a text first"
        start = time.perf_counter()
        parents = [ROOT, *(parent + 1 for parent in drafted.parents)]
        (logits,) = self._llm.forward([Feed(self._row, [root, *drafted.token_ids], parents)])
        logits.argmax(dim=-1).tolist()
        self._llm.commit(self._row, [0])
        return (time.perf_counter() - start) * 1000

    def close(self) -> None:
        """Gives the row back; safe to call in any state."""
        if self._row is not None:
            self._llm.close_row(self._row)
            self._row = None


def beside(drafts: Sequence[Draft]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Token ids and parents of several trees under one root, none merged."""
    token_ids: list[int] = []
    parents: list[int] = []
    for draft in drafts:
        first = len(token_ids)
        token_ids += draft.token_ids
        parents += [ROOT if parent == ROOT else first + parent for parent in draft.parents]
    return tuple(token_ids), tuple(parents)
