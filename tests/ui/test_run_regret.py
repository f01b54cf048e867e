"""Regret of a recorded run, and refusals to count it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import Request, SamplingParams, SpeculationConfig
from core.drafters import ssm_state
from core.engine.worker import Worker
from core.errors import ConfigError
from core.routing.regret import Regret
from storage import RunStore
from tests.core.engines import engine_of, open_rows, rounds_of, tables
from tests.synthetic import Mechanisms, synthetic_run
from tests.ui.fakes import FakeStore
from ui.run.hindsight import find_regret, measure_regret
from ui.run.player import Player
from ui.run.regret_words import regret_plain
from ui.run.routing_values import routing_value
from ui.run.source import StoredSource
from ui.run.view import reduce_all
from ui.server.engine_task import EngineTask
from ui.server.session import Hub, TabSession, play

CHAIN = SpeculationConfig(expansion=(1, 1, 1), speculation_length=3, max_tree_nodes="uncut")
ROUTED = replace(CHAIN, routing="cosine", routed_drafters=2)
NUM_TOKENS = 50


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(ssm_state, "READ_CHUNK", 7)
    llm, ssms = tables(4)
    server_hub = Hub(Worker(engine_of(llm, ssms)), FakeStore())
    yield server_hub
    server_hub.worker.close()
    rows = open_rows(server_hub.worker.engine)
    assert not any(rows), "no row is left open"


def desk_of(hub: Hub, config: SpeculationConfig, **sampling: Any) -> TabSession:
    fields = {"max_new_tokens": NUM_TOKENS, "seed": 3, **sampling}
    desk = TabSession()
    desk.look_at(Player(hub.start(Request("w1 w2 w3", SamplingParams(**fields), config))))
    for _ in play(desk):
        pass
    assert desk.frame().view.state == "completed", desk.frame().view.error
    return desk


def count_regret(hub: Hub, desk: TabSession) -> dict[str, Any]:
    for _ in measure_regret(hub, desk, ""):
        pass
    assert desk.regret is not None
    return regret_plain(desk.regret)


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.8},
        {"temperature": 1.2, "top_k": 5},
        {"temperature": 0.7, "repetition_penalty": 1.3},
    ],
    ids=["greedy", "drawn", "top-k", "penalty"],
)
def test_each_ssm_alone_takes_the_passes_that_were_counted(
    hub: Hub, sampling: dict[str, Any]
) -> None:
    desk = desk_of(hub, ROUTED, **sampling)
    result = count_regret(hub, desk)
    names = desk.frame().view.drafters
    assert list(result["alone"]) == [*names] and result["depth"] == 3
    taken = {}
    for name in names:
        alone = desk_of(hub, replace(CHAIN, drafters=(name,)), **sampling).frame().view
        assert alone.token_ids == desk.frame().view.token_ids, "the same text"
        taken[name] = alone.stats.num_rounds
    assert {name: one["passes"] for name, one in result["alone"].items()} == taken
    assert len(set(taken.values())) > 1
    together = desk_of(hub, CHAIN, **sampling).frame().view
    assert result["oracle"]["passes"] == together.stats.num_rounds, "a run in which all SSMs draft"
    best = result["best_fixed"]
    assert best["passes"] == min(taken.values())
    routed = result["routed"]["passes"]
    assert result["regret_to_fixed"] == pytest.approx(routed / best["passes"] - 1)
    assert result["regret_to_oracle"] >= 0 and result["best_group"] is not None


def test_routed_passes_are_counted_by_the_recorded_rounds() -> None:
    events = synthetic_run(30, seed=5, mechanisms=Mechanisms(routing="cosine"))
    view = reduce_all(events)
    text = [*view.token_ids]
    rounds = rounds_of(events)
    names = view.drafters
    routed = [
        any(one.drafter == names[0] and one.role != "waiting" for one in event.routing)
        for event in rounds
        for _ in event.token_ids
    ]
    pairs = list(zip(text, routed, strict=True))
    if_routed = [token if is_routed else -1 for token, is_routed in pairs]
    nothing = [-1] * len(text)
    result = find_regret(view, {names[0]: if_routed, names[1]: nothing, names[2]: nothing[:3]})
    assert result.against(result.oracle) == result.against(result.fixed) == 0
    unless_routed = [-1 if is_routed else token for token, is_routed in pairs]
    worse = find_regret(view, {names[0]: unless_routed, names[1]: nothing, names[2]: nothing})
    assert worse.routed.passes > worse.oracle.passes


def test_counting_regret_is_no_run_waits_its_turn_and_belongs_to_its_run(hub: Hub) -> None:
    desk = desk_of(hub, ROUTED)
    before = set(hub.store.recorded)  # type: ignore[attr-defined]
    other = hub.start(Request("w2 w1", SamplingParams(40, seed=1), CHAIN))
    count_regret(hub, desk)
    other.wait_done(10.0)
    assert set(hub.store.recorded) - before == {other.run_id}  # type: ignore[attr-defined]
    (logged,) = hub.store.regrets.items()  # type: ignore[attr-defined]
    assert logged[0] == desk.frame().view.run_id
    assert Regret.from_plain(json.loads(json.dumps(logged[1]))) == desk.regret
    value = routing_value(desk.frame())
    assert value["regret"]["rows"]["0"]["passes"] == desk.regret.routed.passes  # type: ignore[union-attr]
    assert value["ask"] and not routing_value(replace(desk.frame(), ended=False))["ask"]
    assert not desk.doing
    desk.look_at(desk.player)
    assert desk.regret is None and routing_value(desk.frame())["regret"] == {}


def test_a_run_that_is_opened_meanwhile_gets_no_regret_of_another(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, other = desk_of(hub, ROUTED), desk_of(hub, ROUTED)
    wait = EngineTask.wait

    def click(task: EngineTask[Any], timeout: float) -> bool:
        assert wait(task, 10.0)
        desk.look_at(other.player)
        return True

    monkeypatch.setattr(EngineTask, "wait", click)
    assert len([*measure_regret(hub, desk, "")]) == 0
    assert desk.regret is None and not hub.store.regrets  # type: ignore[attr-defined]


def test_the_regret_of_a_thinned_run_is_not_counted_again(hub: Hub, tmp_path: Path) -> None:
    """The log of a thinned run does not say how far its SSMs drafted."""
    desk = desk_of(hub, ROUTED)
    counted, source = count_regret(hub, desk), desk.player.source  # type: ignore[union-attr]
    with RunStore(tmp_path / "runs.db") as store:
        for event in source.events(0, source.count):
            store.record(event)
        assert store.thin(0) == 1
        thinned = TabSession()
        thinned.look_at(Player(StoredSource(store, source.run_id)))
    assert "only the accepted paths" in refusal(hub, thinned)
    assert count_regret(hub, desk) == counted


def refusal(hub: Hub, desk: TabSession) -> str:
    with pytest.raises(ConfigError) as error:
        count_regret(hub, desk)
    return str(error.value)


def test_what_cannot_be_counted_is_refused_with_its_reason(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "every SSM drafted in every round" in refusal(hub, desk_of(hub, CHAIN))
    drawn = replace(ROUTED, verify="mss", draft="sampled", routing="credit")
    assert "verify is 'mss'" in refusal(hub, desk_of(hub, drawn, temperature=0.8))
    desk = desk_of(hub, ROUTED)
    infos = hub.model_host.infos
    others = (*infos[:-1], replace(infos[-1], fingerprint="another", parameters=99))
    monkeypatch.setattr(hub.model_host._served, "infos", others)
    assert f"drafters is '{infos[-1].name}'" in refusal(hub, desk)


def test_an_error_in_the_engines_thread_reaches_the_caller(hub: Hub) -> None:
    def fail(_engine: Any) -> None:
        raise ConfigError("so it is")

    task: EngineTask[None] = EngineTask(hub.model_host, fail, (1,))
    assert task.wait(10.0)
    with pytest.raises(ConfigError, match="so it is"):
        task.result  # noqa: B018
    count_regret(hub, desk_of(hub, ROUTED))
