"""Feeding: one SSM's passes for many sequences; what was fed is noted in each sequence's state.

Knows models, growths and trees; proposes nothing and decides nothing. What wants a pass is Steps:
whoever drives it makes the passes, of several SSMs together perhaps.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import torch

from core.drafters.growth import Growth, absorbed
from core.drafters.lockstep import Steps
from core.drafters.pending import Pending
from core.drafters.proposers import apart
from core.drafters.state import SsmState
from core.models.protocol import Feed, LanguageModel, chain
from core.trees.tree import ROOT, TokenTree

__all__ = ["Feeding"]

# The logarithm of a probability that counts for a token that a model does not have.
UNKNOWN = -20.0


class Feeding:
    """`vocab_size` is the LLM's: logits are padded to it with -inf, or cut."""

    def __init__(self, model: LanguageModel, vocab_size: int) -> None:
        self.model = model
        self.vocab_size = vocab_size

    def text(self, state: SsmState, tokens: list[int], *, last_only: bool) -> Feed:
        """The committed tokens that the row lacks, as a feed; `tokens` are all of them."""
        missing = self._known(tokens[self.model.length(state.row) :])
        return chain(state.row, missing, last_only=last_only)

    def read(self, states: Many[SsmState], feeds: Many[Feed]) -> Steps[list[torch.Tensor]]:
        """One pass over committed tokens, a feed a state; their logits (n, V)."""
        logits = [self.padded(rows) for rows in (yield feeds)]
        for state, feed, rows in zip(states, feeds, logits, strict=True):
            self.model.commit(feed.row, range(len(feed.token_ids)))
            state.pending = Pending(rows[-1])
        return logits

    def nodes(
        self, wanted: Many[tuple[SsmState, list[int], list[int]]]
    ) -> Steps[list[tuple[list[int], torch.Tensor]]]:
        """One pass over (state, token ids, parents' places); places and logits (n, V) of each."""
        feeds = [Feed(state.row, self._known(ids), parents) for state, ids, parents in wanted]
        found = []
        for (state, ids, parents), rows in zip(wanted, (yield feeds), strict=True):
            padded = self.padded(rows)
            found.append((state.pending.add(ids, parents, padded), padded))
        return found

    def frontiers(self, groups: Many[tuple[SsmState, Many[Growth]]]) -> Steps[list[torch.Tensor]]:
        """One pass over the frontiers of growths, those of one row behind one another."""
        wanted = []
        for state, growths in groups:
            parents = [g.places[g.out.parents[node]] for g in growths for node in g.frontier]
            ids = [g.out.token_ids[node] for g in growths for node in g.frontier]
            wanted.append((state, ids, parents))
        fed = yield from self.nodes(wanted)
        for (_, growths), (places, _) in zip(groups, fed, strict=True):
            place = iter(places)
            for grown in growths:
                grown.places.update(zip(grown.frontier, place, strict=False))
        return [rows for _, rows in fed]

    def advance(self, groups: Many[tuple[SsmState, Many[Growth]]]) -> Steps[None]:
        """Such a pass, whose logits the growths take in."""
        found = yield from self.frontiers(groups)
        parts = []
        for (_, growths), rows in zip(groups, found, strict=True):
            parts += apart(rows, [len(grown.frontier) for grown in growths])
        absorbed([grown for _, growths in groups for grown in growths], parts)

    def tree(self, asked: Many[tuple[SsmState, TokenTree]]) -> Steps[list[torch.Tensor]]:
        """One pass over the nodes of trees that were not fed yet, if there are any; the logits
        after the root and every node, (1 + nodes, V)."""
        wanted, ends = [], []
        for state, tree in asked:
            paths = [tree.tokens_to(node) for node in range(len(tree))]
            ids, parents, places = state.pending.missing(paths)
            wanted.append((state, ids, parents))
            ends.append([ROOT, *places])
        if fed := [one for one in wanted if one[1]]:
            yield from self.nodes(fed)
        pairs = zip(asked, ends, strict=True)
        return [torch.stack([state.pending.logits[p] for p in ps]) for (state, _), ps in pairs]

    def audition(self, token_ids: Many[int]) -> Steps[float]:
        """The mean logarithm of the probabilities of these tokens, but for the first; in a row of
        its own, which is given back."""
        row = self.model.open_row()
        try:
            (logits,) = yield [chain(row, self._known(list(token_ids[:-1])))]
        finally:
            self.model.close_row(row)
        told = self.padded(logits).log_softmax(dim=-1)
        chosen = told.gather(-1, torch.tensor(token_ids[1:], device=told.device)[:, None])
        return float(chosen.clamp(min=UNKNOWN).mean())

    def forget(self, state: SsmState) -> None:
        """Drops what is pending; the committed text stays known, and what may follow it."""
        if self.model.pending(state.row):
            self.model.commit(state.row, [])
        state.pending, state.guesses, state.ready = Pending(state.pending.root), {}, None

    def commit(self, state: SsmState, token_ids: tuple[int, ...]) -> None:
        """`token_ids` were committed: keeps what of them was fed, and the draft that hoped for
        them."""
        path, pending = state.pending.walk(token_ids), state.pending
        state.ready, state.guesses = state.guesses.get(token_ids), {}
        if state.ready is None:
            # The last token is the next root, fed with the next catch-up: a draft that lost a vote
            # may hold it too.
            state.pending = Pending()
            self.model.commit(state.row, path[: len(token_ids) - 1])
            return
        stay, number, state.pending = pending.behind(path)
        placed = state.ready.places.items()
        state.ready.places = {node: number[place] for node, place in placed}
        self.model.commit(state.row, path, stay)

    def _known(self, tokens: list[int]) -> list[int]:
        """Ids of the LLM's padding that this model's embedding lacks, replaced by its last: a worse
        draft at worst, since verification trusts no drafter."""
        return [min(token_id, self.model.vocab_size - 1) for token_id in tokens]

    def padded(self, logits: torch.Tensor) -> torch.Tensor:
        """As many as the LLM has tokens: -inf for those that the model lacks, or cut."""
        missing = self.vocab_size - logits.shape[-1]
        if missing == 0:
            return logits
        if missing < 0:
            return logits[..., : self.vocab_size]
        return torch.nn.functional.pad(logits, (0, missing), value=float("-inf"))
