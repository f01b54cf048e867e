"""The Models tab in a real Chromium, before real models: exchanged, refused, followed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.page.looks import turn_to
from tests.core.models.folders import saved
from tests.family import SSMS
from tests.ui.sites import OpenPage, hosted, overflows, ran, ready, said, shot, until
from ui.context import Context
from ui.exchange import Pair, Say
from ui.rig import Rig

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=pwned=1>"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[tuple[str, Context]]:
    """The page before a rig with the bundled models."""
    from core import Engine, load_models
    from core.worker import Worker

    def load(pair: Pair, say: Say) -> Worker:
        made = load_models(pair.llm, pair.ssms, pair.dtype, pair.device, say)
        return Worker(Engine(made))

    rig = Rig.opened(load, Pair())
    with hosted(tmp_path_factory.mktemp("models"), rig) as made:
        yield made


@pytest.fixture
def bundled(site: tuple[str, Context]) -> tuple[str, Context]:
    """With all bundled models loaded."""
    rig = site[1].rig
    if rig.names() != ("llm", *SSMS):
        rig.begin(Pair())
        while rig.exchange.loading:
            rig.wait(rig.exchange, 1.0)
    assert len(rig.names()) == 1 + len(SSMS)
    return site


def models(page: Any) -> Any:
    """The Models tab, its table drawn."""
    turn_to(page, "Models")
    page.locator("table.sp-offers").wait_for()
    said(page, re.compile("Loaded|loaded|Loading"), "models")
    return page


def ask(page: Any, llm: str, *ssms: str) -> None:
    """Write a pair into the form."""
    page.locator("#models-llm input, #models-llm textarea").fill(llm)
    page.locator("#models-ssms textarea").fill("\n".join(ssms))


def chips(page: Any) -> list[str]:
    return list(page.locator("#header .sp-chip b").all_inner_texts())


def load(page: Any, *names: str) -> None:
    """Load the form's pair and wait until the header shows these names."""
    page.click("#models-load")
    said(page, re.compile(r"Loaded in [\d.]+ s: " + ", ".join(names)), "models")
    page.wait_for_function(
        "(names) => [...document.querySelectorAll('#header .sp-chip b')]"
        ".map((b) => b.textContent).join() === names",
        arg=",".join(names),
    )


def drafters(page: Any) -> dict[str, bool]:
    """The drafters that Live offers, and which are chosen."""
    if not page.locator("#field-drafters").is_visible():
        page.get_by_text("Every setting of the engine").click()
    page.locator("#field-drafters label").first.wait_for()
    read = "(labels) => labels.map((l) => [l.innerText.trim(), l.querySelector('input').checked])"
    return dict(page.locator("#field-drafters label").evaluate_all(read))


def live(page: Any) -> None:
    turn_to(page, "Live")
    page.locator("#live-run").wait_for()


def shows_drafters(page: Any, expected: dict[str, bool]) -> None:
    for _ in range(100):
        if drafters(page) == expected:
            return
        page.wait_for_timeout(100)
    assert drafters(page) == expected


def preset(page: Any, name: str) -> None:
    """Wait until the menu of presets shows it: each control has its new value by itself."""
    menu = page.locator("#preset input").first
    until(page, lambda: menu.input_value() == name)


