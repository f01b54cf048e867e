"""What a visitor does to a run that goes on, and whether the page bears it."""

from __future__ import annotations

from typing import Any

from bench.page.moving import finished, opened, started, written
from bench.page.site import Site
from bench.page.watched import Tab

__all__ = ["bears_reload", "bears_two_tabs", "keys_work", "own_place_stays", "stands_still"]

WHILE_MS = 2000
# A word of the text selected, the text scrolled up, the tree zoomed in, the page scrolled.
OWN_PLACE = """() => {
  const scroll = document.querySelector("#live-strip .ss-scroll");
  const tree = document.querySelector("#live-tree .ss-viewport");
  return { zoom: tree.dataset.zoom, text: scroll.scrollTop, page: scrollY,
    selected: String(getSelection()), focus: document.activeElement?.id ?? "" };
}"""
SELECT = """() => {
  const word = document.querySelector("#live-strip .ss-prompt").firstChild;
  getSelection().setBaseAndExtent(word, 0, word, 12);
}"""


def own_place_stays(tab: Tab, site: Site) -> dict[str, Any]:
    """Zoom, scroll, focus and a selected text, before and after two seconds of updates."""
    page = opened(tab, site.url)
    started(page)
    page.wait_for_function("() => document.querySelector('#live-tree .ss-viewport')?.dataset.zoom")
    page.wait_for_timeout(WHILE_MS)
    page.get_by_role("button", name="Zoom in").first.click()
    page.locator("#live-strip .ss-scroll").evaluate("(node) => { node.scrollTop = 0; }")
    page.evaluate("() => scrollTo(0, 300)")
    page.evaluate(SELECT)
    page.wait_for_timeout(200)  # what was asked before the zoom is drawn
    before, text = page.evaluate(OWN_PLACE), written(page)
    page.wait_for_timeout(WHILE_MS)
    after = page.evaluate(OWN_PLACE)
    moved = written(page) != text
    page.click("#live-stop")
    finished(page, "Stopped: ")
    return {"changed": [name for name in before if before[name] != after[name]], "moved": moved}


def bears_reload(tab: Tab, site: Site) -> dict[str, Any]:
    """A page loaded anew in mid-run says where its run went, and it is there."""
    page = opened(tab, site.url)
    started(page)
    page.evaluate("() => dispatchEvent(new Event('pagehide'))")
    page.reload()
    page.locator("#live-notice").get_by_text("it is in Sessions").first.wait_for()
    site.context.store.flush()
    listed = _runs(site)
    page.click("#live-run")
    page.locator("#live-notice").get_by_text("Writing: ").first.wait_for()
    page.click("#live-stop")
    finished(page, "Stopped: ")
    return {"listed": listed >= 1}


def bears_two_tabs(one: Tab, two: Tab, site: Site) -> dict[str, Any]:
    """Two visitors at once: each sees the text of its own prompt, both are in the log."""
    pages = [opened(tab, site.url) for tab in (one, two)]
    before = _runs(site)
    prompts = ("The first visitor", "The second visitor")
    for page, prompt in zip(pages, prompts, strict=True):
        page.fill("#prompt textarea", prompt)
        page.click("#live-run")
    for page in pages:
        finished(page)
    site.context.store.flush()
    own = all(words in written(page) for page, words in zip(pages, prompts, strict=True))
    return {"own": own, "listed": _runs(site) - before == len(pages)}


def keys_work(tab: Tab, site: Site) -> dict[str, Any]:
    """Run, step, previous and next round, stop and large type by keys alone."""
    page = opened(tab, site.url)
    page.keyboard.press("r")
    page.locator("#live-notice").get_by_text("Writing: ").first.wait_for()
    page.keyboard.press("s")
    finished(page, "Stopped: ")
    heading = page.locator("#live-tree .ss-round-name")
    told = {"run and stop": True}
    here = heading.inner_text()
    for key, name in (("ArrowLeft", "previous"), ("ArrowRight", "next"), (".", "step")):
        page.keyboard.press(key)
        page.wait_for_timeout(400)
        told[name] = key == "." or (heading.inner_text() != here) == (key == "ArrowLeft")
    page.keyboard.press("t")
    told["large type"] = bool(page.evaluate("() => !!document.querySelector('html.ss-large')"))
    return {"failed": [name for name, held in told.items() if not held]}


def stands_still(tab: Tab, site: Site) -> dict[str, Any]:
    """How many animations run for a visitor who wants no motion, while a run goes on."""
    page = opened(tab, site.url, still=True)
    started(page)
    page.wait_for_timeout(WHILE_MS / 4)
    script = """() => document.getAnimations().filter((one) => one.playState === "running"
      && one.effect.getComputedTiming().duration > 10).length"""
    running = page.evaluate(script)
    page.click("#live-stop")
    finished(page, "Stopped: ")
    return {"animations": running}


def _runs(site: Site) -> int:
    return int(site.context.store.runs(site.context.query()).total)
