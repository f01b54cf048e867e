"""Measures drafts of the drafter `table` without verification."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import count

from bench.timing import time_call
from core.config import Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import TABLE
from core.drafters.base import DraftRequest
from core.drafters.count_table import LONGEST_CONTEXT
from core.drafters.table import TableDrafter, fold_of
from core.engine.admission import prepare
from core.models.loading.load import LoadedModels
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.tree import ROOT
from lab.figures import median

NODES = 16
# There is a draft at every EVERY-th position of a text.
EVERY, TIMED_DRAFTS = 4, 400
FOLDS = 4
Texts = Sequence[Sequence[int]]


def draft_figures(models: LoadedModels, texts: Texts) -> dict[str, float]:
    """Figures of drafts in texts that the drafter has not counted. Times are measured with a
    drafter that has counted all texts.

    `looked`: look-ups, each of one hashed context. `contexts`: contexts of the roots and of all
    nodes that were extended. `in_turn`: look-ups that a table for each context length would need.
    `agreed`: drafts whose first token is the LLM's token; `covered`: drafts in which a token of
    depth 1 is the LLM's token. `rows`: contexts in a table that has counted all but 1 / FOLDS of
    the texts; `table_bytes`: the table's size. `us`: the median microseconds of the `timed` largest
    drafts, which have `draft_nodes` nodes."""
    names = ("looked", "contexts", "in_turn", "nodes", "drafts", "agreed", "covered")
    total = dict.fromkeys(names, 0)
    rows = table_bytes = 0
    # A text that was counted would be drafted from its own counts.
    for fold in range(FOLDS):
        others = [text for i, text in enumerate(texts) if i % FOLDS != fold]
        drafts = _Drafts(models, others)
        rows, table_bytes = drafts.table_size()
        for looked, draft, _, token in drafts.at_every(texts[fold::FOLDS]):
            first_level = _first_level(draft)
            contexts = [LONGEST_CONTEXT, *_contexts(draft, models.eos_ids)]
            total["looked"] += looked
            total["contexts"] += len(contexts)
            total["in_turn"] += sum(contexts)
            total["nodes"] += len(draft)
            total["drafts"] += 1
            total["agreed"] += first_level[:1] == [token]
            total["covered"] += token in first_level
    timed = [
        (len(draft), us) for _, draft, us, _ in _Drafts(models, texts).at_every(texts, TIMED_DRAFTS)
    ]
    largest = max((size for size, _ in timed), default=0)
    # The first call may compile.
    times = [us for size, us in timed[1:] if size == largest]
    sizes = {"draft_nodes": largest, "timed": len(times), "rows": rows, "table_bytes": table_bytes}
    return {**total, **sizes, "us": median(times or [0.0])}


def _contexts(draft: Draft, ends: Collection[int]) -> list[int]:
    """The longest possible context length of each node that was extended. End-of-text tokens, nodes
    of the largest depth and the last node of a full tree were not extended."""
    columns = zip(draft.token_ids, draft.depths, draft.contexts, strict=True)
    # As in `grow_tree`: a node that was counted after n tokens ends a context of n + 1 tokens.
    return [
        min(length + 1, LONGEST_CONTEXT)
        for at, (token, depth, length) in enumerate(columns)
        if at < NODES - 1 and depth < NODES and token not in ends
    ]


def _first_level(draft: Draft) -> list[int]:
    """Tokens of depth 1, the likeliest first."""
    columns = zip(draft.ranks, draft.token_ids, draft.parents, strict=True)
    return [token for _, token in sorted((r, t) for r, t, parent in columns if parent == ROOT)]


class _Drafts:
    """A drafter that has counted `texts`. `_probe` is the sequence to draft for. Its prompt has
    another `fold_of` than the texts' prompt: a fold's table leaves out texts of that fold."""

    def __init__(self, models: LoadedModels, texts: Texts) -> None:
        self._drafter = TableDrafter(TABLE, models.counts)
        sequence = _sequence(models, 0)
        for text in texts:
            sequence.tokens[:] = text
            self._drafter.learn(sequence)
        fold = fold_of(sequence.prompt_ids)
        self._probe = _sequence(models, next(n for n in count(1) if fold_of((n,)) != fold))
        self._drafter.open(self._probe)

    def table_size(self) -> tuple[int, int]:
        """The number of rows with counts, and the bytes of all rows, in `_probe`'s table."""
        table = self._drafter.tables[fold_of(self._probe.prompt_ids)]
        return int((table[:, -1] > 0).sum()), table.nbytes

    def at_every(self, texts: Texts, at_least: int = 0) -> Iterator[tuple[int, Draft, float, int]]:
        """Drafts at every EVERY-th position, at least `at_least` times. Yields (number of look-ups,
        draft, microseconds, the text's token)."""
        request = DraftRequest(self._probe, 0, "best_first", (2,) * NODES, NODES)
        positions = [
            (text, at) for text in texts for at in range(LONGEST_CONTEXT, len(text), EVERY)
        ]
        # Starts over until there are `at_least` drafts.
        for number in range(max(len(positions), at_least) if positions else 0):
            text, at = positions[number % len(positions)]
            self._probe.tokens[:] = text[:at]
            (draft,), seconds = time_call(partial(self._drafter.draft, [request]))
            yield self._drafter.num_lookups, draft, 1e6 * seconds, text[at]


def _sequence(models: LoadedModels, first: int) -> TokenSequence:
    """A sequence whose prompt is the token `first`."""
    config, sampling = SpeculationConfig(drafters=(TABLE,)), SamplingParams()
    return prepare(models, Request("table", sampling, config, prompt_token_ids=(first,)))
