"""Which settings made a run: a preset by its name, else what is not as usual."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from storage import RunStore
from tests.synthetic import DRAFTERS, synthetic_run
from tests.ui.boards import ALL, context, notice_of, sessions_of
from ui.run.view import View, reduce_all
from ui.server.session import TabSession
from ui.sessions.history import list_values
from ui.sessions.tab import opened_run
from ui.words.settings import settings_line, settings_of


def asked(config: SpeculationConfig, temperature: float = 0.0, **sampling: Any) -> dict[str, Any]:
    return Request("x", SamplingParams(8, temperature, **sampling), config).to_plain()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_known_also_by_its_drafters_names(name: str, temperature: float) -> None:
    config = replace(SpeculationConfig.preset(name, temperature), record_top_k=5)
    whole = {"all": DRAFTERS, "first": DRAFTERS[:1]}
    named = [n for drafter in config.drafters for n in whole.get(drafter, (drafter,))]
    for one in (config, replace(config, drafters=tuple(named))):
        told = settings_of(asked(one, temperature), DRAFTERS)
        assert (told.name, told.differ) == (name, ())
        assert told.sampling == (f"temperature {temperature:g}",)


def test_what_differs_is_named() -> None:
    config = SpeculationConfig(combine="vote", length="trend", pipeline="ahead", carry_over=True)
    told = settings_of(asked(config, 0.5, top_k=3, top_p=0.9), DRAFTERS)
    assert told.brief(9) == (
        "own settings: combine=vote, length=trend, pipeline=ahead, carry_over=true"
    )
    assert told.brief(3) == "own settings: combine=vote, length=trend, pipeline=ahead, 1 more"
    assert told.sampling == ("temperature 0.5", "top_k 3", "top_p 0.9")
    wide = settings_of(asked(SpeculationConfig(expansion=(2, 1))), DRAFTERS)
    assert wide.differ == ("expansion=2,1",)
    fewer = settings_of(asked(SpeculationConfig(drafters=DRAFTERS[:2])), DRAFTERS)
    assert fewer.brief(3) == "own settings", "who drafts stands beside it"
    plain = asked(SpeculationConfig())
    plain["speculation"]["unheard_of"] = 1
    assert settings_of(plain, DRAFTERS).name == "settings of another version"


def test_the_list_and_the_opened_run_say_it(store: RunStore) -> None:
    for event in synthetic_run(4, seed=1):
        store.record(event)
    made = context(store)
    row = list_values(made, ALL, "", "", "all", "newest", 1)[0]["rows"]["0"]
    view = reduce_all(synthetic_run(4, seed=1))
    assert view.started and row["sampling"] == "temperature 0"
    told = settings_of(view.started.asked, DRAFTERS)
    assert row["settings"] == told.brief(3) and told.differ
    opened = notice_of(opened_run(sessions_of(made), TabSession(), ALL, row["id"]), 0)
    assert settings_line(view) in opened
    assert settings_line(view).endswith(f"; temperature 0; drafters {', '.join(DRAFTERS)}.")
    assert settings_line(View()) == ""


def test_when_a_run_was_says_the_clock(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for event in synthetic_run(4, seed=1):
        store.record(event)
    for zone, when in (("UTC0", "00:01:00 UTC"), ("EAT-3", "03:01:00 UTC+0300")):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        row = list_values(context(store), ALL, "", "", "all", "newest", 1)[0]["rows"]["0"]
        assert row["when"] == f"2026-01-01 {when}"
    monkeypatch.undo()
    time.tzset()
