"""Helpers for browser tests of the Live tab on one screen."""

from __future__ import annotations

from typing import Any

from tests.family import SSMS
from tests.ui import sites
from tests.ui.fakes import script_of
from tests.ui.sites import Stage

PARTS = ("race", "text", "tree", "scrubber", "dock")
SIZES = ((1280, 800), (1920, 1080))
ROUNDS = 12
FIVE = SSMS
# Gives one entry per part: the part's name, or the problem with the part.
SEEN = """(parts) => [...parts.map((part) => {
  const all = document.querySelectorAll(`[data-part=${part}]`);
  if (all.length !== 1) return `${all.length} of ${part}`;
  const box = all[0].getBoundingClientRect();
  const fits = box.left >= 0 && box.top >= 0 && box.right <= innerWidth + 0.5
    && box.bottom <= innerHeight + 0.5 && box.width > 100 && box.height > 30;
  return fits ? part : `${part}: ${JSON.stringify(box)}`;
}), document.documentElement.scrollHeight <= innerHeight ? "still" : "scrolls"]"""


def live_stage(stages: Any) -> Stage:
    stage: Stage = stages(("live", "sessions"))
    stage.clear()
    stage.play(script_of(ROUNDS))
    return stage


def race(page: Any) -> Any:
    sites.open_drawer(page).get_by_label("Race plain decoding").check()
    sites.ran(sites.close_drawer(page))
    page.locator("#live-figures .ss-race-same").get_by_text("same text").wait_for()
    page.locator("#live-figures .ss-race-speed").get_by_text("3 repeats").wait_for()
    return page
