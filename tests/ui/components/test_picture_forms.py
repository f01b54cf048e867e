"""The forms of the pictures in a real Chromium: tables, saved files, widths and themes."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bench.page.browser import WAIT_MS
from tests.ui.browser.looks import SCRIPT
from tests.ui.components.bare import Pictures
from tests.ui.components.gallery import ORDER, values_of

pytestmark = pytest.mark.browser

ALWAYS = [name for name in ORDER if name != "routing"]
"""The pictures of a run in which all SSMs draft."""


def test_the_table_form_takes_the_pictures_place(pictures: Pictures) -> None:
    page = pictures.show("verify")
    values = values_of("verify")
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
        panel.locator(".ss-tools").hover()
        panel.get_by_role("button", name="as a table").click()
        pictures.rest()
        assert panel.locator(".ss-table tbody tr").count() == count, name
        assert panel.bounding_box()["height"] == pytest.approx(before, abs=1), name
        panel.locator(".ss-tools").hover()
        panel.get_by_role("button", name="as a table").click()
        assert panel.locator(".ss-table").is_hidden()


# The saved files in base64, by name.
SAVED = """([names, form, patience]) => new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error(`no ${form} of all of ${names}`)), patience);
  const [blobs, saved] = [new Map(), []];
  const [make, click] = [URL.createObjectURL, HTMLAnchorElement.prototype.click];
  const read = (blob) => new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(",")[1]);
    reader.readAsDataURL(blob);
  });
  URL.createObjectURL = (blob) => {
    const url = make.call(URL, blob);
    blobs.set(url, blob);
    return url;
  };
  HTMLAnchorElement.prototype.click = function () {
    saved.push([this.download, blobs.get(this.href)]);
    if (saved.length < names.length) return;
    [URL.createObjectURL, HTMLAnchorElement.prototype.click] = [make, click];
    Promise.all(saved.map(async ([name, blob]) => [name, await read(blob)]))
      .then((all) => resolve(Object.fromEntries(all)));
  };
  for (const name of names) {
    document.querySelector(`#picture-${name} [aria-label$="as ${form}"]`).click();
  }
})"""
NAMED = re.compile(r"specscope-(\w+)(?:-round-\d+)?\.(svg|png)")


def files_of(pictures: Pictures, form: str, names: Iterable[str] = ALWAYS) -> dict[str, bytes]:
    expected = list(names)
    files = pictures.page.evaluate(SAVED, [expected, form, WAIT_MS])
    results = {name: NAMED.fullmatch(name) for name in files}
    assert all(match and match[2] == form.lower() for match in results.values()), list(results)
    by_picture = {
        match[1]: base64.b64decode(files[name]) for name, match in results.items() if match
    }
    assert sorted(by_picture) == sorted(expected)
    return by_picture


NUMBERED = re.compile(r"#p[0-9a-f-]+")
REFERENCE = re.compile(r"""(?:href\s*=\s*["']|url\(["']?)(?!#|data:)([^"')]+)""")


def colours_of(svg: bytes) -> list[tuple[str, str | None, list[str]]]:
    """Plotly varies the ids of patterns and the order of styles."""
    return [
        (
            element.tag.split("}")[1],
            element.get("fill"),
            sorted(NUMBERED.sub("", element.get("style", "")).rstrip(";").split("; ")),
        )
        for element in ET.fromstring(svg).iter()
        if element.tag.split("}")[1] not in ("style", "title")
    ]


VERIFY_WORDS = {
    "strip": "SYNTHETIC prompt",
    "tree": "LLM wanted",
    "proposals": "ssm-stories",
    "figures": "tokens / pass",
    "lengths": "Rate by position",
    "timeline": "milliseconds",
    "inspector": "Accepted",
}
VOTE_WORDS = {
    **VERIFY_WORDS,
    "proposals": "Weights over the rounds",
    "lengths": "Expected tokens / s",
    "timeline": "dashed: predicted",
    "inspector": "after a rejection",
}
COLOURED = ("strip", "tree", "proposals", "inspector", "timeline")
DRAFTER_RGB = {
    "rgb(0, 114, 178)": "#0072b2",
    "rgb(213, 94, 0)": "#d55e00",
    "rgb(0, 158, 115)": "#009e73",
}


def test_every_picture_saves_as_files_for_white_paper(pictures: Pictures) -> None:
    pictures.show("verify")
    for name, png in files_of(pictures, "PNG").items():
        assert png.startswith(b"\x89PNG") and len(png) > 4000, name
    for scene, words in (("verify", VERIFY_WORDS), ("vote", VOTE_WORDS)):
        pictures.show(scene)
        for name, svg in the_same_in_both_themes(pictures, scene).items():
            text = svg.decode()
            assert words[name] in "".join(ET.fromstring(svg).itertext()), (scene, name)
            assert "foreignObject" not in text and "http://pictures" not in text, (scene, name)
            missing = [r for r, o in DRAFTER_RGB.items() if r not in text and o not in text]
            assert name not in COLOURED or missing == [], (scene, name)
    pictures.show("dial", "proposals")
    the_same_in_both_themes(pictures, "dial", ["proposals"])
    page = pictures.show("vote")  # a tree so narrow that the table does not change its layout
    before = colours_of(files_of(pictures, "SVG", ["tree"])["tree"])
    panel = page.locator("#picture-tree")
    panel.get_by_role("button", name="as a table").click()
    pictures.rest()
    assert colours_of(files_of(pictures, "SVG", ["tree"])["tree"]) == before, (
        "the same file while the table is shown"
    )
    assert panel.locator(".ss-table").is_visible() and not panel.locator(".ss-body").is_visible()


def the_same_in_both_themes(
    pictures: Pictures, scene: str, names: Iterable[str] = ALWAYS
) -> dict[str, bytes]:
    light = files_of(pictures, "SVG", names)
    pictures.look(dark=True)
    dark = files_of(pictures, "SVG", names)
    pictures.look()
    for name in light:
        one, other = colours_of(light[name]), colours_of(dark[name])
        assert one[1][:2] == ("rect", "rgb(255, 255, 255)"), f"{scene} {name}: paper is white"
        parted = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
        assert not parted, f"{scene} {name}: the themes differ: {parted[0]}"
        for svg in (light[name], dark[name]):
            assert not REFERENCE.findall(svg.decode()), f"{scene} {name}: fetches nothing"
    return light


def test_a_hostile_picture_still_saves_as_valid_xml(pictures: Pictures) -> None:
    pictures.show("hostile")
    for svg in files_of(pictures, "SVG", ("strip", "tree", "routing", "inspector")).values():
        tags = {element.tag.split("}")[1] for element in ET.fromstring(svg).iter()}
        assert tags <= {"svg", "g", "style", "rect", "text", "tspan", "line", "path"}


TOO_WIDE = """nodes => nodes.filter((n) => n.scrollWidth > n.clientWidth + 1)
  .map((n) => n.className)"""
CUT = """() => [
  ...[".ss-vote-said", ".ss-proposals .ss-words", ".ss-timeline .ss-words", ".ss-choice-said"]
    .map((name) => document.querySelector(name))
    .filter((p) => p.scrollHeight > p.clientHeight + 1 || p.scrollWidth > p.clientWidth + 1)
    .map((p) => p.textContent),
  ...[...document.querySelectorAll(".ss-mini-title")]
    .map((title) => [title, title.getBBox(), title.ownerSVGElement.clientWidth])
    .filter(([, box, width]) => box.x + box.width > width + 1)
    .map(([title]) => title.textContent),
]"""
IN_SIGHT = """(scroll) => {
  const right = (node) => node.getBoundingClientRect().right;
  const depths = [...scroll.querySelectorAll("thead th")].slice(1);
  return depths.filter((depth) => right(depth) <= right(scroll) + 1).length;
}"""


def test_nothing_sticks_out_or_is_cut_at_any_width(pictures: Pictures) -> None:
    for scene, depths in (("verify", 2), ("pool", 3), ("dial", 2), ("vote", 3)):
        pictures.show(scene)
        for large in (False, True):
            page = pictures.look(width=390, large=large)
            nothing_is_too_wide(page, 390)
            assert page.evaluate(CUT) == [], (scene, large)
            in_sight = page.locator("#picture-proposals .ss-scroll").evaluate(IN_SIGHT)
            assert in_sight >= depths - large, "more than one depth on a phone"
    for width in (768, 1280, 1920):
        nothing_is_too_wide(pictures.look(width=width), width)


def nothing_is_too_wide(page: Any, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".ss-panel").evaluate_all(TOO_WIDE) == [], width


STYLE = """() => { const s = getComputedStyle(document.querySelector(".ss-panel"));
  const node = document.querySelector(".ss-node-text").getBoundingClientRect();
  return [s.backgroundColor, parseFloat(s.fontSize), node.height] }"""


def test_dark_large_and_still(pictures: Pictures) -> None:
    pictures.show("verify", "strip", "tree")
    background, size, node = pictures.look(dark=True).evaluate(STYLE)
    assert background == "rgb(20, 27, 41)"
    _, large, larger = pictures.look(dark=True, large=True).evaluate(STYLE)
    assert large == pytest.approx(1.3 * size) and larger > node * 1.05
    pictures.show("combine")
    pictures.give({name: values_of("verify")[name] for name in ORDER})
    moving = "() => document.getAnimations().length"
    assert pictures.page.evaluate(moving) == 0 and pictures.rest().evaluate(moving) == 0


def test_axe_finds_no_serious_fault(pictures: Pictures, axe: Callable[..., list[str]]) -> None:
    pictures.page.evaluate(SCRIPT.with_name("contrast.js").read_text(encoding="utf-8"))
    for scene in ("verify", "vote"):
        page = pictures.show(scene)
        assert axe(page, *(f"#picture-{name}" for name in ORDER)) == [], scene
        texts = pictures.look(dark=True).evaluate("() => specscopeContrast.texts()")
        assert texts["count"] > 100 and texts["found"] == [], (scene, texts)
        pictures.look()
