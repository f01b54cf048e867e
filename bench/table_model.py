"""TableModel: a LanguageModel without a neural network."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.events import Event, ModelInfo, RunCompleted, RunStarted
from core.metrics import StatsFold
from core.models.loading.load import LoadedModels
from core.models.protocol import Feed
from core.trees.tree import ROOT

TABLE_ROWS = 64
CONTEXT = 1 << 14
LIKELY = 40.0  # added to the logits of ids in the LLM's vocabulary; far above the noise
AGREEMENT = 1.5  # scale of the noise added to an SSM's table
MAX_NODES, TOP_K = 24, 5
WARNING = "SYNTHETIC run: made by bench/table_model.py, no model ran."

Context = tuple[int, ...]
"""All tokens so far."""


@dataclass
class _Row:
    tokens: list[int] = field(default_factory=list)
    pending: list[tuple[int, int]] = field(default_factory=list)

    def context(self, node: int) -> Context:
        """The tokens up to a node that was fed but not committed."""
        path: list[int] = []
        while node != ROOT:
            token_id, node = self.pending[node]
            path.append(token_id)
        return (*self.tokens, *reversed(path))


class TableModel:
    """`logits(context)`: float32 (V,), of the token after the context. `num_embeddings` None: V."""

    def __init__(
        self,
        info: ModelInfo,
        logits: Callable[[Context], torch.Tensor],
        num_embeddings: int | None = None,
    ) -> None:
        self.info = info
        self.num_embeddings = num_embeddings or info.vocab_size
        self.vocab_size, self.context_length = info.vocab_size, info.context_length
        self.device = torch.device("cpu")
        self.slots = info.context_length
        self.passes = 0
        self.logits = logits
        self._rows: dict[int, _Row] = {}

    def open_row(self) -> int:
        row = next(i for i in itertools.count() if i not in self._rows)
        self._rows[row] = _Row()
        return row

    def close_row(self, row: int) -> None:
        del self._rows[row]

    def length(self, row: int) -> int:
        return len(self._rows[row].tokens)

    def tokens(self, row: int) -> Context:
        return tuple(self._rows[row].tokens)

    @property
    def open_rows(self) -> tuple[int, ...]:
        return tuple(self._rows)

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        self.passes += 1
        return [self._feed(feed) for feed in feeds]

    def _feed(self, feed: Feed) -> torch.Tensor:
        row = self._rows[feed.row]
        first = len(row.pending)
        row.pending.extend(zip(feed.token_ids, feed.parents, strict=True))
        nodes = range(first, len(row.pending))
        fed_nodes = nodes[-1:] if feed.last_only else nodes
        return torch.stack([self.logits(row.context(node)) for node in fed_nodes])

    def pending(self, row: int) -> int:
        return len(self._rows[row].pending)

    def commit(self, row: int, nodes: Sequence[int], keep: Sequence[int] = ()) -> None:
        state = self._rows[row]
        for node, parent in zip(nodes, [ROOT, *nodes], strict=False):
            assert state.pending[node][1] == parent, "commit keeps one path from the root down"
        state.tokens.extend(state.pending[node][0] for node in nodes)
        # The kept nodes are renumbered; children of the last committed node get parent ROOT.
        number = {nodes[-1] if nodes else ROOT: ROOT} | {node: i for i, node in enumerate(keep)}
        assert list(keep) == sorted(keep), "what is kept keeps its order"
        state.pending = [(state.pending[node][0], number[state.pending[node][1]]) for node in keep]


# -- a family of tables --


def table_family(
    models: LoadedModels, vocab_size: int | None = None, seed: int = 0
) -> LoadedModels:
    """`models` with a TableModel in place of each model. `vocab_size` None: the size of the LLM's
    vocabulary. Ids above the LLM's vocabulary are never likely. Logits depend on the last token and
    on the context's length.
    """
    size = vocab_size or models.llm.vocab_size
    num_known = min(models.llm.vocab_size, size)
    generator = torch.Generator().manual_seed(seed)

    def noise() -> torch.Tensor:
        return torch.randn((TABLE_ROWS, size), generator=generator)

    table = noise()
    table[:, :num_known] = 3 * table[:, :num_known] + LIKELY

    def model(info: ModelInfo, rows: torch.Tensor) -> Any:
        name = f"synthetic-{info.name}"
        info = dataclasses.replace(info, name=name, vocab_size=size, context_length=CONTEXT)
        return TableModel(info, lambda context: rows[(context[-1] + len(context)) % TABLE_ROWS])

    ssms = {
        name: model(each.info, table + AGREEMENT * noise()) for name, each in models.ssms.items()
    }
    return dataclasses.replace(models, llm=model(models.llm.info, table), ssms=ssms)


def synthetic_run(models: LoadedModels, rounds: int, seed: int = 0) -> list[Event]:
    """The events of a greedy run with `table_family(models)`."""
    speculation = SpeculationConfig(record_top_k=TOP_K, max_tree_nodes=MAX_NODES)
    sampling = SamplingParams(CONTEXT, seed=seed, ignore_eos=True)
    request = Request(f"SYNTHETIC {seed}", sampling, speculation)
    source = Engine(table_family(models, seed=seed)).generate(request)
    # RunStarted, then four events a round.
    events = list(itertools.islice(source, 1 + 4 * rounds))
    source.close()  # type: ignore[attr-defined]
    started = events[0]
    assert isinstance(started, RunStarted)
    return first_rounds([dataclasses.replace(started, warnings=(WARNING,)), *events[1:]], rounds)


def first_rounds(run: Sequence[Event], rounds: int) -> list[Event]:
    """The first `rounds` rounds of a run, as a complete run."""
    events, fold = list(run[: 1 + 4 * rounds]), StatsFold()
    for event in events:
        fold.observe(event)
    last = events[-1]
    end = RunCompleted(last.run_id, len(events), last.at_ms, "length", "", fold.stats(last.at_ms))
    return [*events, end]
