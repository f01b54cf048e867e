"""`python -m tests.ui.pictures`: drives the page on the bundled models and on SmolLM2, and writes
docs/images."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.models.loading.catalog import SMOLLM2
from tests.core.remote_ssms.served import node_process
from tests.ui.browser.looks import turn_to
from tests.ui.sites import all_panes, choose, close_drawer, dock, open_drawer, run_tools
from ui.form.form import EXAMPLES

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
PANES_HEIGHT = 4200
WAIT_MS = 240_000
LOW_PANELS = """
#live-board { grid-template-rows: auto 380px auto auto !important; }
:is(#live-mask, #live-inspector) .ss-body { min-height: 190px !important; }
"""
# An element that sticks to the window's edge would cover a part of a full-page screenshot.
IN_PLACE = "#live-scrubber { position: static !important; }"
BUTTONS_IN_PLACE = (
    ":is(#tune-start, #prompts-measure, #compare-begin) { position: static !important; }"
)
# Without a vote the panel of proposals has no weights and no sentence.
NO_VOTE = "#live-proposals .ss-body { min-height: 190px !important; }"
ROUNDS_OF_NODE = """(row) => Object.fromEntries([...row.querySelectorAll("dl > div")]
  .map((one) => [one.firstChild.textContent, Number(one.lastChild.textContent)])
  .filter(([name]) => ["in time", "ahead", "late", "absent"].includes(name)))"""
# The path of the run log's folder differs between machines.
WITHOUT_FOLDER = r"""() => {
  const texts = document.createTreeWalker(document.body, 4);
  while (texts.nextNode()) {
    const files = /[^\s"]*\/(?=runs\.(db|metadata)|metadata\.yaml)/g;
    texts.currentNode.data = texts.currentNode.data.replace(files, "");
  }
}"""


@contextlib.contextmanager
def page_address(folder: str, *options: str) -> Iterator[str]:
    """Raises TimeoutError if the page does not answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "app.py", "--port", str(port), "--db", f"{folder}/runs.db", *options]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(960):  # at least four minutes, for a busy machine
            with contextlib.suppress(OSError):
                urllib.request.urlopen(address, timeout=2).close()
                break
            time.sleep(0.25)
        else:
            raise TimeoutError(f"the page at {address} does not answer")
        yield address
    finally:
        process.terminate()
        process.wait()


def run_example(page: Any, preset: str, example: str = "dialogue") -> None:
    text = next(text for name, text in EXAMPLES if name.lower() == example)
    page.locator("#prompt textarea").fill(text)
    choose(page, "preset", preset)
    page.wait_for_timeout(1500)  # the server fills in the preset's fields
    page.locator("#live-run").click()
    page.get_by_text("Finished:", exact=False).first.wait_for(timeout=120_000)
    page.locator("#live-figures .ss-race-speed").get_by_text("repeats").wait_for(timeout=240_000)
    page.wait_for_timeout(1500)  # until the last frame's charts are drawn


def take(browser: Any, address: str, name: str, width: int, scheme: str) -> None:
    """For `live-light-1280`, also saves single panels."""
    height = 844 if width < 1000 else 800 if width < 1500 else 1080
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(f"{address}?__theme={scheme}")
    run_example(page, "specinfer")
    page.wait_for_timeout(8000)  # the race is replayed at its measured speed
    if width < 1000:
        page.add_style_tag(content=IN_PLACE)
    page.screenshot(path=IMAGES / f"{name}.png", full_page=width < 1000)
    if name == "live-light-1280":
        all_panes(page).add_style_tag(content=LOW_PANELS + NO_VOTE)
        page.set_viewport_size({"width": width, "height": PANES_HEIGHT})
        page.wait_for_timeout(1500)
        for part in ("tree", "proposals", "lengths", "timeline", "mask", "what_if"):
            image = IMAGES / f"{part.replace('_', '-')}.png"
            page.locator(f"#live-{part}").screenshot(path=image)
        page.locator("#live-figures").screenshot(path=IMAGES / "race.png")
        page.locator("#live-strip [data-r='4']").first.click()  # a round with rejected drafts
        page.mouse.move(0, 0)
        page.wait_for_timeout(1500)
        page.locator("#live-inspector").screenshot(path=IMAGES / "inspector.png")
    page.close()


def take_parts(browser: Any, address: str, preset: str, parts: dict[str, str], number: int) -> None:
    """`parts`: for each panel, the name of its image file. `number`: the round, from 0."""
    page = browser.new_page(viewport={"width": 1280, "height": PANES_HEIGHT}, color_scheme="light")
    page.goto(f"{address}?__theme=light")
    all_panes(page).add_style_tag(content=LOW_PANELS)
    run_example(page, preset, "story")
    page.locator(f"#live-strip [data-r='{number}']").first.click()
    page.mouse.move(0, 0)  # no tooltip covers a picture
    page.wait_for_timeout(2500)
    for part, name in parts.items():
        page.locator(f"#live-{part}").screenshot(path=IMAGES / f"{name}.png")
    page.close()


def take_routed(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": PANES_HEIGHT}, color_scheme="light")
    page.goto(f"{address}?__theme=light")
    all_panes(page).add_style_tag(content=LOW_PANELS)
    choose(page, "preset", "specinfer")
    page.wait_for_timeout(1500)
    open_drawer(page).get_by_text("Every setting of the engine").click()
    for field, value in (("routing", "credit"), ("draft", "fused_credit")):
        choose(page, f"field-{field}", value)
    # The same budget on every machine.
    page.locator("#field-max_tree_nodes input, #field-max_tree_nodes textarea").first.fill("12")
    page.wait_for_timeout(1500)
    close_drawer(page).locator("#live-run").click()
    page.get_by_text("Finished:", exact=False).first.wait_for(timeout=120_000)
    page.locator("#live-strip [data-r='4']").first.click()
    page.mouse.move(0, 0)
    page.wait_for_timeout(2500)
    page.locator("#live-tree").screenshot(path=IMAGES / "fused-tree.png")
    # Enter, not a click: a panel's buttons are folded into one while the pointer is elsewhere.
    page.locator("#live-routing").get_by_role("button", name="Count afterwards").press("Enter")
    page.locator("#live-routing .ss-regret-said").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(2500)
    page.locator("#live-routing").screenshot(path=IMAGES / "routing.png")
    page.close()


def take_nodes(browser: Any) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        node, killed = stack.enter_context(node_process("127.0.0.1:0", "ssm-stories"))
        _, other = stack.enter_context(node_process("127.0.0.1:0", "ssm-dialogue"))
        options = ("--node", killed, "--node", other, "--dtype", "float32")
        address = stack.enter_context(page_address(folder, *options))
        page = browser.new_page(viewport={"width": 1920, "height": 1080}, color_scheme="light")
        page.goto(f"{address}?__theme=light")
        choose(dock(page, "when"), "preset", "specinfer")
        page.wait_for_timeout(1500)
        open_drawer(page)
        page.locator("#sampling-max_new_tokens input[type=number]").fill("400")
        page.get_by_label("Ignore EOS").check()
        page.wait_for_timeout(1500)
        close_drawer(page)
        row = page.locator("#live-timeline .ss-nodes-rows > li").filter(has_text=killed)
        # Opening the page has already started a run.
        row.get_by_text("drafts in time").wait_for(timeout=WAIT_MS)
        page.get_by_text("Finished:", exact=False).first.wait_for(timeout=WAIT_MS)
        rounds_before = sum(row.evaluate(ROUNDS_OF_NODE).values())
        page.locator("#live-run").click()
        page.wait_for_function(
            f"""([address, rounds_before]) => {{
              const rows = [...document.querySelectorAll("#live-timeline .ss-nodes-rows > li")];
              const row = rows.find((row) => row.textContent.includes(address));
              if (!row) return false;  // the list of the run before is gone
              const rounds = ({ROUNDS_OF_NODE})(row);
              const sum = Object.values(rounds).reduce((total, count) => total + count, 0);
              return rounds["in time"] > 0 && sum < rounds_before;
            }}""",
            arg=[killed, rounds_before],
            timeout=WAIT_MS,
        )
        node.kill()
        page.get_by_text("Finished:", exact=False).first.wait_for(timeout=WAIT_MS)
        timeline = all_panes(page).locator("#live-timeline")
        page.set_viewport_size({"width": 1920, "height": PANES_HEIGHT})
        page.wait_for_timeout(8000)
        rounds = row.evaluate(ROUNDS_OF_NODE)
        assert rounds["in time"] > 0 and rounds["absent"] > 0, f"not killed in mid-run: {rounds}"
        page.locator(f"#live-strip [data-r='{sum(rounds.values()) - rounds['absent']}']").click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(2500)
        timeline.screenshot(path=IMAGES / "nodes.png")
        page.close()


def take_passes(browser: Any) -> None:
    streamed = ("--offload", "host", "--offload-mbps", "200")
    for name, options in (("layers", streamed), ("ranks", ("--llm-ranks", "tp=2"))):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            address = stack.enter_context(page_address(folder, *options))
            page = browser.new_page(viewport={"width": 1920, "height": 1080}, color_scheme="light")
            page.goto(f"{address}?__theme=light")
            choose(dock(page, "when"), "preset", "specinfer")
            page.wait_for_timeout(1500)
            page.locator("#live-run").click()
            page.get_by_text("Finished:", exact=False).first.wait_for(timeout=WAIT_MS)
            timeline = all_panes(page).locator("#live-timeline")
            page.set_viewport_size({"width": 1920, "height": PANES_HEIGHT})
            page.wait_for_timeout(8000)
            timeline.screenshot(path=IMAGES / f"{name}.png")
            page.close()


def take_chat(browser: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, page_address(folder, "--llm", SMOLLM2) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        page.goto(f"{address}?__theme=light")
        page.locator("#example-code").click()  # runs at once
        page.get_by_text("Finished:", exact=False).first.wait_for(timeout=WAIT_MS)
        speed = page.locator("#live-figures .ss-race-speed")
        speed.get_by_text("repeats").wait_for(timeout=WAIT_MS)
        page.wait_for_timeout(9000)  # the race is replayed at its measured speed
        page.screenshot(path=IMAGES / "smollm2.png")
        page.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    chromium = parser.parse_args().chromium
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        page_address(folder) as address,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, address, "live-light-1280", 1280, "light")
        take(browser, address, "live-dark-1280", 1280, "dark")
        take(browser, address, "live-light-1920", 1920, "light")
        take(browser, address, "live-dark-1920", 1920, "dark")
        take(browser, address, "live-light-390", 390, "light")
        take_parts(browser, address, "minions", {"proposals": "votes", "tree": "vote-tree"}, 20)
        take_parts(browser, address, "best", {"lengths": "goodput", "timeline": "predicted"}, 6)
        take_routed(browser, address)
        take_tabs(browser, address)
        take_nodes(browser)
        take_passes(browser)
        take_chat(browser)
        browser.close()


def take_tabs(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page.goto(f"{address}?__theme=light")
    page.add_style_tag(content=BUTTONS_IN_PLACE)
    for drive in (_compare, _tune, _prompts, _sessions, _pair, _learn, _models):
        name = drive.__name__.removeprefix("_")
        drive(page)
        page.wait_for_timeout(2500)
        page.evaluate(WITHOUT_FOLDER)
        path = IMAGES / f"{name}.png"
        if name == "pair":  # only the pair: the board of the opened run is below it
            page.locator("#sessions-pair").screenshot(path=path)
        else:
            page.screenshot(path=path, full_page=True)
    page.close()


def _open(page: Any, tab: str) -> None:
    page.evaluate("scrollTo(0, 0)")
    turn_to(page, tab)


def _complete(page: Any, part: str) -> None:
    page.locator(f"#{part} .sp-study", has_text="Complete").wait_for(timeout=WAIT_MS)


def _compare(page: Any) -> None:
    _open(page, "Compare")
    page.locator("#compare-begin").click()
    _complete(page, "compare-progress")


def _tune(page: Any) -> None:
    _open(page, "Tune")
    page.locator("#tune-count input").fill("1")
    page.locator("#tune-start").click()
    _complete(page, "tune-progress")


def _prompts(page: Any) -> None:
    _open(page, "Prompts")
    page.locator("#prompts-measure").click()
    _complete(page, "prompts-progress")


def _sessions(page: Any) -> None:
    _open(page, "Sessions")
    page.locator("#sessions-search textarea, #sessions-search input").first.fill("Italian")
    page.locator("#sessions-runs .sp-open").first.click()
    page.locator("#sessions-scrubber .ss-column").first.wait_for()


def _pair(page: Any) -> None:
    _open(page, "Sessions")
    page.locator("#sessions-search textarea, #sessions-search input").first.fill("")
    page.locator("#sessions-runs .sp-open").nth(0).click()
    run_tools(page).locator("#sessions-compare").click()
    page.locator("#sessions-runs .sp-open").nth(1).click()
    page.locator("#pair-tables table").first.wait_for(timeout=WAIT_MS)


def _learn(page: Any) -> None:
    _open(page, "Learn")
    page.get_by_role("button", name="Lesson 3:", exact=False).click()
    page.locator("#learn-run").click()
    page.get_by_text("Finished:", exact=False).last.wait_for(timeout=WAIT_MS)


def _models(page: Any) -> None:
    _open(page, "Models")
    page.locator("#models-need").click()


if __name__ == "__main__":
    main()
