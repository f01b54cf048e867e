"""When a polling component asks the server, in a real Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from ui.shared.parts import SHELL, component_script

pytestmark = pytest.mark.browser

MOUNT = """([script, shell]) => {
  document.body.innerHTML = "<div id=tab hidden></div>";
  const element = document.createElement("div");
  element.innerHTML = shell;
  document.querySelector("#tab").append(element);
  window.asked = 0;
  window.props = { value: { ask_ms: 1000 } };
  const watch = (_name, update) => { window.give = (value) => { props.value = value; update(); }; };
  const trigger = (name) => { window.asked += name === "tick"; };
  new Function("element", "props", "watch", "trigger", script)(element, props, watch, trigger);
}"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_the_server_is_asked_while_the_part_is_visible_and_at_once_when_it_comes_into_view(
    chromium: Any,
) -> None:
    for script in ("requests.js", "progress.js", "header.js"):
        check_questions(chromium.new_page(), script)


def check_questions(page: Any, script: str) -> None:
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    page.evaluate(MOUNT, [component_script(script), SHELL])

    def asked_after(ms: int) -> Any:
        page.evaluate("() => { asked = 0; }")
        page.clock.run_for(ms)
        return page.evaluate("asked")

    assert asked_after(5000) == 0, "out of view"
    page.evaluate("() => { tab.hidden = false; }")
    page.wait_for_function("asked === 1")
    assert asked_after(5000) == 5
    page.evaluate("() => give({ ask_ms: 100 })")
    assert asked_after(1000) == 10
    page.evaluate(HIDE, True)
    assert asked_after(5000) == 0, "in a hidden browser tab"
    page.evaluate(HIDE, False)
    assert page.evaluate("asked") == 1
    page.evaluate("() => { tab.firstChild.remove(); }")
    page.clock.run_for(100)
    page.evaluate(HIDE, False)
    assert asked_after(5000) == 0, "removed"
    page.close()
