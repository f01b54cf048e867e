"""Handlers of the Sessions tab, permissions, and texts about a run's settings."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.events import RoundCompleted, Scheduled
from storage import RunQuery, RunStore
from tests.synthetic import DRAFTERS, synthetic_run
from tests.ui.boards import ALL, context, live_of, notice_of, run, sessions_of
from ui.run.player import Pace
from ui.run.view import View, reduce_all
from ui.server.session import TabSession
from ui.server.visitors import Access, is_loopback, new_key
from ui.sessions.history import CallerRights, allowed_run, list_values, llm_choices, menu
from ui.sessions.retention import log_location
from ui.sessions.tab import delete_run, opened_run
from ui.shared.board_handlers import play_on, select_node
from ui.words.settings import settings_line, settings_of


def record_runs(store: RunStore, owners: tuple[str, ...] = ("a", "b")) -> None:
    for seed, owner in enumerate(owners):
        ends = ("completed", "cancelled", "failed")
        for event in synthetic_run(4, seed=seed, end=ends[seed % 3]):
            store.record(event, owner)


def test_the_list_is_searched_filtered_and_paged_and_a_wrong_filter_is_refused(
    store: RunStore,
) -> None:
    record_runs(store, tuple("abcdefghijklmnopqrstuvw"))
    ctx = context(store)
    value, notice, page = list_values(ctx, ALL, "", "", "all", "newest", 1)
    assert len(value["rows"]) == 20 and "23 runs, page 1 of 2" in notice["lines"]["0"]["text"]
    value, notice, page = list_values(ctx, ALL, "", "", "all", "newest", 99)
    assert page == 2 and len(value["rows"]) == 3
    value, *_ = list_values(ctx, ALL, "", "", "failed", "newest", 1)
    assert {row["status"] for row in value["rows"].values()} == {"failed"}
    value, *_ = list_values(ctx, ALL, "", "7", "all", "newest", 1)
    assert [row["id"] for row in value["rows"].values()] == ["synthetic-7"]
    value, notice, _ = list_values(ctx, ALL, "", "nosuchword", "all", "newest", 1)
    assert value["empty"] == "No run matches." and not value["rows"]
    _, notice, _ = list_values(context(store), ALL, "", "", "lost", "newest", 1)
    assert "status is 'lost'" in notice["lines"]["0"]["text"]


def test_the_path_of_the_log_is_shown_only_to_visitors_who_may_see_it(store: RunStore) -> None:
    ctx = context(store)
    notice = log_location(ctx, ALL)
    assert str(store.path) in notice["lines"]["0"]["text"]
    assert f"To look inside: {store.datasette()}" in str(notice)
    assert not log_location(ctx, CallerRights("x", False))["lines"]
    for rights in (ALL, CallerRights("x", False)):
        _, notice, _ = list_values(ctx, rights, "", "", "all", "newest", 1)
        assert str(store.path) not in str(notice) and "datasette" not in str(notice), (
            "the list, which a class may see, has no path"
        )


def test_a_past_run_is_replayed_on_the_same_board(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    shown = run(live, desk)[1:]
    sessions, past = sessions_of(ctx), TabSession()
    run_id = desk.frame().run_id
    values = opened_run(sessions, past, ALL, run_id)
    assert values[-1] == run_id
    replayed, live_values = (
        [{**value, "n": 0} for value in pictures] for pictures in (values[1:-2], shown[1:])
    )
    assert replayed == live_values, "the same pictures as at the end of the live run"
    board = sessions.board
    assert "you are at round 3 of 8." in notice_of(select_node(board, past, {"round": 2}), 0)
    verify = {"round": 3, "stage": "verify"}
    assert "round 4 of 8, verified." in notice_of(select_node(board, past, verify), 0)
    for wrong in (99, -3, None):
        assert "round 4 of 8" in notice_of(select_node(board, past, {"round": wrong}), 0)
    past.pace = Pace("slow", 20.0)
    frames = list(play_on(board, past, True))
    assert past.frame().view == desk.frame().view, "played slowly, it ends as the live run did"
    assert past.frame().selected_round == 7 and len(frames[-1]) == len(values) - 2


def test_every_round_of_an_interrupted_run_can_be_shown(store: RunStore) -> None:
    for event in synthetic_run(4, seed=0)[:-1]:
        store.record(event, "a")
    store.flush()
    sessions, desk = sessions_of(context(store)), TabSession()
    opened_run(sessions, desk, ALL, "synthetic-0")
    tokens = desk.frame().view.tokens
    assert "round 3 of 4" in notice_of(select_node(sessions.board, desk, {"round": 2}), 0)
    assert "Interrupted: " in notice_of(select_node(sessions.board, desk, {"round": 3}), 0)
    assert desk.frame().view.tokens == tokens


@pytest.mark.parametrize("typed", [float("nan"), float("inf"), "x"])
def test_a_page_that_is_no_number_is_reported_by_its_field(store: RunStore, typed: Any) -> None:
    record_runs(store, ("a",))
    _, notice, page = list_values(context(store), ALL, "", "", "all", "newest", typed)
    assert "page is" in notice["lines"]["0"]["text"] and page == 1


def test_a_deleted_run_is_gone_and_runs_that_are_not_there_are_reported(store: RunStore) -> None:
    record_runs(store)
    sessions, desk = sessions_of(context(store)), TabSession()
    opened_run(sessions, desk, ALL, "synthetic-0")
    values = delete_run(sessions, desk, ALL, "synthetic-0")
    assert values[-2] == "" and desk.player is None
    assert notice_of(values, 0).startswith("Runs open here")
    assert store.runs(RunQuery()).total == 1
    values = opened_run(sessions, desk, ALL, "nosuch")
    assert "nosuch" in notice_of(values, 0) and values[-1] == ""
    assert "no run is opened" in notice_of(delete_run(sessions, desk, ALL, ""), 0)


def test_a_chosen_name_that_no_run_has_any_more_is_deselected(store: RunStore) -> None:
    record_runs(store, ("a",))
    ctx = context(store)
    (name, *_) = ctx.store.choices().llms
    assert "value" not in menu(llm_choices(ctx, ALL), name)
    ctx.store.delete("synthetic-0")
    update = menu(llm_choices(ctx, ALL), name)
    assert update["value"] == "" and [value for _, value in update["choices"]] == [""]


def test_a_run_that_another_tab_deleted_is_reported_and_cleared(store: RunStore) -> None:
    record_runs(store)
    sessions, desk = sessions_of(context(store)), TabSession()
    opened_run(sessions, desk, ALL, "synthetic-0")
    store.delete("synthetic-0")
    values = delete_run(sessions, desk, ALL, "synthetic-0")
    assert "already deleted" in notice_of(values, 0) and values[-2] == "" and desk.player is None
    assert values[-1].visible is False
    assert "no such run" in notice_of(delete_run(sessions, desk, ALL, "nosuch"), 0)


def test_elsewhere_a_visitor_sees_and_deletes_only_its_own_runs(store: RunStore) -> None:
    record_runs(store)
    ctx = context(store, host="0.0.0.0")
    request: Any = SimpleNamespace(session_hash="s", headers={}, username=None)
    owner = ctx.access.owner(request, "visitor-a")
    assert owner == "visitor-a" and ctx.access.owner(request, "a") == "client-s"
    mine = CallerRights("a", False)
    value, *_ = list_values(ctx, mine, "", "", "all", "newest", 1)
    assert [row["id"] for row in value["rows"].values()] == ["synthetic-0"]
    sessions, desk = sessions_of(ctx), TabSession()
    assert "no such run of yours" in notice_of(opened_run(sessions, desk, mine, "synthetic-1"), 0)
    assert "no such run of yours" in notice_of(delete_run(sessions, desk, mine, "synthetic-1"), 0)
    assert store.runs(RunQuery()).total == 2
    assert allowed_run(ctx, mine, "synthetic-0").run_id == "synthetic-0"


def test_a_hostile_prompt_is_shortened_in_the_list(store: RunStore) -> None:
    for event in synthetic_run(6, hostile=True):
        store.record(event, "")
    value, *_ = list_values(context(store), ALL, "", "", "all", "newest", 1)
    row = value["rows"]["0"]
    assert len(row["prompt"]) <= 160


def test_loopback_is_known() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9"):
        assert is_loopback(host), host
    for host in ("0.0.0.0", "192.168.1.4", "example.org"):
        assert not is_loopback(host), host


def test_owners_and_permissions_behind_a_proxy_with_a_login_and_by_a_key() -> None:
    request = SimpleNamespace(session_hash="s", headers={"x-forwarded-for": "1.2.3.4"})
    access = Access("127.0.0.1")
    assert access.owner(request, "visitor-a") == "visitor-a"
    assert not access.shows_paths(request) and not access.may_change(request)
    here = SimpleNamespace(session_hash="s", headers={})
    assert access.owner(here) is None and access.shows_paths(here) and access.may_change(here)
    request = SimpleNamespace(session_hash="s", headers={}, username="eve")
    access = Access("0.0.0.0", auth=True)
    assert access.owner(request, "visitor-a") == "user-eve"
    assert access.shows_paths(request) and access.may_change(request)
    assert len({new_key() for _ in range(100)}) == 100 and len(new_key()) > 20


def request_of(
    config: SpeculationConfig, temperature: float = 0.0, **sampling: Any
) -> dict[str, Any]:
    return Request("x", SamplingParams(8, temperature, **sampling), config).to_plain()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_known_also_by_its_drafters_names(name: str, temperature: float) -> None:
    config = replace(SpeculationConfig.preset(name, temperature), record_top_k=5)
    expansions = {"all": DRAFTERS, "first": DRAFTERS[:1]}
    named = [n for drafter in config.drafters for n in expansions.get(drafter, (drafter,))]
    for one in (config, replace(config, drafters=tuple(named))):
        settings = settings_of(request_of(one, temperature), DRAFTERS)
        assert (settings.name, settings.differ) == (name, ())
        assert settings.sampling == (f"temperature {temperature:g}",)


def test_settings_that_differ_from_the_presets_are_named() -> None:
    config = SpeculationConfig(combine="vote", length="trend", pipeline="ahead", carry_over=True)
    settings = settings_of(request_of(config, 0.5, top_k=3, top_p=0.9), DRAFTERS)
    assert settings.brief(9) == (
        "own settings: combine=vote, length=trend, pipeline=ahead, carry_over=true"
    )
    assert settings.brief(3) == "own settings: combine=vote, length=trend, pipeline=ahead, 1 more"
    assert settings.sampling == ("temperature 0.5", "top_k 3", "top_p 0.9")
    wide = settings_of(request_of(SpeculationConfig(expansion=(2, 1))), DRAFTERS)
    assert wide.differ == ("expansion=2,1",)
    two = request_of(SpeculationConfig(drafters=DRAFTERS[:2]))
    assert settings_of(two, DRAFTERS).brief(3) == "own settings", (
        "the drafters are shown next to it"
    )
    assert settings_of(two, DRAFTERS[:2]).name == "specinfer", "no other SSM is loaded"
    plain = request_of(SpeculationConfig())
    plain["speculation"]["unheard_of"] = 1
    assert settings_of(plain, DRAFTERS).name == "settings of another version"


def test_the_list_and_the_opened_run_show_the_settings(store: RunStore) -> None:
    for event in synthetic_run(4, seed=1):
        store.record(event)
    ctx = context(store)
    row = list_values(ctx, ALL, "", "", "all", "newest", 1)[0]["rows"]["0"]
    view = reduce_all(synthetic_run(4, seed=1))
    assert view.started and row["sampling"] == "temperature 0"
    settings = settings_of(view.started.asked, DRAFTERS)
    assert row["settings"] == settings.brief(3) and settings.differ
    assert row["title"] == row["settings"], "own settings: what differs is their name"
    opened = notice_of(opened_run(sessions_of(ctx), TabSession(), ALL, row["id"]), 0)
    assert settings_line(view) in opened
    assert settings_line(view).endswith(f"; temperature 0; drafters {', '.join(DRAFTERS)}.")
    assert settings_line(View()) == ""


@pytest.mark.parametrize(
    ("num_live", "words"),
    [(1, ""), (2, " beside up to 1 other"), (4, " beside up to 3 others")],
)
def test_the_list_names_the_schedule(store: RunStore, num_live: int, words: str) -> None:
    scheduled = Scheduled("cosine", num_live, 1, 0, 8, 2, 4, 4, 4, 4, 0.0, "", "why")
    for event in synthetic_run(4, seed=1):
        is_round = isinstance(event, RoundCompleted)
        store.record(replace(event, scheduled=scheduled) if is_round else event)  # type: ignore[call-arg]
    row = list_values(context(store), ALL, "", "", "all", "newest", 1)[0]["rows"]["0"]
    assert row["sampling"] == f"temperature 0, schedule cosine{words}"


def test_the_list_has_local_times(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for event in synthetic_run(4, seed=1):
        store.record(event)
    for zone, when in (("UTC0", "00:01:00 UTC"), ("EAT-3", "03:01:00 UTC+0300")):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        row = list_values(context(store), ALL, "", "", "all", "newest", 1)[0]["rows"]["0"]
        assert row["when"] == f"2026-01-01 {when}"
    monkeypatch.undo()
    time.tzset()
