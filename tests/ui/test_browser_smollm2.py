"""SmolLM2 with its SSMs, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.engine.worker import Worker
from core.models.loading.catalog import BUNDLED, SMOLLM2
from tests.core.engines import texts_of
from tests.smollm2 import smollm2
from tests.ui import decoded, sites
from tests.ui.reading import becomes
from ui.form.form import CHAT_EXAMPLES
from ui.run.explain import quote
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair

pytestmark = pytest.mark.browser

TOKENS = 12
SURROUNDINGS = """() => [...document.querySelectorAll("#live-strip .ss-template")]
  .map((side) => side.textContent)"""
CUT = """() => { const { scrollHeight, clientHeight } =
  document.querySelector("#live-inspector .ss-body"); return scrollHeight - clientHeight; }"""
DRAWN = """() => [...document.querySelectorAll("#live-strip .ss-tok")]
  .map((token) => token.textContent).join("")"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[sites.Served]:
    smollm2()
    worker = Worker(Engine(load_models(SMOLLM2, (BUNDLED,), "float32")))
    host = ModelHost(worker, pair=ModelPair(SMOLLM2))
    with sites.serve_page(tmp_path_factory.mktemp("smollm2"), host, ("sessions",)) as site:
        yield site


def test_a_question_is_answered_drawn_and_kept(
    real: sites.Served, browser_page: sites.OpenPage
) -> None:
    url, context = real
    page = sites.wait_ready(browser_page(url))
    sites.open_drawer(page).locator("#sampling-max_new_tokens input[type=number]").fill(str(TOKENS))
    sites.close_drawer(sites.wait_form_settled(page))
    name, question = CHAT_EXAMPLES[0]
    page.locator(f"#example-{name.lower()}").click()  # runs at once
    decoded.wait_finished(page)
    run = decoded.latest_run(context)
    assert run.started.prompt == question and len(run.started.drafters) == 4
    text = "".join(delta for one in run.completed for delta in one.text_deltas)
    becomes(page, DRAWN, text)
    page.set_viewport_size({"width": 1280, "height": 800})
    for number, verdict in enumerate(run.verified):
        page.locator(f"#live-scrubber [data-r='{number}']").click()
        page.locator("#live-tree").get_by_text(f"Round {number + 1}", exact=True).wait_for()
        own = page.locator("#live-inspector .ss-inspected-title")
        own.get_by_text(quote(verdict.own_text)).wait_for()
        becomes(page, CUT, 0)
    before, after = page.evaluate(SURROUNDINGS)
    assert "<|im_start|>user" in before and "<|im_start|>assistant" in after
    plain = SpeculationConfig.preset("autoregressive")
    alone = Request(question, SamplingParams(TOKENS), plain, chat=True)
    ids = [token for one in run.completed for token in one.token_ids]
    assert [ids] == texts_of(context.model_host.worker.submit(alone).events())
