"""SsmDrafter: a small speculative model (SSM) as a drafter.

Kept in step with the committed text without recomputing it: the KV of the accepted part of its own
draft is kept, and what is missing (after full acceptance its own last token, and whatever the
others proposed) is caught up in one pass at the next draft.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, field, replace

import torch

from core.drafters.base import Ask, Draft
from core.drafters.calibration import Calibration
from core.drafters.growth import Growth, growth
from core.models.language_model import Feed, LanguageModel, chain
from core.sequence import Sequence, Timed
from core.tree import ROOT
from core.weights import needs_likelihoods

__all__ = ["SsmDrafter"]

PREFILL_CHUNK = 512
# Weights forget at 0.95 a token: what lies further back counts for less than 4 %.
JUDGED_PROMPT = 64
JUDGED_CHUNK = 32


@dataclass
class _State:
    """What the drafter keeps of one sequence.

    `told`: the probabilities it gave to the text's tokens, not yet asked for; tokens before
    `judged` are done with.
    """

    row: int
    calibration: Calibration
    judged: int = 0
    told: list[float] = field(default_factory=list)

    def judge(self, logits: torch.Tensor, tokens: list[int], first: int) -> None:
        """Notes how probable `tokens[first]`, `tokens[first + 1]`, ... were by `logits` (n, V),
        each once."""
        skipped = max(0, self.judged - first)
        wanted = tokens[first + skipped : first + logits.shape[0]]
        if not wanted or self.judged < first:
            return
        rows = logits[skipped : skipped + len(wanted)]
        ids = torch.tensor(wanted, device=logits.device)[:, None]
        chosen = rows.gather(-1, ids)[:, 0] - rows.logsumexp(dim=-1)
        self.told += chosen.exp().tolist()
        self.judged += len(wanted)


class SsmDrafter:
    """See Drafter. `vocab_size` is the LLM's: logits are padded to it with -inf, or cut."""

    def __init__(self, name: str, model: LanguageModel, vocab_size: int) -> None:
        self._name = name
        self._model = model
        self._vocab_size = vocab_size
        self._states: dict[str, _State] = {}
        self._carried = Calibration()

    @property
    def name(self) -> str:
        return self._name

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        carried = self._carried.copy() if sequence.speculation.carry_over else Calibration()
        state = _State(self._model.open_row(), carried, judged=len(sequence.tokens))
        self._states[sequence.run_id] = state
        start = time.perf_counter()
        tokens = self._known(sequence.tokens[:-1])
        if len(sequence.tokens) > self._model.context_length or not tokens:
            return ()
        wanted = JUDGED_PROMPT if needs_likelihoods(sequence.speculation) else 0
        state.judged = max(0, len(tokens) - wanted) + 1
        for part in _parts(tokens, wanted):
            first = self._model.length(state.row) + 1
            skim = first < state.judged
            (logits,) = self._model.forward([chain(state.row, part, last_only=skim)])
            self._model.commit(state.row, range(len(part)))
            if not skim:
                state.judge(self._padded(logits), sequence.tokens, first)
        return (Timed(self._name, "prefill", start, time.perf_counter()),)

    def draft(self, asks: Many[Ask]) -> list[Draft]:
        start = time.perf_counter()
        fitting = {i: self.fitted(ask) for i, ask in enumerate(asks)}
        growths = {
            i: growth(ask, self._states[ask.sequence.run_id].calibration)
            for i, ask in fitting.items()
            if ask.worth_starting
        }
        if not growths:
            return [Draft() for _ in asks]
        logits = self.catch_up([fitting[i] for i in growths])
        caught_up = time.perf_counter()
        passes = self._grow(growths, fitting, logits)
        timed = (
            Timed(self._name, "catch_up", start, caught_up),
            Timed(self._name, "draft", caught_up, time.perf_counter()),
        )
        return [
            replace(growths[i].draft(), timed=timed, passes=passes[i]) if i in growths else Draft()
            for i in range(len(asks))
        ]

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        state = self._states.get(sequence.run_id)
        if state is None or draft is None:
            return
        path = draft.walk(token_ids)
        self._observe(state.calibration, draft, path, token_ids)
        if needs_likelihoods(sequence.speculation) and draft.logits is not None:
            rows = [draft.rows[node] for node in (ROOT, *path) if node in draft.rows]
            state.judge(draft.logits[rows], sequence.tokens, len(sequence.tokens) - len(token_ids))
        # The last token is the next root, fed with the next catch-up: a draft that lost a vote may
        # hold it too.
        fed = [draft.fed[node] for node in path[: len(token_ids) - 1] if node in draft.fed]
        if self._model.length(state.row):
            self._model.commit(state.row, fed)

    def close(self, sequence: Sequence) -> None:
        state = self._states.pop(sequence.run_id, None)
        if state is not None:
            self._model.close_row(state.row)
            if sequence.speculation.carry_over:
                self._carried = state.calibration

    def temperature(self, sequence: Sequence) -> float:
        state = self._states.get(sequence.run_id)
        return state.calibration.temperature if state else 1.0

    def likelihoods(self, sequence: Sequence) -> list[float]:
        state = self._states.get(sequence.run_id)
        told = state.told if state else []
        if state:
            state.told = []
        return told

    # -- one draft --

    def fitted(self, ask: Ask) -> Ask:
        """The ask, cut to this model's own context."""
        room = self._model.context_length - ask.sequence.root_position
        return replace(ask, shape=ask.shape[: max(0, room)])

    def catch_up(self, asks: Many[Ask]) -> list[torch.Tensor]:
        """Feeds what was committed since; the logits after each root, (1, V)."""
        feeds = []
        for ask in asks:
            row = self._row(ask)
            missing = self._known(ask.sequence.tokens[self._model.length(row) :])
            skim = not needs_likelihoods(ask.sequence.speculation)
            feeds.append(chain(row, missing, last_only=skim))
        logits = [self._padded(rows) for rows in self._model.forward(feeds)]
        for ask, feed, rows in zip(asks, feeds, logits, strict=True):
            if not feed.last_only:
                first = self._model.length(feed.row) + 1
                self._states[ask.sequence.run_id].judge(rows, ask.sequence.tokens, first)
            self._model.commit(feed.row, range(len(feed.token_ids)))
        return [rows[-1:] for rows in logits]

    def _grow(
        self, growths: dict[int, Growth], asks: dict[int, Ask], logits: list[torch.Tensor]
    ) -> dict[int, int]:
        """Drives the growths in lock-step; the passes each took part in."""
        active = list(growths)
        passes = dict.fromkeys(active, 1)
        while True:
            for i, rows in zip(active, logits, strict=True):
                growths[i].absorb(rows)
            active = [i for i in active if growths[i].frontier]
            if not active:
                return passes
            for i in active:
                passes[i] += 1
            feeds = [self._feed(self._row(asks[i]), growths[i]) for i in active]
            logits = [self._padded(rows) for rows in self._model.forward(feeds)]

    def _feed(self, row: int, grown: Growth) -> Feed:
        out = grown.out
        parents = [out.parents[node] for node in grown.frontier]
        return Feed(
            row,
            [out.token_ids[node] for node in grown.frontier],
            [ROOT if parent == ROOT else out.fed[parent] for parent in parents],
        )

    def _known(self, tokens: list[int]) -> list[int]:
        """Ids of the LLM's padding that this model's embedding lacks, replaced by its last: a worse
        draft at worst, since verification trusts no drafter."""
        return [min(token_id, self._model.vocab_size - 1) for token_id in tokens]

    def feed(self, ask: Ask, grown: Growth) -> torch.Tensor:
        """One pass over a growth's frontier; its logits (n, V)."""
        return self._padded(self._model.forward([self._feed(self._row(ask), grown)])[0])

    def forget(self, ask: Ask) -> None:
        """Drops what was fed since the last commit; the committed text stays known."""
        row = self._row(ask)
        if self._model.length(row):
            self._model.commit(row, [])

    def calibration(self, ask: Ask) -> Calibration:
        """What makes its scores for this sequence mean what they say."""
        return self._states[ask.sequence.run_id].calibration

    def _row(self, ask: Ask) -> int:
        return self._states[ask.sequence.run_id].row

    def _padded(self, logits: torch.Tensor) -> torch.Tensor:
        missing = self._vocab_size - logits.shape[-1]
        if missing <= 0:
            return logits[..., : self._vocab_size]
        return torch.nn.functional.pad(logits, (0, missing), value=float("-inf"))

    @staticmethod
    def _observe(
        calibration: Calibration, draft: Draft, path: list[int], token_ids: tuple[int, ...]
    ) -> None:
        utilities = draft.utilities if draft.utilities is not None else draft.logits
        for node, token_id in zip([ROOT, *path], token_ids, strict=False):
            if utilities is not None and node in draft.rows:
                calibration.observe(utilities[draft.rows[node]], token_id)


def _parts(tokens: list[int], judged: int) -> list[list[int]]:
    """A prompt in chunks; the last `judged` tokens in small ones, since all their logits are
    wanted."""
    first = max(0, len(tokens) - judged)
    large = [tokens[i : min(i + PREFILL_CHUNK, first)] for i in range(0, first, PREFILL_CHUNK)]
    return large + [tokens[i : i + JUDGED_CHUNK] for i in range(first, len(tokens), JUDGED_CHUNK)]
