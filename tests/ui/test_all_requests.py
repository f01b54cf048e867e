"""The panel "All requests now": owners, grants and lanes, and who may choose a schedule."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from core.engine.snapshot import Lane, LiveRun, ScheduleDecision, Snapshot
from core.errors import ConfigError
from core.events import Scheduled
from storage import RunStore
from tests.ui.boards import context as context_of
from tests.ui.fakes import request, script_of
from tests.ui.model_hosts import OTHER, Loader, other_worker, wait_for_load
from ui.run.scheduling import nodes_words
from ui.server.model_host import ModelHost
from ui.shared.all_requests import NOT_YOURS, _values, choose_schedule, requests_value

SCHEDULED = Scheduled("cosine", 3, 2, 4, 5, 1, 7, 3, 11, 6, 0.0, "", "2 of 3 requests share a pass")


@dataclass
class Scene:
    """`mine`: the id of the visitor's own run; `theirs`: the id of another visitor's run."""

    context: Any
    mine: str
    theirs: str


@pytest.fixture
def scene(context: Any, monkeypatch: pytest.MonkeyPatch) -> Scene:
    hub, worker = context.hub, context.hub.worker
    worker.set_script(script_of(400), slowdown=20.0)
    mine = hub.start(request("my <b>own</b>\nwords"), "me").run_id
    theirs = hub.start(request("the secret of another"), "other").run_id
    runs = (
        LiveRun(mine, 12, 64, 3, 3, 2, 4.0, 1.0, 0, SCHEDULED),
        LiveRun(theirs, 0, 64, 1, 4, 0, 4.0, 1.0, 2, replace(SCHEDULED, reason="older")),
    )
    now = Snapshot("cosine", 4, 8, runs, (Lane("llm", 0.514), Lane("a", 0.0)))
    monkeypatch.setattr(worker, "snapshot", lambda: now)
    return Scene(context, mine, theirs)


def test_a_request_without_a_visitor_is_a_measurement(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = scene.context.hub.worker
    now = worker.snapshot()
    unowned = replace(now, runs=(replace(now.runs[0], run_id="regret"),))
    monkeypatch.setattr(worker, "snapshot", lambda: unowned)
    (row,) = requests_value(scene.context, "me")["rows"].values()
    assert (row["own"], row["who"], row["text"]) == (False, "a measurement of the page", "")


def test_a_request_that_has_just_ended_is_still_its_visitors(scene: Scene) -> None:
    """The worker may report a run for a moment after the run's last event."""
    for run_id in (scene.mine, scene.theirs):
        source = scene.context.hub.source_of(run_id)
        assert source is not None
        source.cancel()
        source.wait_done(5.0)
        assert source.is_done
    owners = [row["who"] for row in requests_value(scene.context, "me")["rows"].values()]
    assert owners == ["your request", "another visitor's request"]


def test_own_requests_are_marked_and_others_have_no_text(scene: Scene) -> None:
    value = requests_value(scene.context, "me")
    mine, theirs = value["rows"].values()
    assert (mine["own"], mine["text"], mine["run"]) == (True, "my <b>own</b> words", scene.mine)
    assert (theirs["own"], theirs["who"]) == (False, "another visitor's request")
    assert "secret" not in str(value) and scene.theirs not in str(value)
    assert (mine["drafted"], mine["granted"], mine["accepted"], mine["round"]) == (7, 3, 2, 4)
    assert (mine["limit"], mine["state"]) == ("5 tokens, 1 SSM", "in the pass")
    assert (mine["number"], theirs["number"]) == (1, 2)
    assert mine["why"] == "of all requests the likeliest 6 of 11"
    assert theirs["why"] == "of all requests the likeliest 6 of 11" and value["decided"] == ""
    assert theirs["state"] == "waits for 2 rounds"
    assert value["reason"] == SCHEDULED.reason, "the reason of the latest pass"
    assert value["pool"] == "2 of 8 places are taken; 4 requests wait in the queue."
    assert [lane["busy"] for lane in value["lanes"].values()] == [0.51, 0.0]


