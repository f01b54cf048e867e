"""The text next to the temperature."""

from __future__ import annotations

from dataclasses import replace

import gradio as gr
import pytest

from core.config import Request, SamplingParams
from core.events import RunCompleted
from storage import RunStore
from tests.ui.boards import context, live_of, press, run
from tests.ui.fakes import INFOS, script_of
from ui.form.form import preset_config
from ui.live.handlers import start_run, temperature_hint
from ui.run.temperature import CHANCE, TEMPERATURE_INFO, AcceptanceByTemperature
from ui.server.session import TabSession


def request_at(temperature: float, preset: str = "specinfer") -> Request:
    sampling = SamplingParams(temperature=temperature)
    return Request("Once", sampling, preset_config(preset, temperature))


def test_the_last_run_at_each_temperature_is_listed() -> None:
    runs = AcceptanceByTemperature()
    assert runs.words() == TEMPERATURE_INFO
    runs.keep(request_at(0.8), INFOS, 0.5)
    assert runs.words().endswith(
        "This run, accepted of depth: 50 % at 0.8. Run it at 1.5 to see the difference here."
    )
    runs.keep(request_at(0.0), INFOS, 0.834)
    runs.keep(request_at(0.8), INFOS, 0.61)
    assert runs.words() == (
        f"{TEMPERATURE_INFO} Your last run at each, accepted of depth: 83 % at 0 and 61 % at 0.8. "
        f"{CHANCE}"
    )
    for temperature in (0.5, 1.0, 2.0):
        runs.keep(request_at(temperature), INFOS, 0.25)
    assert "83 %" not in runs.words(), "only the latest four are listed"


def test_a_preset_whose_fields_depend_on_the_temperature_is_one_preset() -> None:
    runs = AcceptanceByTemperature()
    paper = [request_at(temperature, "specinfer-paper") for temperature in (0.0, 0.8)]
    assert paper[0].speculation != paper[1].speculation
    for request in paper:
        runs.keep(request, INFOS, 0.5)
    assert "Your last run at each" in runs.words()


def test_runs_that_differ_in_more_than_the_temperature_are_not_compared() -> None:
    first = request_at(0.0)
    longer = replace(first, sampling=replace(first.sampling, max_new_tokens=9))
    for other, models in (
        (request_at(0.0, "minions"), INFOS),
        (replace(first, prompt="Twice"), INFOS),
        (longer, INFOS),
        (first, INFOS[:-1]),
    ):
        runs = AcceptanceByTemperature()
        runs.keep(request_at(0.8), INFOS, 0.5)
        runs.keep(other, models, 0.7)
        assert "This run, accepted of depth: 70 % at 0." in runs.words()


def test_a_run_that_waits_for_its_place_is_not_read_back(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    live, session = live_of(context(store)), TabSession()
    worker = live.board.context.hub.worker
    worker.set_script(script_of(8), max_live=0)
    frames = start_run(live, session, press())
    next(frames)
    assert session.player is not None and session.player.source.count == 0
    assert temperature_hint(live, session) == gr.skip()
    assert not caplog.records, "there is no event to read"
    session.player.source.cancel()
    frames.close()  # type: ignore[attr-defined]


def test_only_a_complete_run_with_drafts_is_shown_next_to_the_temperature(store: RunStore) -> None:
    live, session = live_of(context(store)), TabSession()
    worker = live.board.context.hub.worker
    assert temperature_hint(live, session) == gr.skip(), "no run yet"
    worker.slowdown = 1000.0
    frames = start_run(live, session, press())
    next(frames)
    frames.close()  # type: ignore[attr-defined]
    session.player.source.wait_done(10)  # type: ignore[union-attr]
    assert temperature_hint(live, session) == gr.skip(), "stopped"
    worker.slowdown = 0.2
    run(live, session)
    events = script_of(8)(request_at(0.0), "x")
    (end,) = (event for event in events if isinstance(event, RunCompleted))
    share = f"accepted of depth: {100 * end.stats.draft_acceptance_rate:.0f} % at 0."
    assert share in temperature_hint(live, session)["info"]
    run(live, session, temperature=0.8)
    assert "% at 0 and " in temperature_hint(live, session)["info"]
    run(live, session, drafters=[])
    assert temperature_hint(live, session) == gr.skip(), "plain decoding accepts nothing"
