"""The similarity of drafted tokens to the LLM's tokens."""

from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.engine.route_evidence import embedding_similarity
from core.events import RoundCompleted
from core.routing.cosine import CosineRouter
from tests.fakes import TableModel, loaded_tables, random_table

EMBEDDINGS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-1.0, 0.0]])


class Embedded(TableModel):
    embeddings = EMBEDDINGS


def table_model(kind: type[TableModel] = Embedded) -> TableModel:
    return kind("llm", 4, random_table(4, 1), 64)


def test_similarity_is_the_cosine_of_the_llms_embeddings() -> None:
    similarity = embedding_similarity(table_model())
    result = similarity([0, 0, 1, 2, 3], [0, 1, 2, 0, 0])
    assert result == pytest.approx((1.0, 0.0, 0.5**0.5, 0.5**0.5, -1.0))
    assert similarity([0, 1], [1]) == pytest.approx((0.0,)), "up to the shorter list"
    assert similarity([], [1]) == similarity([1], []) == ()


def test_without_embeddings_only_equal_tokens_are_similar() -> None:
    assert embedding_similarity(table_model(TableModel))([0, 1, 2], [0, 2, 2, 1]) == (1.0, 0.0, 1.0)


def test_a_router_observes_the_similarities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embeddings of tokens 0 and 3 are opposite."""
    observed: list[Any] = []
    observe = CosineRouter.observe
    monkeypatch.setattr(
        CosineRouter, "observe", lambda self, e: (observed.append(e.drafts), observe(self, e))[1]
    )
    models = [
        Embedded(name, 4, lambda context, token=token: [float(t == token) for t in range(4)], 64)
        for name, token in (("llm", 0), ("right", 0), ("opposite", 3))
    ]
    config = SpeculationConfig(
        expansion=(1,), speculation_length=2, routing="cosine", routed_drafters=2
    )
    engine = Engine(loaded_tables(models[0], models[1:]))
    events = list(engine.generate(Request("w1", SamplingParams(12), config)))
    assert [set(each) for each in observed] == [{"right", "opposite"}] * len(observed)
    for drafts in observed:
        assert set(drafts["right"].similarities) == {1.0}
        assert set(drafts["opposite"].similarities) == {-1.0}
    last = [event for event in events if isinstance(event, RoundCompleted)][-1]
    scores = {one.drafter: one.score for one in last.routing}
    assert scores["right"] > 0.5 > scores["opposite"]
