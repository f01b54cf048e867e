"""Engines whose models are tables of probabilities, and helpers that read events."""

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.engine.round_state import ActiveRequest
from core.events import Combined, Drafted, Event, RoundCompleted, Verified
from core.events.outcome import Outcome
from core.models.protocol import Feed
from tests.fakes import TableModel, loaded_tables, random_table

VOCAB = 8
GREEDY = SamplingParams(12, seed=1)
WARM = SamplingParams(12, temperature=0.8, seed=1)
TREE = SpeculationConfig(expansion=(2, 2), speculation_length=3, max_tree_nodes="uncut")


def tables(count: int = 2, context: int = 64) -> tuple[TableModel, list[TableModel]]:
    llm = TableModel("llm", VOCAB, random_table(VOCAB, 1, sharpness=2.5), context)
    same = TableModel("same", VOCAB, llm._table, context)
    others = [TableModel(f"ssm-{i}", VOCAB, random_table(VOCAB, i), context) for i in range(2, 9)]
    return llm, [same, *others][:count]


def engine_of(llm: TableModel, ssms: Sequence[TableModel], eos: tuple[int, ...] = ()) -> Engine:
    return Engine(loaded_tables(llm, ssms, eos))


def ids_of_events(events: Iterable[Event]) -> list[int]:
    """The new tokens of one run."""
    return [i for e in events if isinstance(e, RoundCompleted) for i in e.token_ids]


def rounds_of(events: Iterable[Event]) -> list[RoundCompleted]:
    return [event for event in events if isinstance(event, RoundCompleted)]


def tokens_by_drafter(events: Iterable[Event]) -> tuple[Counter[str], Counter[str]]:
    """Drafted tokens and accepted nodes. A node counts for each drafter that proposed it."""
    drafted, accepted = Counter[str](), Counter[str]()
    for run in by_run(events):
        tree: Combined | None = None
        for event in run:
            if isinstance(event, Drafted):
                for draft in event.drafts:
                    drafted[draft.drafter] += len(draft.token_ids)
            elif isinstance(event, Combined):
                tree = event
            elif isinstance(event, Verified) and event.path:
                assert tree is not None and tree.round == event.round
                accepted.update(name for node in event.path for name in tree.drafters_of(node))
    return drafted, accepted


def by_run(events: Iterable[Event]) -> list[list[Event]]:
    runs: dict[str, list[Event]] = {}
    for event in events:
        runs.setdefault(event.run_id, []).append(event)
    return list(runs.values())


def texts_of(events: Iterable[Event]) -> list[list[int]]:
    return [ids_of_events(run) for run in by_run(events)]


def outcome_of(engine: Engine, request: Request) -> Outcome:
    outcome = Outcome()
    for event in engine.generate(request):
        outcome.observe(event)
    return outcome


def admit_all(engine: Engine, requests: Iterable[Request]) -> list[ActiveRequest]:
    live = [engine.admit(engine.prepare(each)) for each in requests]
    for one in live:
        list(engine.prefill(one))
    return live


def failing_from(model: TableModel, passes: int, error: Exception) -> None:
    forward = model.forward

    def failing(feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if model.passes >= passes:
            raise error
        return forward(feeds)

    model.forward = failing  # type: ignore[method-assign]


def open_rows(engine: Engine) -> list[tuple[int, ...]]:
    models = [engine.models.llm, *engine.models.ssms.values()]
    return [model.open_rows for model in models]


def request(
    text: str = "w1 w2 w3", sampling: SamplingParams = GREEDY, config: SpeculationConfig = TREE
) -> Request:
    return Request(text, sampling, config)
