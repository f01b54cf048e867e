"""The pictures in a real Chromium: table form, files to save, widths, dark, accessibility."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.page.looks import at_rest
from tests.ui.components.conftest import DRAWN, turn
from tests.ui.components.gallery import ORDER, scenes
from ui.components import PALETTE

pytestmark = pytest.mark.browser

Show = Callable[..., Any]


def test_the_table_form_takes_the_pictures_place(show: Show) -> None:
    page = show("verify")
    values = scenes()["verify"]()
    lengths = values["lengths"]
    rows = {
        "strip": len(values["strip"]["tokens"]),
        "figures": 7,
        "tree": len(values["tree"]["nodes"]) + len(values["tree"]["dropped"]) + 2,
        "inspector": sum(len(rows) for rows in values["inspector"]["bars"].values()),
        "lengths": sum(len(lengths[of]) for of in ("per_position", "histogram", "rounds")),
        "timeline": sum(len(spans) for spans in values["timeline"]["bars"].values()),
    }
    for name, count in rows.items():
        panel = page.locator(f"#picture-{name}")
        before = panel.bounding_box()["height"]
        panel.get_by_role("button", name="as a table").click()
        page.wait_for_function(DRAWN, arg="verify")
        assert panel.locator(".ss-table tbody tr").count() == count, name
        assert panel.bounding_box()["height"] == pytest.approx(before, abs=1), name
        panel.get_by_role("button", name="as a table").click()
        assert panel.locator(".ss-table").is_hidden()


SAVED_WORDS = {
    "strip": "SYNTHETIC prompt",
    "tree": "LLM wanted",
    "proposals": "ssm-stories",
    "figures": "Acceptance rate",
    "legend": "accepted draft",
    "lengths": "Rate by position",
    "timeline": "milliseconds",
    "inspector": "Rejected",
}


SAVED_VOTES = {
    "proposals": "Weights over the rounds",
    "lengths": "Expected tokens per second",
    "timeline": "dashed: predicted",
    "inspector": "recovered",
}


@pytest.mark.parametrize("scene", ["verify", "vote"])
def test_every_picture_saves_as_svg_and_png(show: Show, tmp_path: Path, scene: str) -> None:
    page = show(scene)
    for name in ORDER:
        panel = page.locator(f"#picture-{name}")
        panel.scroll_into_view_if_needed()
        if name in ("lengths", "timeline"):
            panel.locator(".main-svg").first.wait_for()
        svg, png = (saved(page, panel, form, tmp_path) for form in ("SVG", "PNG"))
        assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 4000
        words = "".join(ET.parse(svg).getroot().itertext())
        told = SAVED_WORDS if scene == "verify" else {**SAVED_WORDS, **SAVED_VOTES}
        assert told[name] in words
        text = svg.read_text(encoding="utf-8")
        assert "foreignObject" not in text and "http://127" not in text
        if name in COLOURED:
            missing = [
                rgb for rgb, color in DRAFTER_RGB.items() if rgb not in text and color not in text
            ]
            assert missing == [], name


REFERENCE = re.compile(r"""(?:href\s*=\s*["']|url\(["']?)(?!#|data:)([^"')]+)""")


NUMBERED = re.compile(r"#p[0-9a-f-]+")


def painted(svg: Path) -> list[tuple[str, str | None, list[str]]]:
    """Every shape and text of a file with its colours, in order. Plotly numbers patterns anew and
    writes its styles in another order."""
    return [
        (
            element.tag.split("}")[1],
            element.get("fill"),
            sorted(NUMBERED.sub("", element.get("style", "")).rstrip(";").split("; ")),
        )
        for element in ET.parse(svg).getroot().iter()
        if element.tag.split("}")[1] not in ("style", "title")
    ]


@pytest.mark.parametrize("scene", ["verify", "dial"])
def test_a_file_is_for_white_paper_whatever_the_page_looks_like(
    show: Show, tmp_path: Path, scene: str
) -> None:
    files: dict[bool, dict[str, Path]] = {False: {}, True: {}}
    for dark in (False, True):
        page = show(scene, dark=dark)
        (folder := tmp_path / str(dark)).mkdir()
        for name in ORDER:
            panel = page.locator(f"#picture-{name}")
            panel.scroll_into_view_if_needed()
            if name in ("lengths", "timeline"):
                panel.locator(".main-svg").first.wait_for()
            page.wait_for_function(DRAWN, arg=scene)
            files[dark][name] = saved(page, panel, "SVG", folder)
        assert page.evaluate("() => document.body.classList.contains('dark')") == dark
    for name in ORDER:
        light, dim = (painted(files[dark][name]) for dark in (False, True))
        assert light[1][:2] == ("rect", "rgb(255, 255, 255)"), f"{name}: paper is white"
        parted = [(a, b) for a, b in zip(light, dim, strict=True) if a != b]
        assert not parted, f"{name}: the same file in both themes, but {parted[0]}"
        text = files[True][name].read_text(encoding="utf-8")
        assert not REFERENCE.findall(text), f"{name}: nothing is fetched from elsewhere"


def test_a_picture_saves_while_its_table_stands_in_its_place(show: Show, tmp_path: Path) -> None:
    page = show("verify", fresh=True)
    panel = page.locator("#picture-tree")
    before = painted(saved(page, panel, "SVG", tmp_path))
    panel.get_by_role("button", name="as a table").click()
    panel.locator(".ss-table table").first.wait_for()
    assert painted(saved(page, panel, "SVG", tmp_path)) == before
    assert panel.locator(".ss-table").is_visible() and not panel.locator(".ss-body").is_visible()


COLOURED = ("legend", "strip", "tree", "proposals", "inspector", "timeline")
DRAFTER_RGB = dict(
    zip(("rgb(0, 114, 178)", "rgb(213, 94, 0)", "rgb(0, 158, 115)"), PALETTE[:3], strict=True)
)


def saved(page: Any, panel: Any, form: str, folder: Path) -> Path:
    with page.expect_download() as download:
        panel.get_by_role("button", name=f"as {form}").click()
    path = folder / download.value.suggested_filename
    assert path.name.startswith("specscope-") and path.suffix == f".{form.lower()}"
    download.value.save_as(path)
    return path


def test_a_hostile_picture_still_saves_as_valid_xml(show: Show, tmp_path: Path) -> None:
    page = show("hostile")
    for name in ("strip", "tree", "inspector"):
        svg = saved(page, page.locator(f"#picture-{name}"), "SVG", tmp_path)
        root = ET.parse(svg).getroot()
        tags = {element.tag.split("}")[1] for element in root.iter()}
        assert tags <= {"svg", "g", "style", "rect", "text", "tspan", "line", "path"}


# -- how it looks --


TOO_WIDE = """nodes => nodes.filter((n) => n.scrollWidth > n.clientWidth + 1)
  .map((n) => n.className)"""


@pytest.mark.parametrize("scene", ["verify", "vote", "dial"])
def test_nothing_sticks_out_of_the_page(show: Show, scene: str) -> None:
    page = show(scene)
    for width in (390, 768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        at_rest(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".ss-panel").evaluate_all(TOO_WIDE) == [], width


def test_dark_and_large_type(show: Show) -> None:
    page = show("verify", fresh=True, dark=True)
    style = """() => { const s = getComputedStyle(document.querySelector(".ss-panel"));
      return [s.backgroundColor, parseFloat(s.fontSize)] }"""
    background, size = page.evaluate(style)
    assert background == "rgb(20, 27, 41)"
    nodes = "document.querySelector('.ss-node-text').getBoundingClientRect().height"
    small = page.evaluate(nodes)
    page.evaluate("document.documentElement.classList.add('ss-large')")
    page.wait_for_function(f"{nodes} > {small * 1.05}")
    assert page.evaluate(style)[1] == pytest.approx(1.3 * size)


def test_reduced_motion_is_respected(show: Show) -> None:
    page = show("combine", still=True)
    turn(page, "verify")
    assert page.evaluate("document.getAnimations().length") == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("scene", ["verify", "vote"])
def test_axe_finds_no_serious_fault(
    show: Show, axe: Callable[..., list[str]], scene: str, dark: bool
) -> None:
    page = show(scene, dark=dark)
    page.wait_for_selector(".ss-timeline .main-svg")
    assert axe(page, *(f"#picture-{name}" for name in ORDER)) == []
