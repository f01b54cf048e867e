"""Every tab at rest: widths, both themes, large type, what axe says, and its pictures as files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from bench.page.looks import (
    at_rest,
    cut_texts,
    keep_sizes,
    large_type,
    overflow,
    overlaps,
    small_texts,
    tabs,
    turn_to,
)
from bench.page.moving import finished, opened
from bench.page.site import Site
from bench.page.watched import Tab

__all__ = ["LECTURE", "WIDTHS", "files_of", "looks", "serious", "walked"]

WIDTHS = (390, 1280, 1920)
LECTURE = (1280, 1920)
OWN = ".ss-panel, .sp-shell, .sp-keys"
AXE = """async (own) => {
  const seen = [...document.querySelectorAll(own)].filter((node) => node.checkVisibility());
  if (!seen.length) return [];
  const { violations } = await axe.run(seen, { resultTypes: ["violations"] });
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)}`);
}"""
PANELS = ".ss-panel:has(.ss-tool)"


def walked(tab: Tab, site: Site, dark: bool, **options: Any) -> Iterator[tuple[Any, str]]:
    """The page with a finished run, on one of its tabs after the other."""
    page = opened(tab, site.url, dark=dark, **options)
    page.click("#live-run")
    finished(page)
    for name in tabs(page):
        turn_to(page, name)
        page.wait_for_timeout(600)
        if name == "Sessions" and page.locator(".sp-open").count():
            page.locator(".sp-open").first.click()
            page.locator("#sessions-notice").get_by_text("Finished: ").first.wait_for()
        at_rest(page)
        yield page, name


def looks(tab: Tab, site: Site, dark: bool) -> list[dict[str, Any]]:
    """For each tab and width: pixels too wide; in large type what is small, cut, overlapping."""
    found = []
    for page, name in walked(tab, site, dark):
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(400)
            at_rest(page)
            row: dict[str, Any] = {"tab": name, "width": width, "over": overflow(page)}
            if width in LECTURE:
                keep_sizes(page)
                large_type(page, True)
                row |= {
                    "large_over": overflow(page),
                    "small": small_texts(page),
                    "cut": cut_texts(page),
                    "overlaps": overlaps(page),
                }
                large_type(page, False)
            found.append(row)
        page.set_viewport_size({"width": 1280, "height": 900})
    return found


def serious(tab: Tab, site: Site, dark: bool) -> list[str]:
    """axe-core's serious and critical violations in our own elements, of every tab."""
    source = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    found = []
    for page, name in walked(tab, site, dark):
        if not page.evaluate("() => 'axe' in window"):
            page.evaluate(source)
        found += [f"{name}: {text}" for text in page.evaluate(AXE, OWN)]
    return found


def files_of(tab: Tab, site: Site, dark: bool, folder: Path) -> dict[str, Any]:
    """Every picture of every tab saved as SVG and as PNG: how many, and which of them failed."""
    saved, failed = 0, []
    for page, name in walked(tab, site, dark):
        for panel in page.locator(PANELS).all():
            if not panel.is_visible():
                continue
            told = f"{name}: {panel.locator('.ss-title').inner_text()}"
            panel.scroll_into_view_if_needed()
            at_rest(page)
            for form in ("SVG", "PNG"):
                button = panel.get_by_role("button", name=f"as {form}")
                if not button.count():
                    failed.append(f"{told} has no {form}")
                    continue
                with page.expect_download() as download:
                    button.click()
                path = folder / download.value.suggested_filename
                download.value.save_as(path)
                saved += 1
                if not _is_whole(path):
                    failed.append(f"{told} as {form}")
    return {"saved": saved, "failed": failed}


def _is_whole(path: Path) -> bool:
    """A PNG, or an SVG with words on white paper and no reference to anything outside."""
    data = path.read_bytes()
    if path.suffix == ".png":
        return data.startswith(b"\x89PNG") and len(data) > 2000
    root = ET.fromstring(data)
    shapes = [node for node in root.iter() if node.tag.endswith("}rect")]
    outside = any(mark in data for mark in (b"href=", b"url(http", b"foreignObject"))
    words = "".join(root.itertext()).strip()
    return bool(words and shapes) and shapes[0].get("fill") == "rgb(255, 255, 255)" and not outside
