"""A page without Gradio and without a server, on which the pictures' modules are mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from bench.page.browser import Tab
from tests.ui.browser.looks import frames
from tests.ui.components.gallery import ORDER, values_of
from ui.components import assets_head, pack
from ui.components.assets import MEDIA_TYPES, asset_texts, version
from ui.components.theme import page_theme

ADDRESS = "http://pictures.test/"
BASE = f"{ADDRESS}specscope/{version()}/"
STATIC = Path(gr.__file__).parent / "templates" / "frontend"
# High enough for all pictures, since a picture out of sight is drawn with a delay.
WIDTH, HEIGHT = 1280, 4000

SCRIPT = """
import { mount } from "%smain.js";
const hosts = {};
window.pictures = {
  async build(labels) {
    const main = document.querySelector("main");
    main.replaceChildren();
    pictures.picked = null;
    await Promise.all(Object.entries(labels).map(([name, label]) => {
      const [element, shell] = [document.createElement("div"), document.createElement("div")];
      element.id = `picture-${name}`;
      shell.className = "ss-shell";
      shell.dataset.picture = name;
      element.append(shell);
      main.append(element);
      const host = { element, props: { label, value: {} }, event: "select", asks: "submit" };
      host.trigger = (event, told) => { pictures.picked = told; pictures.event = event; };
      host.watch = (_name, changed) => { host.changed = changed; };
      hosts[name] = host;
      return mount(name, host);
    }));
  },
  show(values) {
    for (const [name, value] of Object.entries(values)) {
      hosts[name].props.value = value;
      hosts[name].changed();
    }
  },
};
"""
STYLE = """
body { margin: 0; padding: 16px; font-family: var(--font);
  background: var(--body-background-fill); color: var(--body-text-color); }
main { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); }
"""
# A chart has data once Plotly has drawn it.
DRAWN = """() => !document.querySelector("[data-pending]")
  && [...document.querySelectorAll(".ss-plot")].every((plot) => plot.hidden || plot.data)"""
FONTS = "async () => { for (const font of document.fonts) await font.load(); }"
APPEARANCE = """([dark, large]) => { document.body.classList.toggle("dark", dark);
  document.documentElement.classList.toggle("ss-large", large); }"""


class Pictures:
    def __init__(self, tab: Tab) -> None:
        self.tab, self.page = tab, tab.page
        self.page.route(f"{ADDRESS}**", _answer)
        tab.visit(ADDRESS, WIDTH, HEIGHT)
        self.page.evaluate(FONTS)
        self.page.wait_for_function("() => window.pictures")

    def mount(self) -> None:
        self.look()
        self.motion(False)
        self.page.mouse.move(0, 0)
        labels = {name: make.label for name, make in ORDER.items()}
        self.page.evaluate("(labels) => pictures.build(labels)", labels)

    def show(self, scene: str, *names: str) -> Any:
        self.give({name: values_of(scene)[name] for name in names or ORDER})
        return self.rest()

    def give(self, values: dict[str, Any]) -> None:
        """Set values without waiting until the pictures are drawn."""
        packed = {name: pack(value) for name, value in values.items()}
        self.page.evaluate("(values) => pictures.show(values)", packed)

    def look(self, dark: bool = False, large: bool = False, width: int = WIDTH) -> Any:
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        self.page.evaluate(APPEARANCE, [dark, large])
        return self.rest()

    def motion(self, expected: bool) -> None:
        self.page.emulate_media(reduced_motion="no-preference" if expected else "reduce")

    def rest(self) -> Any:
        """Wait twice until all pictures are drawn, since drawing a picture may resize others."""
        for _ in range(2):
            frames(self.page)
            self.page.wait_for_function(DRAWN)
        return self.page

    def last_sent(self) -> Any:
        sent = self.page.evaluate("() => pictures.picked")
        return sent and {name: value for name, value in sent.items() if name != "press"}


def document() -> str:
    colours = str(page_theme()._get_theme_css())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Pictures</title>'
        f"<style>{colours}{STYLE}</style>{assets_head()}</head>"
        f'<body><main></main><script type="module">{SCRIPT % BASE}</script></body></html>'
    )


def _answer(route: Any) -> None:
    name = route.request.url.removeprefix(ADDRESS).partition("?")[0]
    name = name.removeprefix(f"specscope/{version()}/")
    asset = asset_texts().get(name)
    if not name:
        route.fulfill(body=document(), content_type="text/html")
    elif asset:
        route.fulfill(body=asset, content_type=MEDIA_TYPES[Path(name).suffix])
    elif name.startswith("static/fonts/"):
        route.fulfill(path=STATIC / name, content_type="font/woff2")
    else:
        route.fulfill(status=404, body="")
