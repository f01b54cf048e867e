"""The Models tab in a real Chromium, with real models."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.models.folders import save_tiny_model
from tests.family import SSMS
from tests.ui.browser.looks import turn_to
from tests.ui.model_hosts import other_worker
from tests.ui.reading import becomes, in_looks
from tests.ui.sites import (
    LEAVING,
    OpenPage,
    Served,
    close_drawer,
    open_drawer,
    overflows,
    ran,
    ran_again,
    serve_page,
    shot,
    wait_notice,
    wait_ready,
)
from ui.models_tab import handlers
from ui.server.context import Context
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair, Say

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=pwned=1>"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Served]:
    from core import Engine, load_models
    from core.engine.worker import Worker

    def load(pair: ModelPair, say: Say) -> Any:
        if HOSTILE in pair.llm:
            return other_worker(HOSTILE)
        made = load_models(pair.llm, pair.ssms, pair.dtype, pair.device, say)
        return Worker(Engine(made))

    model_host = ModelHost.open(load, ModelPair())
    with serve_page(tmp_path_factory.mktemp("models"), model_host, ("models",)) as made:
        yield made


@pytest.fixture
def bundled_site(site: Served) -> Served:
    model_host = site[1].model_host
    if model_host.names() != ("llm", *SSMS):
        swap_models(site[1], ModelPair())
    assert len(model_host.names()) == 1 + len(SSMS)
    return site


def swap_models(context: Context, pair: ModelPair) -> None:
    context.model_host.begin(pair)
    while context.model_host.swap.is_loading:
        context.model_host.wait(context.model_host.swap, 1.0)


def models(page: Any) -> Any:
    turn_to(page, "Models")
    page.locator("table.sp-offers").wait_for()
    return page


def live(page: Any) -> None:
    turn_to(page, "Live")
    page.locator("#live-run").wait_for()


def ask(page: Any, llm: str, *ssms: str) -> None:
    page.locator("#models-llm input, #models-llm textarea").fill(llm)
    page.locator("#models-ssms textarea").fill("\n".join(ssms))


CHECK = "models-check"
PAIR = """() => ["llm :is(input, textarea)", "ssms textarea"].map((box) =>
  document.querySelector(`#models-${box}`).value)"""
CHIPS = """() => [...document.querySelectorAll("#header .sp-chip:not(.sp-rest)")].map((chip) =>
  chip.dataset.hint.split(": ")[0].replace(/^(LLM|SSM [A-Z]) /, ""))"""
PRESET = "() => document.querySelector('#preset input').value.split(' (')[0]"
DRAFTERS = """() => Object.fromEntries([...document.querySelectorAll("#field-drafters label")]
  .map((label) => [label.innerText.trim(), label.querySelector("input").checked]))"""
LEGEND = "(name) => document.querySelector('#live-strip .ss-legend').textContent.includes(name)"


def load(page: Any, *names: str) -> None:
    page.click("#models-load")
    wait_notice(page, re.compile(r"Loaded in [\d.]+ s: " + ", ".join(names)), "models")
    becomes(page, CHIPS, list(names))


def offers(page: Any, *drafters: str) -> None:
    open_drawer(page)
    if not page.locator("#field-drafters").is_visible():
        page.get_by_text("Every setting of the engine").click()
    becomes(
        page,
        DRAFTERS,
        {**dict.fromkeys(drafters, True), "ngram": False, "suffix": False, "table": False},
    )
    close_drawer(page)


def test_other_models_take_over_and_every_page_follows(
    bundled_site: Served, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, context = bundled_site
    page = ran(wait_ready(browser_page(url, forgiven=LEAVING)))
    becomes(page, CHIPS, ["llm", *SSMS])
    with monkeypatch.context() as patch:
        a_check_while_the_table_is_still_made_stays_reported(page, patch)
    the_table_is_whole_on_a_phone_and_a_notebook(page)
    an_llm_alone_opens_the_plain_preset(page)
    other_models_take_over(page, context)
    a_page_follows_models_that_were_exchanged_elsewhere(page, context)
    page.reload()
    becomes(wait_ready(page), CHIPS, ["llm", "ssm-code"])
    offers(page, "ssm-code")


def a_check_while_the_table_is_still_made_stays_reported(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, calls = threading.Event(), []
    offers, need, state = handlers.offers, handlers.memory_need, handlers.state_lines

    def slow_offers(*values: Any) -> Any:
        assert answered.wait(30.0)
        return offers(*values)

    monkeypatch.setattr(handlers, "offers", slow_offers)
    monkeypatch.setattr(handlers, "memory_need", lambda *v: calls.append("check") or need(*v))
    monkeypatch.setattr(handlers, "state_lines", lambda *v: calls.append("state") or state(*v))
    turn_to(page, "Models")
    page.click("#models-need")
    wait_notice(page, "It fits: ", CHECK)
    # The page asked for the tab's state when the tab was opened, not after the check.
    assert calls == ["state", "check"]
    answered.set()
    page.locator("table.sp-offers").wait_for()
    assert "It fits: " in page.locator(f"#{CHECK}-notice").inner_text()
    turn_to(page, "Live")
    turn_to(page, "Models")
    assert "It fits: " in page.locator(f"#{CHECK}-notice").inner_text()


def an_llm_alone_opens_the_plain_preset(page: Any) -> None:
    ask(page, "bundled", "")
    load(page, "llm")
    live(page)
    offers(page)
    becomes(page, PRESET, "autoregressive")


def other_models_take_over(page: Any, context: Context) -> None:
    model_host = context.model_host
    version, names = model_host.version, model_host.names()
    models(page)
    offer = page.locator("tbody.sp-offer").get_by_role("button", name="Use the pair of llm").last
    offer.press("Enter")  # by a key: the opened tab may still move
    becomes(page, PAIR, ["bundled", "\n".join(SSMS)])
    ask(page, "bundled", "ssm-stories")
    page.click("#models-need")
    wait_notice(page, re.compile(r"It fits: \d+ MiB together\."), CHECK)
    wait_notice(page, re.compile(r"SSM ssm-stories: on this machine, 92\dk parameters, "), CHECK)
    assert (model_host.version, model_host.names()) == (version, names), "nothing is loaded yet"
    load(page, "llm", "ssm-stories")
    stages = page.locator("#models-stages li").all_inner_texts()
    assert any("SSM 1 of 1 ssm-stories" in s and "weights" in s for s in stages), stages
    page.locator("table.sp-offers tbody.sp-offer").first.get_by_text("ssm-stories").wait_for()
    shot(page, "models-exchanged")
    live(page)
    offers(page, "ssm-stories")
    becomes(page, PRESET, "specinfer")
    ran_again(page, context)
    becomes(page, LEGEND, False, "ssm-code")
    becomes(page, LEGEND, True, "ssm-stories")
    assert model_host.names() == ("llm", "ssm-stories") and model_host.runs_on_old_models() == 0


def a_page_follows_models_that_were_exchanged_elsewhere(page: Any, context: Context) -> None:
    swap_models(context, ModelPair("bundled", ("ssm-code",)))
    page.click("#live-run")
    wait_notice(page, "the models were exchanged since this page was opened: reload it")
    turn_to(page, "Sessions")
    live(page)
    offers(page, "ssm-code")
    ran_again(page, context)


CUT = """() => { const wide = document.documentElement.clientWidth;
  const cells = [...document.querySelectorAll("table.sp-offers th, table.sp-offers td, .sp-use")];
  const seen = cells.filter((cell) => cell.offsetParent && !cell.closest("thead"));
  return [seen.length, seen.filter((cell) => { const box = cell.getBoundingClientRect();
    return box.right > wide + 1 || cell.scrollWidth > cell.clientWidth + 1;
  }).map((cell) => cell.textContent)]; }"""
LINES = """(buttons) => buttons.map((button) => { const range = document.createRange();
  range.selectNodeContents(button); return new Set([...range.getClientRects()]
    .filter((r) => r.width).map((r) => Math.round(r.top))).size; })"""


def the_table_is_whole_on_a_phone_and_a_notebook(page: Any) -> None:
    for look in in_looks(page, (390, False), (1280, False)):
        shot(page, f"models-{look}")
        count, cut = page.evaluate(CUT)
        assert count > 40 and not cut, (look, cut)
        assert not overflows(page), look
        buttons = page.locator("#models-need, #models-load, #models-cancel, .sp-use")
        assert set(buttons.evaluate_all(LINES)) == {1}, look


def test_what_cannot_be_loaded_is_refused_and_names_are_text(
    site: Served, browser_page: OpenPage, tmp_path: Path
) -> None:
    url, context = site
    before, names = context.model_host.version, context.model_host.names()
    other, hostile = (
        save_tiny_model(tmp_path / "another-tokenizer"),
        save_tiny_model(tmp_path / HOSTILE),
    )
    page = models(wait_ready(browser_page(url)))
    ask(page, "bundled", str(other))
    page.click("#models-load")
    wait_notice(page, re.compile(r"ssm is '.*another-tokenizer': token id \d+ is "), "models")
    wait_notice(page, f"What was loaded stays: {', '.join(names)}.", "models")
    shot(page, "models-refused")
    for button, folder in (("load", "nowhere"), ("need", "elsewhere")):
        ask(page, str(tmp_path / folder), "")
        page.click(f"#models-{button}")
        wait_notice(
            page,
            re.compile(f"model is '.*{folder}': no such folder"),
            "models" if button == "load" else CHECK,
        )
    ask(page, " ", "")
    page.click("#models-load")
    wait_notice(page, "llm is ' ': it must be a text with at least one visible character", "models")
    assert context.model_host.version == before
    becomes(page, CHIPS, [*names])
    live(page)
    ran(page)

    models(page)
    ask(page, str(hostile), str(hostile))
    page.click("#models-need")
    wait_notice(page, re.compile("LLM <img src=x onerror=pwned=1>: on this machine"), CHECK)
    load(page, "other", HOSTILE)
    page.locator("table.sp-offers").get_by_text(HOSTILE).first.wait_for()
    live(page)
    offers(page, HOSTILE)
    ran_again(page, context)
    assert page.evaluate("() => globalThis.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    assert not overflows(page)