@pytest.mark.parametrize(
    ("num_tokens", "state"), [(0, "begins"), (5, "waits for at least 16 rounds")]
)
def test_a_request_without_one_of_the_last_rounds_begins_or_waits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, num_tokens: int, state: str
) -> None:
    worker = scene.context.hub.worker
    now = worker.snapshot()
    runs = (now.runs[0], LiveRun(scene.theirs, num_tokens, 64, num_waited=16))
    monkeypatch.setattr(worker, "snapshot", lambda: replace(now, runs=runs))
    value = requests_value(scene.context, "me")
    assert [row["state"] for row in value["rows"].values()] == ["in the pass", state]
    assert value["reason"] == SCHEDULED.reason, "the reason of the latest pass"


@pytest.mark.parametrize(
    ("passes", "when"), [(0, "in this round"), (1, "1 round ago"), (41, "41 rounds ago")]
)
def test_the_last_decision_is_shown_until_the_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, passes: int, when: str
) -> None:
    worker = scene.context.hub.worker
    last = ScheduleDecision("fewer", "3 requests wait", passes)
    now = replace(worker.snapshot(), decision=last)
    monkeypatch.setattr(worker, "snapshot", lambda: now)
    value = requests_value(scene.context, "me")
    assert value["decided"] == f"shorter drafts, {when}: 3 requests wait"
    assert value["reason"] == SCHEDULED.reason


@pytest.mark.parametrize(
    ("scheduled", "verified", "budget", "words"),
    [
        (None, 4, None, "all it drafted"),
        (None, 4, 4, "all it drafted: its own budget (max_tree_nodes) is 4"),
        (None, 0, 4, "it drafted nothing"),
        (SCHEDULED, 3, 7, "of all requests the likeliest 6 of 11"),
        (replace(SCHEDULED, num_granted=7), 7, 8, "all it drafted"),
        (replace(SCHEDULED, num_drafted=0, num_granted=0), 0, 8, "it drafted nothing"),
        (
            replace(SCHEDULED, num_drafted=0, num_granted=0, length_limit=0),
            0,
            8,
            "the scheduler allowed no draft",
        ),
    ],
)
def test_the_reason_for_a_requests_number_of_nodes(
    scheduled: Scheduled | None, verified: int, budget: int | None, words: str
) -> None:
    assert nodes_words(scheduled, verified, budget) == words


def test_an_idle_engine_is_polled_seldom(context: Any) -> None:
    value = requests_value(context, "me")
    assert value["rows"] == value["lanes"] == {} and value["ask_ms"] > 1000
    assert value["pool"].startswith(
        "No request is decoded now, and nothing waits in the queue. Run "
    )
    assert "as if it were alone" in value["reason"]


def visit(context: Any, shown: str, **headers: str) -> list[Any]:
    return _values(context, SimpleNamespace(headers=headers, username=None), "visitor-x", shown)


def test_only_the_owner_chooses_the_schedule(store: RunStore) -> None:
    local, elsewhere = context_of(store), context_of(store, host="0.0.0.0")
    choose_schedule(local, "shared", True)
    assert local.hub.worker.engine.schedule == local.model_host.schedule == "shared"
    value, choice = visit(local, "each")
    assert choice == "shared" and not value["note"], "the choice of another visitor"
    with pytest.raises(ConfigError, match="You may look, not choose"):
        choose_schedule(elsewhere, "shared", False)
    value, choice = visit(elsewhere, "shared")
    assert (choice.value, choice.interactive, value["note"]) == ("each", False, NOT_YOURS)


def test_the_schedule_stays_when_models_are_swapped(context: Any) -> None:
    host = ModelHost(context.hub.worker, Loader(lambda: other_worker("small")))
    host.schedule = "shared"
    host.begin(OTHER)
    wait_for_load(host)
    assert host.names()[0] == "other" and host.schedule == host.worker.engine.schedule == "shared"
    host.close()
