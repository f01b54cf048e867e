"""What an SsmDrafter keeps of one sequence between `open` and `close`, and how an SSM reads on: the
committed text it lacks, then pending nodes.

A place is an index among the row's pending nodes; ROOT is the last committed token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch

from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, absorbed
from core.drafters.lockstep import Steps
from core.drafters.proposers import apart
from core.models.protocol import Feed, LanguageModel, chain
from core.trees.tree import ROOT, TokenTree

__all__ = ["Feeding", "Pending", "SsmState"]


class Pending:
    """Starts with nothing fed; `root` are the logits (V,) after the last committed token."""

    def __init__(self, root: torch.Tensor | None = None) -> None:
        self.logits: dict[int, torch.Tensor] = {} if root is None else {ROOT: root}
        self._parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    @property
    def root(self) -> torch.Tensor | None:
        """The logits (V,) after the last committed token; None as long as the row lacks text."""
        return self.logits.get(ROOT)

    def __len__(self) -> int:
        return len(self._parents)

    def add(self, token_ids: Many[int], parents: Many[int], logits: torch.Tensor) -> list[int]:
        """Nodes that were fed, with their logits (n, V); returns their places."""
        first = len(self)
        places = list(range(first, first + len(token_ids)))
        for place, token_id, parent in zip(places, token_ids, parents, strict=True):
            self._parents.append(parent)
            # A token drawn twice is fed twice: the first is followed.
            self._children.setdefault((parent, token_id), place)
        self.logits.update(zip(places, logits, strict=True))
        return places

    def child(self, place: int, token_id: int) -> int | None:
        """Where `token_id` under `place` is; None if it was not fed."""
        return self._children.get((place, token_id))

    def walk(self, token_ids: Many[int]) -> list[int]:
        """The places along `token_ids` from the root down, as far as they were fed."""
        places = [ROOT]
        for token_id in token_ids:
            place = self._children.get((places[-1], token_id))
            if place is None:
                break
            places.append(place)
        return places[1:]

    def missing(self, paths: Many[Many[int]]) -> tuple[list[int], list[int], list[int]]:
        """What must be fed to have been fed all of `paths`: token ids and parents' places, as
        `add` takes them; and where each path will end."""
        token_ids: list[int] = []
        parents: list[int] = []
        ends = []
        planned: dict[tuple[int, int], int] = {}
        for path in paths:
            place = ROOT
            for token_id in path:
                found = self._children.get((place, token_id), planned.get((place, token_id)))
                if found is None:
                    found = planned[place, token_id] = len(self) + len(token_ids)
                    token_ids.append(token_id)
                    parents.append(place)
                place = found
            ends.append(place)
        return token_ids, parents, ends

    def behind(self, path: Many[int]) -> tuple[list[int], dict[int, int], Pending]:
        """What hangs under the last node of `path`, once the path is committed: the places that
        stay, each old place's new one (the path's last becomes ROOT), and the trie of them."""
        number = {path[-1]: ROOT}
        stay: list[int] = []
        for place, parent in enumerate(self._parents):
            if parent in number:
                number[place] = len(stay)
                stay.append(place)
        rest = Pending(self.logits[path[-1]])
        rest._parents = [number[self._parents[place]] for place in stay]
        rest.logits.update({number[place]: self.logits[place] for place in stay})
        rest._children = {
            (number[parent], token_id): number[place]
            for (parent, token_id), place in self._children.items()
            if place in number and parent in number
        }
        return stay, number, rest


@dataclass
class SsmState:
    """`row`: the model's. `pending`: what it was fed behind the committed text.

    `guesses`: drafts begun for the next round, by the tokens they hope to see committed; `ready`:
    the one whose hope came true. `told`: the probabilities it gave to the text's tokens, not yet
    asked for; tokens before `judged` are done with.
    """

    row: int
    calibration: Calibration
    judged: int = 0
    told: list[float] = field(default_factory=list)
    pending: Pending = field(default_factory=Pending)
    guesses: dict[tuple[int, ...], Growth] = field(default_factory=dict)
    ready: Growth | None = None

    def judge(self, logits: torch.Tensor, tokens: list[int], first: int) -> None:
        """Notes how probable `tokens[first]`, `tokens[first + 1]`, ... were by `logits` (n, V),
        each once; of tokens that were read and not judged nothing is known (NaN)."""
        unknown = max(0, first - self.judged)
        self.told += [math.nan] * unknown
        self.judged += unknown
        skipped = max(0, self.judged - first)
        wanted = tokens[first + skipped : first + logits.shape[0]]
        if not wanted:
            return
        rows = logits[skipped : skipped + len(wanted)]
        ids = torch.tensor(wanted, device=logits.device)[:, None]
        chosen = rows.gather(-1, ids)[:, 0] - rows.logsumexp(dim=-1)
        self.told += chosen.exp().tolist()
        self.judged += len(wanted)

    def judge_pending(self, committed: tuple[int, ...], tokens: list[int]) -> None:
        """Notes how probable the `committed` tokens, the last of `tokens`, were by what was fed
        before they were known."""
        if self.pending.root is None:
            return
        places = [ROOT, *self.pending.walk(committed)][: len(committed)]
        logits = torch.stack([self.pending.logits[place] for place in places])
        self.judge(logits, tokens, len(tokens) - len(committed))


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