def test_all_bundled_models_give_way_to_one_ssm_and_the_page_follows(
    bundled: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = bundled
    page = ran(ready(browser_page(url)))
    assert chips(page) == ["llm", *SSMS]
    models(page)
    ask(page, "bundled", "ssm-stories")
    page.click("#models-need")
    said(page, re.compile(r"It fits: \d+ MiB together, .* free on (cpu|cuda)"), "models")
    said(page, re.compile(r"SSM ssm-stories: on this machine, 92\dk parameters, "), "models")
    assert context.rig.version == 0 or len(context.rig.names()) == 1 + len(SSMS), (
        "nothing is loaded yet"
    )
    load(page, "llm", "ssm-stories")
    stages = page.locator("#models-stages li").all_inner_texts()
    assert any("SSM 1 of 1 ssm-stories" in s and "weights" in s for s in stages), stages
    page.locator("table.sp-offers tbody.sp-offer").first.get_by_text("ssm-stories").wait_for()
    shot(page, "models-exchanged")
    live(page)
    shows_drafters(page, {"ssm-stories": True, "ngram": False})
    preset(page, "specinfer")
    page.click("#live-run")
    page.wait_for_function(
        "() => !document.querySelector('#live-legend').innerText.includes('ssm-code')"
    )
    said(page, "Finished: ")
    # A run may be over before its first picture is drawn.
    page.wait_for_function(
        "() => document.querySelector('#live-legend').innerText.includes('ssm-stories')"
    )
    rig = context.rig
    assert rig.names() == ("llm", "ssm-stories") and rig.leaving() == 0


def test_a_page_that_is_opened_later_shows_what_stands_then(
    bundled: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = bundled
    context.rig.begin(Pair("bundled", ("ssm-code",)))
    while context.rig.exchange.loading:
        context.rig.wait(context.rig.exchange, 1.0)
    page = ready(browser_page(url))
    page.wait_for_function("() => document.querySelectorAll('#header .sp-chip b').length === 2")
    assert chips(page) == ["llm", "ssm-code"]
    shows_drafters(page, {"ssm-code": True, "ngram": False})
    ran(page)


def test_a_page_that_was_open_says_so_and_follows_when_asked(
    bundled: tuple[str, Context], browser_page: OpenPage
) -> None:
    url, context = bundled
    page = ready(browser_page(url))
    context.rig.begin(Pair("bundled", ("ssm-code",)))
    while context.rig.exchange.loading:
        context.rig.wait(context.rig.exchange, 1.0)
    page.click("#live-run")
    said(page, "the models were exchanged since this page was opened: reload it")
    turn_to(page, "Sessions")
    live(page)
    shows_drafters(page, {"ssm-code": True, "ngram": False})
    ran(page)


def test_another_tokenizer_is_refused_and_what_stands_stays(
    bundled: tuple[str, Context], browser_page: OpenPage, tmp_path: Path
) -> None:
    url, context = bundled
    before = context.rig.version
    other = saved(tmp_path / "another-tokenizer")
    page = models(ready(browser_page(url)))
    ask(page, "bundled", str(other))
    page.click("#models-load")
    said(page, re.compile(r"ssm is '.*another-tokenizer': token id \d+ is "), "models")
    said(page, f"What was loaded stays: llm, {', '.join(SSMS)}.", "models")
    shot(page, "models-refused")
    ask(page, str(tmp_path / "nowhere"), "")
    page.click("#models-load")
    said(page, re.compile(r"model is '.*nowhere': no such folder"), "models")
    page.click("#models-need")
    said(page, re.compile(r"model is '.*nowhere': no such folder"), "models")
    ask(page, " ", "")
    page.click("#models-load")
    said(page, "llm is ' ': a text with at least one visible character", "models")
    assert context.rig.version == before and len(chips(page)) == 1 + len(SSMS)
    live(page)
    ran(page)


def test_names_are_text(
    bundled: tuple[str, Context], browser_page: OpenPage, tmp_path: Path
) -> None:
    url, context = bundled
    hostile = saved(tmp_path / HOSTILE)
    page = models(ready(browser_page(url)))
    ask(page, str(hostile), str(hostile))
    page.click("#models-need")
    said(page, re.compile("LLM <img src=x onerror=pwned=1>: on this machine"), "models")
    load(page, HOSTILE, HOSTILE)
    page.locator("table.sp-offers").get_by_text(HOSTILE).first.wait_for()
    live(page)
    shows_drafters(page, {HOSTILE: True, "ngram": False})
    page.fill("#prompt textarea", "w1 w2 w3")
    ran(page)
    assert page.evaluate("() => globalThis.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    assert not overflows(page)


def test_an_llm_alone_opens_the_plain_preset_and_ssms_bring_the_other_back(
    bundled: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = models(ready(browser_page(bundled[0])))
    ask(page, "bundled", "")
    load(page, "llm")
    live(page)
    shows_drafters(page, {"ngram": False})
    preset(page, "autoregressive")
    models(page)
    page.locator("tbody.sp-offer").get_by_role("button", name="Use the pair of llm").last.click()
    page.wait_for_function(
        "() => document.querySelector('#models-ssms textarea').value.includes('ssm-stories')"
    )
    load(page, "llm", *SSMS)
    live(page)
    shows_drafters(page, {**dict.fromkeys(bundled[1].drafter_names, True), "ngram": False})
    preset(page, "specinfer")


CUT = """() => { const wide = document.documentElement.clientWidth;
  const cells = [...document.querySelectorAll("table.sp-offers th, table.sp-offers td, .sp-use")];
  const seen = cells.filter((cell) => cell.offsetParent && !cell.closest("thead"));
  return [seen.length, seen.filter((cell) => { const box = cell.getBoundingClientRect();
    return box.right > wide + 1 || cell.scrollWidth > cell.clientWidth + 1;
  }).map((cell) => cell.textContent)]; }"""
LINES = """(buttons) => buttons.map((button) => { const range = document.createRange();
  range.selectNodeContents(button); return new Set([...range.getClientRects()]
    .filter((r) => r.width).map((r) => Math.round(r.top))).size; })"""


@pytest.mark.parametrize("dark", [False, True])
def test_the_table_is_readable_at_every_width_and_no_label_wraps(
    bundled: tuple[str, Context], browser_page: OpenPage, axe: Callable[..., Any], dark: bool
) -> None:
    page = models(ready(browser_page(bundled[0], dark=dark)))
    for width in (390, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        shot(page, f"models-{width}-{'dark' if dark else 'light'}")
        count, cut = page.evaluate(CUT)
        assert count > 40 and not cut, (width, cut)
        assert not overflows(page), width
        buttons = page.locator("#models-need, #models-load, #models-cancel, .sp-use")
        assert set(buttons.evaluate_all(LINES)) == {1}, width
        if width != 1920:
            assert axe(page, "#models-offers", "#models-notice", "#models-free") == []
    page.set_viewport_size({"width": 1280, "height": 900})
