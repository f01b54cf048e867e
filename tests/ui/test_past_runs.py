"""Actions on a past run, and the log's retention."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import gradio as gr
import pytest

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError, StoreError, UnknownRunError
from storage import RunQuery, RunStore
from tests.synthetic import DRAFTERS, HOSTILE_TEXTS, Mechanisms, synthetic_run
from tests.ui.boards import ALL, context, live_of, notice_of, sessions_of
from ui.form.form import OWN, preset_config, request_of
from ui.run.hindsight import find_regret
from ui.run.player import Pace
from ui.run.regret_words import regret_plain
from ui.run.routing_values import routing_value
from ui.run.view import reduce_all
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.exporting import FORMATS, export_progress, write_export
from ui.sessions.history import CallerRights, RunFilters, drafter_choices, list_values, llm_choices
from ui.sessions.repeat import recorded_request, repeat_run, stop_again
from ui.sessions.retention import (
    about_run,
    keep_note,
    parse_retention,
    retention_view,
    set_retention,
)
from ui.sessions.tab import choose_run, delete_run, opened_run, toggle_comparing
from ui.shared.board_handlers import move, play_on
from ui.shared.into_live import fill_form, form_values_of, preset_of
from ui.shared.links import fill_linked

MINE = CallerRights("a", False)


def record_runs(store: RunStore, *owners: str) -> list[str]:
    for seed, owner in enumerate(owners):
        for event in synthetic_run(4, seed=seed):
            store.record(event, owner)
    return [f"synthetic-{seed}" for seed in range(len(owners))]


def make_run(context: Context, **changes: Any) -> str:
    source = context.hub.start(Request("Once", SamplingParams(max_new_tokens=20, **changes)), "a")
    source.wait_done(20.0)
    return source.run_id


def notice_text(notice: dict[str, Any]) -> str:
    return " ".join(line["text"] for line in notice["lines"].values())


def test_filters_restrict_the_list(store: RunStore) -> None:
    ctx = context(store)
    one, two = record_runs(store, "a", "b")
    store.annotate(two, "for the lecture")

    def ids(**changes: Any) -> list[str]:
        rows = list_values(ctx, ALL, "", "", "all", "newest", 1, RunFilters(**changes))[0]["rows"]
        return [row["id"] for row in rows.values()]

    assert set(ids()) == {one, two} and ids(noted=True) == [two]
    assert ids(llm="synthetic-llm") == ids() and ids(llm="nobody") == []
    plan = {"study_id": "s", "kind": "tune", "title": "a grid", "created_utc": ""}
    store.studies.save(plan, total=1)
    store.studies.keep("s", ("speculation_length=4", "x", 0), {"run_id": one})
    assert set(ids()) == {one, two} and ids(alone=True) == [two]
    rows = list_values(ctx, ALL, "", "", "all", "oldest", 1)[0]["rows"].values()
    named = {row["id"]: (row["title"], row["repeat"]) for row in rows}
    assert named[one] == ("speculation length 4", "repeat 1") and named[two][1] == ""
    assert ids(drafter="ssm-code") == ids() and ids(drafter="none") == []
    assert ids(since="the last hour") == [], "SYNTHETIC runs are of another year"
    started, *rest = synthetic_run(3, seed=9)
    for event in (replace(started, created_utc=datetime.now(UTC).isoformat()), *rest):
        store.record(event)
    assert ids(since="the last hour") == ["synthetic-9"]
    notice = list_values(ctx, ALL, "", "", "all", "newest", 1, RunFilters(since="ever"))[1]
    assert "since is 'ever'" in notice_text(notice)
    row = list_values(ctx, ALL, "", "lecture", "all", "newest", 1)[0]["rows"]["0"]
    assert row["note"] == "for the lecture" and row["thinned"] is False


def test_all_names_are_listed_only_for_visitors_who_see_all_runs(store: RunStore) -> None:
    ctx = context(store)
    record_runs(store, "a")
    assert ("ssm-code", "ssm-code") in drafter_choices(ctx, ALL)
    assert ("synthetic-llm", "synthetic-llm") in llm_choices(ctx, ALL)
    assert [value for _, value in llm_choices(ctx, MINE)] == ["", ctx.models[0].name]
    assert ("ngram", "ngram") in drafter_choices(ctx, MINE)


def test_a_note_is_kept_and_shown_again(store: RunStore) -> None:
    ctx = context(store)
    (run_id,) = record_runs(store, "a")
    note = "".join(HOSTILE_TEXTS[:3])
    assert "saved" in notice_text(keep_note(ctx, ALL, run_id, note))
    section, notice, shown, _, study_button = about_run(ctx, ALL, run_id)
    assert section.visible and not study_button.visible
    assert shown == note and run_id in notice_text(notice)
    assert "rounds / s" in notice_text(notice)
    assert "no note" in notice_text(keep_note(ctx, ALL, run_id, ""))
    assert about_run(ctx, ALL, run_id)[2] == ""
    assert "no run is opened" in notice_text(keep_note(ctx, ALL, "", "x"))
    refused = keep_note(ctx, CallerRights("b", False), run_id, "x")
    assert "no such run of yours" in notice_text(refused)
    assert store.run(run_id).note == ""
    assert about_run(ctx, ALL, "gone")[0].visible is False


def test_a_regret_that_was_counted_is_shown_again_and_exported(store: RunStore) -> None:
    ctx = context(store)
    events = synthetic_run(6, seed=5, mechanisms=Mechanisms(routing="cosine"))
    for event in events:
        store.record(event)
    run_id, view = events[0].run_id, reduce_all(events)
    without = {name: write_export(ctx, ALL, run_id, name)["text"] for name in FORMATS}
    token_ids, (first, *rest) = view.token_ids, view.drafters
    regret = find_regret(view, {first: token_ids, **dict.fromkeys(rest, [-1] * len(token_ids))})
    store.keep_regret(run_id, regret.to_plain())
    assert store.flush()
    desk, sessions = TabSession(), sessions_of(ctx)
    opened_run(sessions, desk, ALL, run_id)
    assert desk.regret == regret and routing_value(desk.frame())["regret"]["rows"]
    files = {name: write_export(ctx, ALL, run_id, name)["text"] for name in FORMATS}
    plain = regret_plain(regret)
    assert json.loads(files["json"])["summary"].pop("regret") == json.loads(json.dumps(plain))
    assert html.escape(plain["words"]) in files["html"] and plain["words"] not in without["html"]
    assert "regret" not in json.loads(without["json"])["summary"]
    assert all(files[name] == without[name] for name in ("csv", "trace"))


def test_a_run_is_written_in_every_format_under_a_name_for_any_system(store: RunStore) -> None:
    ctx = context(store)
    (run_id,) = record_runs(store, "a")
    files = {name: write_export(ctx, ALL, run_id, name) for name in FORMATS}
    assert all(file["name"].startswith(f"{run_id}.") and file["text"] for file in files.values())
    assert len({file["name"] for file in files.values()}) == len(FORMATS)
    assert files["html"]["media_type"].startswith("text/html") and "<html" in files["html"]["text"]
    with pytest.raises(ConfigError, match="format is 'pdf'"):
        write_export(ctx, ALL, run_id, "pdf")
    for rights, requested in ((ALL, "gone"), (CallerRights("b", False), run_id)):
        with pytest.raises(UnknownRunError):
            write_export(ctx, rights, requested, "json")
    with pytest.raises(StoreError, match="no run is opened"):
        write_export(ctx, ALL, "", "json")
    for event in synthetic_run(3, run_id="../a b:c"):
        store.record(event)
    assert write_export(context(store), ALL, "../a b:c", "html")["name"] == "___a_b_c.html"


def test_the_progress_of_a_long_export_is_reported(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.sessions.exporting.PROGRESS_INTERVAL_S", 0.01)
    for event in synthetic_run(40, seed=1):
        store.record(event, "a")
    *before, (file, line) = export_progress(context(store), ALL, "synthetic-1", "html")
    assert file == write_export(context(store), ALL, "synthetic-1", "html")
    assert line.text == "Saved as synthetic-1.html."
    assert all(early is None and "Writing HTML report" in one.text for early, one in before)
    shares = [int(match[1]) for _, one in before if (match := re.search(r": (\d+) %", one.text))]
    assert shares == sorted(shares) and len(set(shares)) > 3 and shares[-1] <= 100
    with pytest.raises(UnknownRunError):
        list(export_progress(context(store), ALL, "gone", "json"))


def test_run_again_takes_the_recorded_seed_and_says_the_text_is_the_same(store: RunStore) -> None:
    ctx = context(store)
    run_id = make_run(ctx)
    sessions, desk = sessions_of(ctx), TabSession()
    opened_run(sessions, desk, ALL, run_id)
    frames = list(repeat_run(sessions, desk, ALL, "me", run_id))
    assert frames[-1][-1] not in ("", run_id) and desk.frame().run_id == frames[-1][-1]
    assert "This run wrote the same text as the one before" in notice_of(frames[-1], 0)
    first, second = ctx.hub.worker.requests[-2:]
    seed = store.run(run_id).seed
    ids = tuple(store.events(run_id)[0].prompt_token_ids)
    sampling = replace(first.sampling, seed=seed)
    assert second == replace(first, sampling=sampling, prompt_token_ids=ids)
    assert desk.before is not None and desk.before.run_id == run_id
    assert store.run(frames[-1][-1]).owner == "me"


def test_run_again_refuses_what_is_not_there(store: RunStore) -> None:
    ctx = context(store)
    sessions, desk = sessions_of(ctx), TabSession()
    for run_id, words in (("", "no run is opened"), ("gone", "no such run")):
        frames = list(repeat_run(sessions, desk, ALL, "me", run_id))
        assert words in notice_of(frames[-1], 0) and len(frames) == 1
    run_id = make_run(ctx)
    frames = list(repeat_run(sessions, desk, CallerRights("b", False), "b", run_id))
    assert "no such run of yours" in notice_of(frames[-1], 0)
    assert recorded_request(ctx, ALL, run_id).sampling.seed is None


def test_stop_ends_a_repeated_run(store: RunStore) -> None:
    ctx = context(store)
    run_id = make_run(ctx)
    worker: Any = ctx.hub.worker
    worker.slowdown = 50.0
    sessions, desk = sessions_of(ctx), TabSession()
    frames = repeat_run(sessions, desk, ALL, "me", run_id)
    next(frames)
    assert "Running again" in notice_of(next(frames), 0)
    assert "Stopped" in notice_of(stop_again(sessions, desk), 0)
    assert worker.runs[-1].is_cancelled and list(frames)[-1][-1] == worker.runs[-1].run_id
    assert stop_again(sessions, TabSession())


def test_a_second_run_of_the_list_is_compared_with_the_first(store: RunStore) -> None:
    ctx = context(store)
    one, two = record_runs(store, "a", "b")
    sessions, desks = sessions_of(ctx), (TabSession(), TabSession(), TabSession())
    first, opened = choose_run(sessions, desks, ALL, one, ""), len(sessions.opened_outputs)
    before = opened + len(sessions.controls.about_outputs)
    assert first[opened - 1] == one and desks[0].player is not None
    comparing, button, notice = toggle_comparing(one, "")
    assert comparing == one and "Choose the second run" in notice_text(notice)
    assert toggle_comparing(one, one)[0] == "" and toggle_comparing("", "")[0] == ""
    both = choose_run(sessions, desks, ALL, two, comparing)
    assert desks[0].frame().run_id == one, "the first stays open"
    section, answer, tables, place = both[before : before + 4]
    assert place["value"] == place["maximum"] == 4
    assert section.visible and "Another text from token 1 on" in notice_text(answer)
    assert tables["figures"]["0"]["name"] == "Tokens / s"
    assert [desk.frame().run_id for desk in desks[1:]] == [one, two]


@pytest.mark.parametrize(
    ("rights", "second", "words"),
    [
        (ALL, "synthetic-0", "the run itself"),
        (ALL, "gone", "no such run"),
        (MINE, "synthetic-1", "no such run of yours"),
    ],
)
def test_a_wrong_second_run_is_reported(
    store: RunStore, rights: CallerRights, second: str, words: str
) -> None:
    record_runs(store, "a", "b")
    sessions = sessions_of(context(store))
    desks = (TabSession(), TabSession(), TabSession())
    values = choose_run(sessions, desks, rights, second, "synthetic-0")
    board_and_facts = [*sessions.opened_outputs, *sessions.controls.about_outputs]
    assert words in notice_text(values[len(board_and_facts) + 1])


def test_a_past_run_plays_pauses_and_resumes(store: RunStore) -> None:
    ctx = context(store)
    sessions, desk = sessions_of(ctx), TabSession(pace=Pace("full", 5.0))
    opened_run(sessions, desk, ALL, make_run(ctx))
    board = sessions.board
    assert board.place(desk)[0]["interactive"] is False, "there is nothing to stop"
    frames = play_on(board, desk, rewind=True)
    next(frames)
    assert desk.player is not None and desk.player.stage == 0
    assert board.place(desk)[0]["interactive"] is True
    next(frames)
    move(board, desk, "pause")
    at = desk.player.stage
    assert 0 <= at < 32 and len(list(frames)) <= 1
    assert desk.player.stage == at, "the player has stopped"
    assert board.place(desk)[0]["interactive"] is False
    assert desk.player.pace.mode == "step"
    desk.pace = Pace("full", 100.0)
    list(play_on(board, desk, rewind=False))
    assert desk.player.stage == 32


def test_only_the_owner_sets_how_many_runs_are_kept_in_full(store: RunStore) -> None:
    ctx = context(store)
    record_runs(store, "a", "b", "c")
    section, shown, message = retention_view(ctx, ALL, "5", "5")
    assert section.visible and shown == message == ""
    assert retention_view(ctx, ALL, "", "")[1] == gr.skip(), "the visitor may be typing"
    assert retention_view(ctx, MINE, "", "")[0].visible is False
    notice, button = set_retention(ctx, ALL, "2", confirmed=False)
    assert "Sure?" in notice_text(notice) and button.visible and store.retention() is None
    notice, button = set_retention(ctx, ALL, "2", confirmed=True)
    assert "The last 2 runs are kept in full" in notice_text(notice) and not button.visible
    assert store.retention() == 2 and retention_view(ctx, ALL, "", "")[1] == "2"
    assert retention_view(ctx, ALL, "7", "2")[1:] == [gr.skip(), "2"], "typed, not yet set"
    assert retention_view(ctx, ALL, "7", "")[1:] == [gr.skip(), "2"]
    assert retention_view(ctx, ALL, "1", "1")[1:] == ["2", "2"], "set in another tab meanwhile"
    notice, _ = set_retention(ctx, MINE, "1", confirmed=True)
    assert "only by the server's owner" in notice_text(notice) and store.retention() == 2
    notice, _ = set_retention(ctx, ALL, "0", confirmed=False)
    assert "every run is kept in full" in notice_text(notice)
    assert store.retention() is None
    zero_padded = "0" * 19 + "1" + "9" * 30
    for typed in ("-1", "2.5", "many", "9" * 30, zero_padded, "nan", "\udce9"):
        refused = notice_text(set_retention(ctx, ALL, typed, confirmed=True)[0])
        assert "runs is" in refused and "empty or 0 for all runs, or a whole number" in refused
    assert parse_retention(" 7 ") == parse_retention("007") == 7
    assert all(parse_retention(typed) is None for typed in (None, "", "0", "00"))


def test_a_thinned_run_says_so(store: RunStore) -> None:
    ctx = context(store)
    old, new = record_runs(store, "a", "b")
    store.thin(1)
    runs = {run.run_id: run.thinned for run in store.runs(RunQuery()).rows}
    assert sorted(runs.values()) == [False, True]
    thinned = next(run_id for run_id, is_thinned in runs.items() if is_thinned)
    assert "only text, figures and accepted tokens" in notice_text(about_run(ctx, ALL, thinned)[1])
    assert "Finished" in notice_of(opened_run(sessions_of(ctx), TabSession(), ALL, thinned), 0)


def test_a_run_deleted_elsewhere_is_reported_by_every_action(store: RunStore) -> None:
    ctx = context(store)
    run_id = make_run(ctx)
    sessions, desk = sessions_of(ctx), TabSession()
    opened_run(sessions, desk, ALL, run_id)
    store.delete(run_id)
    assert "no such run" in notice_text(keep_note(ctx, ALL, run_id, "x"))
    assert "no such run" in notice_of(list(repeat_run(sessions, desk, ALL, "me", run_id))[0], 0)
    with pytest.raises(UnknownRunError):
        recorded_request(ctx, ALL, run_id)
    assert "already deleted" in notice_of(delete_run(sessions, desk, ALL, run_id), 0)


REQUESTS = (
    Request("Once"),
    Request(
        "Zwölf\n<b>",
        SamplingParams(7, 0.123456789, 3, 0.9, 2**60, ("\t", "a b"), True),
        SpeculationConfig(("ssm-code", "ngram"), weight_bounds=(0.1234567, 3.0), carry_over=True),
    ),
    Request("x", speculation=SpeculationConfig(drafters=(), speculation_length=0)),
    *(Request("x", SamplingParams(temperature=0.8), preset_config(name, 0.8)) for name in PRESETS),
)


def with_names(request: Request) -> Request:
    expansions = {"all": DRAFTERS, "first": DRAFTERS[:1]}
    names = [one for name in request.speculation.drafters for one in expansions.get(name, (name,))]
    return replace(request, speculation=replace(request.speculation, drafters=tuple(names)))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: repr(one)[:40])
def test_the_form_shows_the_request_itself(store: RunStore, request_: Request) -> None:
    assert request_of(form_values_of(request_, context(store))) == with_names(request_)


def test_the_menu_names_the_preset(store: RunStore) -> None:
    ctx = context(store)
    for name in PRESETS:
        for temperature in (0.0, 0.8):
            sampling = SamplingParams(temperature=temperature)
            request = Request("x", sampling, preset_config(name, temperature))
            assert preset_of(form_values_of(request, ctx), DRAFTERS) == name
    assert preset_of(form_values_of(REQUESTS[1], ctx), DRAFTERS) == OWN


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_that_recorded_no_alternatives_is_filled_in_as_live_has_it(
    store: RunStore, name: str
) -> None:
    live, desk = live_of(context(store)), TabSession()
    recording_none = replace(preset_config(name, 0.0), record_top_k=0)
    request = Request("x", speculation=recording_none)
    _, _, preset, menu, *values, _, _ = fill_form(live, desk, lambda: request)
    assert preset == menu == name
    shown = with_names(Request("x", speculation=preset_config(name, 0.0)))
    assert request_of(values) == shown
    own = replace(recording_none, eta=0.123)
    _, _, preset, _, *values, _, _ = fill_form(live, desk, lambda: Request("x", speculation=own))
    assert preset == OWN and request_of(values).speculation.record_top_k == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculation": SpeculationConfig(("nobody", "ngram"))}, "'nobody': it must be drafters"),
        ({"chat": True}, "chat is True: it must be false"),
        ({"sampling": SamplingParams(stop=("a\nb",))}, r"stop is \['a\\nb'\]"),
    ],
)
def test_what_cannot_run_is_refused(store: RunStore, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        form_values_of(Request(**{"prompt": "x", **changes}), context(store))


def test_a_conversation_is_refused_and_its_single_message_is_not(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context(store)
    host = ctx.model_host
    monkeypatch.setattr(type(host), "chat", True)
    monkeypatch.setattr(host.worker, "chat_tokens", lambda messages: (7, len(messages)), False)
    single = Request("x", chat=True, prompt_token_ids=(7, 1))
    assert request_of(form_values_of(single, ctx)).prompt == "x"
    with pytest.raises(ConfigError, match="prompt is 'x': it must be one message"):
        form_values_of(replace(single, prompt_token_ids=(7, 2)), ctx)


def test_the_form_is_filled_nothing_runs_and_a_refusal_changes_nothing(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    tabs, switch, preset, menu, *values, notice, beside = fill_form(
        live, desk, lambda: REQUESTS[1], on_change=True, beside=True
    )
    assert tabs.selected == "live" and switch is False and preset == menu == OWN
    assert request_of(values) == REQUESTS[1]
    assert "press Run" in str(notice) and "switched off" in str(notice) and not beside["lines"]
    assert ctx.hub.worker.requests == []
    assert "switched off" not in str(fill_form(live, desk, lambda: REQUESTS[0]))

    def refuse() -> Request:
        raise ConfigError("that run is gone")

    *rest, beside = fill_form(live, desk, refuse, beside=True)
    assert "that run is gone" in str(beside) and "gone" not in str(rest)
    tabs, *_, notice, _ = fill_form(live, desk, refuse)
    assert tabs.selected == "live" and "that run is gone" in str(notice)


def test_a_link_fills_the_form_so_that_run_repeats_the_run(store: RunStore) -> None:
    ctx = context(store)
    live, desk = live_of(ctx), TabSession()
    for temperature, on_change in ((0.8, True), (0.0, False)):
        sampling = SamplingParams(max_new_tokens=33, temperature=temperature)
        config = preset_config("minions", temperature)
        source = ctx.hub.start(Request("Once", sampling, config), "a")
        source.wait_done(20.0)
        opened_run(live, desk, ALL, source.run_id)
        (switch, preset, menu, *values), refused = fill_linked(
            live, desk, ALL, source.run_id, on_change
        )
        seed = store.run(source.run_id).seed if temperature else None
        expected = Request("Once", replace(sampling, seed=seed), config)
        assert request_of(values) == with_names(expected) and not refused
        assert preset == menu == "minions" and (switch is False) == on_change
        assert desk.asked == request_of(values) and not desk.form_differs
        assert ("switched off" in desk.doing) == on_change
    other = ctx.hub.start(Request("Once", speculation=SpeculationConfig(("nobody",))), "a")
    other.wait_done(20.0)
    filled, refused = fill_linked(live, desk, ALL, other.run_id, False)
    assert "nobody" in refused and all(value == filled[0] for value in filled), "nothing is filled"
