"""A page of all pictures fed with SYNTHETIC values, to look at by hand and for browser tests.

`python -m tests.ui.components.gallery` serves it; `--shots DIR` saves screenshots of it instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from core.events import Event
from tests.synthetic import MINIONS, Mechanisms, synthetic_run
from tests.together import together
from tests.ui.components.samples import deep_tree, frames, hostile_values, large_tree, values_at
from tests.ui.components.variants import (
    alike,
    alone,
    budgeted,
    chance,
    drawn,
    early,
    never,
    only_line_feeds,
    others,
    over,
    paused,
    peaks,
    split,
    tried,
    unlike,
)
from ui.components import (
    Figures,
    Inspector,
    Legend,
    Lengths,
    Proposals,
    Timeline,
    TokenStrip,
    TokenTree,
    launch_options,
    pack,
)
from ui.frame import Baseline

BASELINE = Baseline(41.0, "synthetic-plain", "41 tokens/s plain, measured")
ORDER = {
    "legend": Legend,
    "figures": Figures,
    "strip": TokenStrip,
    "tree": TokenTree,
    "proposals": Proposals,
    "inspector": Inspector,
    "lengths": Lengths,
    "timeline": Timeline,
}


def scenes() -> dict[str, Callable[[], dict[str, Any]]]:
    """Name -> values of all pictures."""
    run = synthetic_run(rounds=30, seed=5)
    voted = minions_run("vote")
    return {
        "verify": lambda: values_at(run, 4, "verify", node=2, baseline=BASELINE),
        "draft": lambda: values_at(run, 4, "draft"),
        "combine": lambda: values_at(run, 4, "combine"),
        "commit": lambda: values_at(run, 4, "commit", node=0),
        "vote": lambda: values_at(voted, 12),
        "lost": lambda: values_at(voted, 12, "combine"),
        "dial": lambda: values_at(minions_run("vote_tree"), 11),
        "pool": lambda: values_at(minions_run("log_pool"), 11),
        "ahead": lambda: values_at(pipelined("ahead"), 4),
        "ahead-end": lambda: values_at(pipelined("ahead"), 19),
        "across": lambda: values_at(pipelined("across"), 4),
        "together": lambda: values_at(together(run), 4),
        "peaks": lambda: peaks(values_at(pipelined("ahead"), 4)),
        "deep": lambda: {**values_at(run), "tree": deep_tree(8)},
        "deeper": lambda: {**values_at(run), "tree": deep_tree(16)},
        "deeper-verify": lambda: {**values_at(run), "tree": {**deep_tree(16), "stage": "verify"}},
        "split": lambda: split(values_at(pipelined("ahead"), 4)),
        "tried": lambda: tried(values_at(pipelined("ahead"), 4)),
        "chance": lambda: chance(values_at(pipelined("ahead"), 4), 7),
        "chance-elsewhere": lambda: chance(values_at(pipelined("ahead"), 4), 2),
        "alike": lambda: alike(values_at(pipelined("ahead"), 4)),
        "alone": lambda: alone(values_at(pipelined("across"), 4)),
        "alone-yet": lambda: alone(values_at(pipelined("across"), 4), ended=False),
        "others": lambda: others(values_at(pipelined("across"), 4)),
        "paused": lambda: paused(values_at(pipelined("ahead"), 4)),
        "begun": lambda: values_at(run[:1]),
        "early": lambda: early(values_at(pipelined("across"), 4)),
        "unlike": lambda: unlike(values_at(pipelined("ahead"), 4)),
        "over": lambda: over(values_at(pipelined("ahead"), 4)),
        "never": lambda: never(values_at(minions_run("log_pool"), 11)),
        "budget": lambda: budgeted(values_at(run, 4, node=0)),
        "drawn": lambda: drawn(values_at(run, 4)),
        "plain": lambda: values_at(synthetic_run(rounds=5, seed=1, drafters=()), 2),
        "feeds": lambda: only_line_feeds(values_at(run, 4)),
        "hostile": hostile_values,
        "large": lambda: {**values_at(run), "tree": large_tree()},
        "empty": lambda: {name: {} for name in ORDER},
    }


def minions_run(combine: str) -> list[Event]:
    """A SYNTHETIC run with every mechanism at once, one of its drafters lost at the end."""
    return synthetic_run(30, seed=5, mechanisms=replace(MINIONS, combine=combine, loses=26))


def pipelined(pipeline: str) -> list[Event]:
    """A SYNTHETIC run of trees, drafted while the LLM verifies."""
    uses = Mechanisms("union", "goodput" if pipeline == "ahead" else "fixed", pipeline)
    return synthetic_run(20, seed=5, mechanisms=uses)


def build(play_delay: float = 0.08) -> gr.Blocks:
    """Scene buttons, a live play of a run, the pictures, and what the last selection was."""
    with gr.Blocks() as demo:
        with gr.Row():
            buttons = {name: gr.Button(name, elem_id=f"scene-{name}") for name in scenes()}
            play = gr.Button("play", elem_id="scene-play")
        with gr.Row():
            now = gr.Textbox(label="scene", elem_id="now")
            picked = gr.Textbox(label="selected", elem_id="picked")
        pictures = {name: make(elem_id=f"picture-{name}") for name, make in ORDER.items()}
        outputs = list(pictures.values())
        for name, button in buttons.items():
            shown = button.click(_shower(name), None, outputs, show_progress="hidden")
            shown.then(partial(str, name), None, now, show_progress="hidden")
        played = play.click(_player(play_delay), None, outputs, show_progress="hidden")
        played.then(partial(str, "play"), None, now, show_progress="hidden")
        for picture in outputs:
            picture.select(_picked, None, picked, show_progress="hidden")
    return demo


def _shower(name: str) -> Callable[[], list[Any]]:
    return lambda: [pack(value) for value in scenes()[name]().values()]


def _player(delay: float) -> Callable[[], Iterator[list[Any]]]:
    def run() -> Iterator[list[Any]]:
        for values in frames(rounds=12, seed=7):
            yield [pack(value) for value in values.values()]
            time.sleep(delay)

    return run


def _picked(event: gr.EventData) -> str:
    return repr(event._data)


def shoot(folder: Path) -> None:
    """Screenshots of every scene: light and dark, four widths, large type."""
    import shutil

    from playwright.sync_api import sync_playwright

    demo = build()
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scene, width, scheme, large in SHOTS:
            page = browser.new_page(viewport={"width": width, "height": 1000})
            page.on("console", lambda m: print(m.type, m.text) if m.type == "error" else None)
            page.on("pageerror", lambda e: print("PAGE ERROR", e))
            page.goto(f"{url}?__theme={scheme}")
            page.wait_for_selector(".ss-panel")
            if large:
                page.evaluate("document.documentElement.classList.add('ss-large')")
            page.click(f"#scene-{scene}")
            page.wait_for_timeout(2500)
            name = f"{scene}-{width}-{scheme}{'-large' if large else ''}.png"
            page.screenshot(path=folder / name, full_page=True)
            page.close()
        browser.close()
    demo.close()


SHOTS = (
    ("verify", 1280, "light", False),
    ("vote", 1280, "light", False),
    ("vote", 1920, "dark", True),
    ("lost", 1280, "dark", False),
    ("dial", 1280, "light", False),
    ("pool", 390, "light", False),
    ("ahead", 1280, "light", False),
    ("ahead", 390, "dark", False),
    ("across", 1280, "dark", False),
    ("draft", 1280, "light", False),
    ("combine", 1280, "dark", False),
    ("commit", 1920, "dark", False),
    ("verify", 390, "light", False),
    ("verify", 1920, "light", True),
    ("plain", 1280, "light", False),
    ("hostile", 1280, "light", False),
    ("empty", 1280, "light", False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", type=Path, help="folder for screenshots")
    arguments = parser.parse_args()
    if arguments.shots:
        shoot(arguments.shots)
    else:
        build().launch(**launch_options())


if __name__ == "__main__":
    main()
