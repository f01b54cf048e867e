"""A request of another page in Live's form: shown as it is, or refused in a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from storage import RunStore
from tests.synthetic import DRAFTERS
from tests.ui.boards import context, live_of
from ui.form.form import OWN, preset_config, request_of
from ui.server.session import TabSession
from ui.shared.into_live import fill_form, form_values_of, preset_of

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
    """With the drafters that its words mean."""
    whole = {"all": DRAFTERS, "first": DRAFTERS[:1]}
    names = [one for name in request.speculation.drafters for one in whole.get(name, (name,))]
    return replace(request, speculation=replace(request.speculation, drafters=tuple(names)))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: repr(one)[:40])
def test_the_form_shows_the_request_itself(store: RunStore, request_: Request) -> None:
    values = form_values_of(request_, context(store))
    assert request_of(values) == with_names(request_)


def test_the_menu_names_the_preset(store: RunStore) -> None:
    made = context(store)
    for name in PRESETS:
        for temperature in (0.0, 0.8):
            sampling = SamplingParams(temperature=temperature)
            request = Request("x", sampling, preset_config(name, temperature))
            assert preset_of(form_values_of(request, made), DRAFTERS) == name
    assert preset_of(form_values_of(REQUESTS[1], made), DRAFTERS) == OWN


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_that_recorded_nothing_opens_with_lives_own(store: RunStore, name: str) -> None:
    live, desk = live_of(context(store)), TabSession()
    bare = replace(preset_config(name, 0.0), record_top_k=0)  # as an endpoint makes it
    _, _, chosen, menu, *values, _, _ = fill_form(
        live, desk, lambda: Request("x", speculation=bare)
    )
    assert chosen == menu == name
    shown = with_names(Request("x", speculation=preset_config(name, 0.0)))
    assert request_of(values) == shown
    own = replace(bare, eta=0.123)
    _, _, chosen, _, *values, _, _ = fill_form(live, desk, lambda: Request("x", speculation=own))
    assert chosen == OWN and request_of(values).speculation.record_top_k == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculation": SpeculationConfig(("nobody", "ngram"))}, "drafters is 'nobody': drafters"),
        ({"chat": True}, "chat is True: false"),
        ({"sampling": SamplingParams(stop=("a\nb",))}, r"stop is \['a\\nb'\]"),
    ],
)
def test_what_cannot_run_is_refused(store: RunStore, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        form_values_of(Request(**{"prompt": "x", **changes}), context(store))


def test_the_form_is_filled_and_nothing_runs(store: RunStore) -> None:
    made = context(store)
    live, desk = live_of(made), TabSession()
    tabs, switch, chosen, menu, *values, said, beside = fill_form(
        live, desk, lambda: REQUESTS[1], on_change=True, beside=True
    )
    assert tabs.selected == "live" and switch is False and chosen == menu == OWN
    assert request_of(values) == REQUESTS[1]
    assert "press Run" in str(said) and "switched off" in str(said) and not beside["lines"]
    assert made.hub.worker.requests == []  # type: ignore[attr-defined]
    assert "switched off" not in str(fill_form(live, desk, lambda: REQUESTS[0]))


def test_a_refusal_changes_nothing_and_is_told_where_it_is_seen(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()

    def gone() -> Request:
        raise ConfigError("that run is gone")

    *rest, beside = fill_form(live, desk, gone, beside=True)
    assert "that run is gone" in str(beside) and "gone" not in str(rest)
    tabs, *_, said, _ = fill_form(live, desk, gone)
    assert tabs.selected == "live" and "that run is gone" in str(said)
