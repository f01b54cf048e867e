"""After an exchange the form follows: drafters, presets, what the visitor chose."""

from __future__ import annotations

from typing import Any

import pytest

from storage import RunQuery, RunStore
from tests.ui.fakes import FakeWorker
from tests.ui.model_hosts import other_worker
from ui.form.fields import FIELD_NAMES, NGRAM
from ui.form.form import OWN, preset_values
from ui.server.context import Context, make_context
from ui.server.session import TabSession
from ui.server.visitors import Access
from ui.shared.following import followed_fields, legend_of, opening_preset

BEFORE = ("ssm-a", "ssm-b")
DRAFTERS = FIELD_NAMES.index("drafters")


def with_models(store: RunStore, *names: str, preset: str = "specinfer") -> Context:
    worker: FakeWorker = other_worker(*names)
    return make_context(worker, store, Access("127.0.0.1"), preset, RunQuery)


def follow(context: Context, preset: str, values: list[Any], temperature: float = 0.0) -> Any:
    name, made = followed_fields(context, BEFORE, preset, temperature, {}, values)
    group = made[DRAFTERS]
    return name, made, [choice for choice, _ in group.choices], group.value


@pytest.mark.parametrize(
    ("preset", "chosen"),
    [
        ("specinfer", ["new-1", "new-2"]),
        ("sequence", ["new-1"]),
        ("autoregressive", []),
        ("best", ["new-1", "new-2", NGRAM]),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_preset_means_the_models_that_stand(
    store: RunStore, preset: str, chosen: list[str], temperature: float
) -> None:
    context = with_models(store, "new-1", "new-2")
    values = preset_values(preset, temperature, BEFORE)
    name, made, choices, value = follow(context, preset, values, temperature)
    assert name == preset and choices == ["new-1", "new-2", NGRAM] and value == chosen
    expected = preset_values(preset, temperature, ("new-1", "new-2"))
    assert made[:DRAFTERS] == expected[:DRAFTERS]
    assert made[DRAFTERS + 1 :] == expected[DRAFTERS + 1 :]


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        (["ssm-a"], ["new"]),
        (["ssm-a", NGRAM], ["new", NGRAM]),
        (["ssm-b"], ["ssm-b"]),
        (["ssm-a", "ssm-b"], ["ssm-b"]),
        ([NGRAM], [NGRAM]),
        ([], []),
        (None, []),
    ],
)
def test_settings_of_the_visitors_own_stay_but_drafters_that_have_gone(
    store: RunStore, chosen: list[str] | None, kept: list[str]
) -> None:
    names = ("new", "ssm-b") if kept in (["ssm-b"], ["ssm-b", NGRAM]) else ("new",)
    values = preset_values("specinfer", 0.0, BEFORE)
    values[FIELD_NAMES.index("speculation_length")] = 3
    values[DRAFTERS] = chosen
    name, made, choices, value = follow(with_models(store, *names), "specinfer", values)
    assert name == OWN and value == kept and choices == [*names, NGRAM]
    assert all("value" not in str(one) for i, one in enumerate(made) if i != DRAFTERS)


def test_the_preset_that_a_page_opens_with_suits_the_models(store: RunStore) -> None:
    none, some = with_models(store), with_models(store, "new")
    assert opening_preset(none, BEFORE, "specinfer") == "autoregressive"
    assert opening_preset(none, (), "autoregressive") == "autoregressive"
    assert opening_preset(some, (), "autoregressive") == "specinfer", "what the page was opened as"
    assert opening_preset(some, BEFORE, "autoregressive") == "autoregressive", "it was chosen"
    plain = with_models(store, "new", preset="autoregressive")
    assert opening_preset(plain, (), "autoregressive") == "best"
    assert opening_preset(none, BEFORE, "mine") == "mine"


def test_the_legend_of_a_run_stays_that_of_its_models(store: RunStore) -> None:
    from tests.ui.boards import live_of

    live = live_of(with_models(store, "new"))
    value = legend_of(live.board, TabSession())
    assert "new" in str(value)
