"""Engines over tables, for the tests of engine and worker."""

from collections.abc import Iterable, Sequence

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.events import Event, RoundCompleted
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


def open_rows(engine: Engine) -> list[tuple[int, ...]]:
    models = [engine.models.llm, *engine.models.ssms.values()]
    return [model.open_rows for model in models]


def request(
    text: str = "w1 w2 w3", sampling: SamplingParams = GREEDY, config: SpeculationConfig = TREE
) -> Request:
    return Request(text, sampling, config)
