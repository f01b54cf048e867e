"""An SsmDrafter's state of one sequence (SsmState), and the Feeder of its model.

A place is the index of a pending node (fed, not committed), or CACHED: the last committed token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, absorb_all
from core.drafters.lockstep import Steps
from core.models.protocol import CACHED, Feed, LanguageModel, chain
from core.trees.tree import TokenTree

__all__ = ["Feeder", "PendingTrie", "SsmState"]


class PendingTrie:
    """Trie of the nodes fed after the committed text, with their logits."""

    def __init__(self, root: torch.Tensor | None = None) -> None:
        self.logits: dict[int, torch.Tensor] = {} if root is None else {CACHED: root}
        self._parents: list[int] = []
        # (parent's place, token) -> place.
        self._children: dict[tuple[int, int], int] = {}

    @property
    def root(self) -> torch.Tensor | None:
        """The logits (V,) after the last committed token; None while that token is not fed."""
        return self.logits.get(CACHED)

    def __len__(self) -> int:
        return len(self._parents)

    def add(
        self, token_ids: Sequence[int], parents: Sequence[int], logits: torch.Tensor
    ) -> list[int]:
        """Adds fed nodes with their logits (n, V); returns their places."""
        first = len(self)
        places = list(range(first, first + len(token_ids)))
        for place, token_id, parent in zip(places, token_ids, parents, strict=True):
            self._parents.append(parent)
            # A token drawn twice under one parent is fed twice; `walk` follows its first node.
            self._children.setdefault((parent, token_id), place)
        self.logits.update(zip(places, logits, strict=True))
        return places

    def walk(self, token_ids: Sequence[int]) -> list[int]:
        """The places along `token_ids` from the root down, as far as they were fed."""
        places = [CACHED]
        for token_id in token_ids:
            place = self._children.get((places[-1], token_id))
            if place is None:
                break
            places.append(place)
        return places[1:]

    def nodes_to_feed(
        self, paths: Sequence[Sequence[int]]
    ) -> tuple[list[int], list[int], list[int]]:
        """Token ids and parents' places of the nodes that the trie lacks for `paths`, and the place
        where each path will end."""
        token_ids: list[int] = []
        parents: list[int] = []
        ends = []
        # Nodes that will be fed for earlier paths.
        planned: dict[tuple[int, int], int] = {}
        for path in paths:
            place = CACHED
            for token_id in path:
                child = self._children.get((place, token_id), planned.get((place, token_id)))
                if child is None:
                    child = planned[place, token_id] = len(self) + len(token_ids)
                    token_ids.append(token_id)
                    parents.append(place)
                place = child
            ends.append(place)
        return token_ids, parents, ends

    def subtree_after(self, path: Sequence[int]) -> tuple[list[int], dict[int, int], PendingTrie]:
        """The nodes under the last node of `path`, which stay when `path` is committed. Returns the
        places that stay, a map from old to new places (the path's last place becomes CACHED), and
        the new trie."""
        number = {path[-1]: CACHED}
        stay: list[int] = []
        # Parents come before their children: one loop finds all descendants.
        for place, parent in enumerate(self._parents):
            if parent in number:
                number[place] = len(stay)
                stay.append(place)
        # The path's last token becomes the last committed token: its logits are the new root's.
        rest = PendingTrie(self.logits[path[-1]])
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
    """State of one sequence. `row`: its row in the model's KV cache. `pending`: nodes fed after
    the committed text.

    `drafts_by_outcome`: drafts begun for the next round, by the outcome (committed tokens) that
    they assume; `ready`: the draft whose outcome came true. `likelihoods`: the recorded
    probabilities that were not reported yet. `scored_until`: index of the next token to record.
    """

    row: int
    calibration: Calibration
    scored_until: int = 0
    likelihoods: list[float] = field(default_factory=list)
    pending: PendingTrie = field(default_factory=PendingTrie)
    drafts_by_outcome: dict[tuple[int, ...], Growth] = field(default_factory=dict)
    ready: Growth | None = None

    def record_likelihoods(self, logits: torch.Tensor, tokens: list[int], first: int) -> None:
        """Appends the probabilities of `tokens[first]`, `tokens[first + 1]`, ... under `logits`
        (n, V), each token once; NaN for tokens whose logits were not computed."""
        unknown = max(0, first - self.scored_until)
        self.likelihoods += [math.nan] * unknown
        self.scored_until += unknown
        # These tokens' probabilities were recorded before, from pending nodes' logits.
        skipped = max(0, self.scored_until - first)
        judged_tokens = tokens[first + skipped : first + logits.shape[0]]
        if not judged_tokens:
            return
        rows = logits[skipped : skipped + len(judged_tokens)]
        ids = torch.tensor(judged_tokens, device=logits.device)[:, None]
        # log softmax at one token, without the (n, V) softmax.
        log_probs = rows.gather(-1, ids)[:, 0] - rows.logsumexp(dim=-1)
        self.likelihoods += log_probs.exp().tolist()
        self.scored_until += len(judged_tokens)

    def record_pending_likelihoods(self, committed: tuple[int, ...], tokens: list[int]) -> None:
        """Appends the probabilities of the `committed` tokens (the last of `tokens`) under the
        logits of the pending nodes on their path."""
        if self.pending.root is None:
            return
        # The place before each committed token, as far as tokens were fed.
        places = [CACHED, *self.pending.walk(committed)][: len(committed)]
        logits = torch.stack([self.pending.logits[place] for place in places])
        self.record_likelihoods(logits, tokens, len(tokens) - len(committed))


# The most tokens of a pass of `read_text`; bounds the pass's logits, (READ_CHUNK, V).
READ_CHUNK = 128
# The least log-probability that `score_tokens` returns: finite, so that a text's mean is finite.
UNKNOWN = -20.0


class Feeder:
    """Feeds one SSM's model. `vocab_size` is the LLM's: logits are padded to it with -inf, or
    cut."""

    def __init__(self, model: LanguageModel, vocab_size: int) -> None:
        self.model = model
        self.vocab_size = vocab_size

    def text_feed(self, state: SsmState, tokens: list[int], *, last_only: bool) -> Feed:
        """A feed of the committed `tokens` that the row lacks."""
        missing = self._clip_ids(tokens[self.model.length(state.row) :])
        return chain(state.row, missing, last_only=last_only)

    def feed_text(
        self, states: Sequence[SsmState], feeds: Sequence[Feed]
    ) -> Steps[list[torch.Tensor]]:
        """One pass over committed tokens, one feed per state. Returns the tokens' logits (n, V)."""
        logits = [self.pad_logits(rows) for rows in (yield feeds)]
        for state, feed, rows in zip(states, feeds, logits, strict=True):
            # The text is certain: its tokens are committed at once.
            self.model.commit(feed.row, range(len(feed.token_ids)))
            # rows (n, V); (1, V) with `last_only`.
            state.pending = PendingTrie(rows[-1])
        return logits

    def feed_nodes(
        self, nodes_by_state: Sequence[tuple[SsmState, list[int], list[int]]]
    ) -> Steps[list[tuple[list[int], torch.Tensor]]]:
        """One pass over (state, token ids, parents' places). Returns the nodes' places and logits
        (n, V) for each state."""
        feeds = [
            Feed(state.row, self._clip_ids(ids), parents) for state, ids, parents in nodes_by_state
        ]
        outputs = []
        for (state, ids, parents), rows in zip(nodes_by_state, (yield feeds), strict=True):
            logits = self.pad_logits(rows)
            # The model numbers its pending nodes in the same order.
            outputs.append((state.pending.add(ids, parents, logits), logits))
        return outputs

    def feed_frontiers(
        self, groups: Sequence[tuple[SsmState, Sequence[Growth]]]
    ) -> Steps[list[torch.Tensor]]:
        """One pass over the frontiers of growths; the frontiers of one row are concatenated.
        Returns the logits (n, V) of each row."""
        nodes_by_state = []
        for state, growths in groups:
            parents = [g.places[g.out.parents[node]] for g in growths for node in g.frontier]
            ids = [g.out.token_ids[node] for g in growths for node in g.frontier]
            nodes_by_state.append((state, ids, parents))
        fed = yield from self.feed_nodes(nodes_by_state)
        for (_, growths), (places, _) in zip(groups, fed, strict=True):
            place = iter(places)
            for growth in growths:
                # Not strict: several growths read from one iterator.
                growth.places.update(zip(growth.frontier, place, strict=False))
        return [rows for _, rows in fed]

    def extend_growths(self, groups: Sequence[tuple[SsmState, Sequence[Growth]]]) -> Steps[None]:
        """One pass over the growths' frontiers; the growths absorb the logits."""
        logits = yield from self.feed_frontiers(groups)
        parts: list[torch.Tensor] = []
        for (_, growths), rows in zip(groups, logits, strict=True):
            parts += torch.split(rows, [len(growth.frontier) for growth in growths])
        absorb_all([growth for _, growths in groups for growth in growths], parts)

    def feed_trees(self, trees: Sequence[tuple[SsmState, TokenTree]]) -> Steps[list[torch.Tensor]]:
        """One pass over the trees' nodes that were not fed yet, if any. Returns the logits (1 +
        nodes, V) after the root and every node of each tree."""
        nodes_by_state, ends = [], []
        for state, tree in trees:
            paths = [tree.tokens_to(node) for node in range(len(tree))]
            ids, parents, places = state.pending.nodes_to_feed(paths)
            nodes_by_state.append((state, ids, parents))
            ends.append([CACHED, *places])
        if fed := [one for one in nodes_by_state if one[1]]:
            yield from self.feed_nodes(fed)
        pairs = zip(trees, ends, strict=True)
        return [torch.stack([state.pending.logits[p] for p in ps]) for (state, _), ps in pairs]

    def score_tokens(self, token_ids: Sequence[int]) -> Steps[list[float]]:
        """Log-probabilities of these tokens except the first token, at least UNKNOWN each, computed
        in a temporary row."""
        row = self.model.open_row()
        try:
            (logits,) = yield [chain(row, self._clip_ids(list(token_ids[:-1])))]
        finally:
            # If the pass fails, the generator ends at its `yield`.
            self.model.close_row(row)
        log_probs = self.pad_logits(logits).log_softmax(dim=-1)
        ids = torch.tensor(token_ids[1:], device=log_probs.device)
        token_log_probs = log_probs.gather(-1, ids[:, None])
        log_probs_by_token: list[float] = token_log_probs[:, 0].clamp(min=UNKNOWN).tolist()
        return log_probs_by_token

    def read_text(
        self, token_ids: Sequence[int], first: int, on_logits: Callable[[torch.Tensor, int], None]
    ) -> Steps[None]:
        """Feeds a text in a temporary row, READ_CHUNK tokens a pass. `on_logits` gets the logits
        (n, V) that predict tokens from `first` on, and the index of the first token that they
        predict."""
        row = self.model.open_row()
        # Nothing is predicted after the last token: it is not fed.
        ids = self._clip_ids(list(token_ids[:-1]))
        try:
            for start in range(0, len(ids), READ_CHUNK):
                chunk = ids[start : start + READ_CHUNK]
                # The logits after token i predict token i + 1.
                last_only = start + len(chunk) < first
                (logits,) = yield [chain(row, chunk, last_only=last_only)]
                self.model.commit(row, range(len(chunk)))
                if not last_only:
                    skipped = max(0, first - start - 1)
                    on_logits(self.pad_logits(logits[skipped:]), start + skipped + 1)
        finally:
            self.model.close_row(row)

    def drop_pending(self, state: SsmState) -> None:
        """Drops all pending nodes and drafts; the committed text and its last logits stay."""
        if self.model.pending(state.row):
            self.model.commit(state.row, [])
        state.pending = PendingTrie(state.pending.root)
        state.drafts_by_outcome, state.ready = {}, None

    def commit(self, state: SsmState, token_ids: tuple[int, ...]) -> None:
        """Commits `token_ids`. Keeps the KV of the tokens that were fed, and the draft made ahead
        that assumed exactly these tokens. Without this draft the last token's KV is dropped."""
        path, pending = state.pending.walk(token_ids), state.pending
        state.ready, state.drafts_by_outcome = state.drafts_by_outcome.get(token_ids), {}
        if state.ready is None:
            # The last token is the next root: the next draft feeds it, even if it was fed before.
            state.pending = PendingTrie()
            self.model.commit(state.row, path[: len(token_ids) - 1])
            return
        # The KV of the path and of the draft made ahead stays; everything else is dropped.
        stay, number, state.pending = pending.subtree_after(path)
        places = state.ready.places.items()
        state.ready.places = {node: number[place] for node, place in places}
        self.model.commit(state.row, path, stay)

    def _clip_ids(self, tokens: list[int]) -> list[int]:
        """Replaces ids that this model's embedding lacks (the LLM's padding) by its last id."""
        last_id = self.model.num_embeddings - 1
        return [min(token_id, last_id) for token_id in tokens]

    def pad_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits padded to the LLM's vocabulary with -inf, or cut to it."""
        missing = self.vocab_size - logits.shape[-1]
        if missing == 0:
            return logits
        if missing < 0:
            return logits[..., : self.vocab_size]
        return torch.nn.functional.pad(logits, (0, missing), value=float("-inf"))
