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
from tests.ui.components.samples import deep_tree, frames, hostile_values, large_tree, values_at
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
        "peaks": lambda: peaks(values_at(pipelined("ahead"), 4)),
        "deep": lambda: {**values_at(run), "tree": deep_tree(8)},
        "deeper": lambda: {**values_at(run), "tree": deep_tree(16)},
        "deeper-verify": lambda: {**values_at(run), "tree": {**deep_tree(16), "stage": "verify"}},
        "split": lambda: split(values_at(pipelined("ahead"), 4)),
        "tried": lambda: tried(values_at(pipelined("ahead"), 4)),
        "early": lambda: early(values_at(pipelined("across"), 4)),
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


def tried(values: dict[str, Any]) -> dict[str, Any]:
    """`auto`, which tried twice and stopped; its misses cost more than its hits saved."""
    found = {"3": {"kind": "ahead", "ms": 7.0, "without": 10.2, "on": True}}
    lost = {**found, "12": {"kind": "ahead", "ms": 21.6, "without": 10.6, "on": False}}
    sums = {**values["timeline"]["ahead"], "saved": 41.0, "wasted": 112.4}
    told = {"pipeline": "auto", "trials": lost, "ahead": sums}
    return {**values, "timeline": {**values["timeline"], **told}}


def peaks(values: dict[str, Any]) -> dict[str, Any]:
    """Sixty rounds of which a quarter took far longer than the rest, many of them neighbours."""
    long = {0, 1, 2, 3, 4, 5, 25, 46, 47, 50, 51, 52, 53, 55, 56}
    rounds = {
        str(n): {"ms": 100.0 + 7 * n if n in long else 5.0 + n % 3, "p": 6.0} for n in range(60)
    }
    return {**values, "timeline": {**values["timeline"], "rounds": rounds}}


def split(values: dict[str, Any]) -> dict[str, Any]:
    """Work ahead in two bars, as where a drafter prepares for several continuations."""
    bars: dict[str, Any] = {}
    for number, own in values["timeline"]["bars"].items():
        parts: list[dict[str, Any]] = []
        for bar in own.values():
            middle = bar["start"] + 0.4 * (bar["end"] - bar["start"])
            ahead = bar["name"] == "ahead"
            parts += [{**bar, "end": middle}, {**bar, "start": middle}] if ahead else [bar]
        bars[number] = {str(k): part for k, part in enumerate(parts)}
    return {**values, "timeline": {**values["timeline"], "bars": bars}}


def early(values: dict[str, Any]) -> dict[str, Any]:
    """Drafts that were early, one of them between two passes of the LLM."""
    entry = {"outcomes": 0, "p": 1.0, "hit": True, "wasted": 0.0, "why": ""}
    told = {"0": {**entry, "d": "0", "saved": 0.0}, "1": {**entry, "d": "1", "saved": 1.25}}
    return {**values, "timeline": {**values["timeline"], "round": told}}


def never(values: dict[str, Any]) -> dict[str, Any]:
    """`ahead`, where nothing can be drafted ahead."""
    told = {"pipeline": "ahead", "ahead": {}, "hits": {}, "round": {}}
    return {**values, "timeline": {**values["timeline"], **told}}


def budgeted(values: dict[str, Any]) -> dict[str, Any]:
    """A `fixed` length of 8 that a budget of 2 nodes for three drafters never lets them reach."""
    lengths, proposals = values["lengths"], values["proposals"]
    rounds = {key: {**told, "d": 1, "m": 1, "s": 8} for key, told in lengths["rounds"].items()}
    told = {
        "rounds": rounds,
        "reason": "drafts are at most 1 deep (max_tree_nodes is 2, for 3 drafters)",
        "budget": "max_tree_nodes=auto came to 2 nodes. SYNTHETIC",
    }
    rows = {key: row for key, row in proposals["rows"].items() if key != "2"}
    left = {"rows": rows, "nodeless": {"2": "no node for it: max_tree_nodes is 2"}}
    return {**values, "lengths": {**lengths, **told}, "proposals": {**proposals, **left}}


def drawn(values: dict[str, Any]) -> dict[str, Any]:
    """The first drafter drew its tokens, the others took the most probable ones."""
    rows = values["proposals"]["rows"]
    own = {key: {**token, "q": 0.25 if key == "0" else 1.0} for key, token in rows["0"].items()}
    return {**values, "proposals": {**values["proposals"], "rows": {**rows, "0": own}}}


def only_line_feeds(values: dict[str, Any]) -> dict[str, Any]:
    """A text that is nothing but line ends."""
    for token in values["strip"]["tokens"].values():
        token["t"] = token["tok"] = "\n"
    return values


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
