"""Small components of the page. Their scripts (`assets/*.js`) build the DOM from text nodes, so
that a prompt or a file name is never markup."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from core.config.mechanisms import is_model_free
from core.events import ModelInfo, RanksInfo
from ui.run.letters import letter, slots_of
from ui.run.pass_words import division_words
from ui.words.messages import Line
from ui.words.visible import visible

__all__ = [
    "SHARED_ASSETS",
    "component_script",
    "download",
    "grid_point",
    "header",
    "header_value",
    "log_line",
    "notice",
    "notice_value",
    "page_css",
    "offer_table",
    "page_js",
    "part",
    "study_list",
    "study_progress",
    "short_count",
    "stage_list",
]

SHARED_ASSETS = Path(__file__).parent / "assets"
LIVE_SHELL = '<div class="sp-shell" aria-live="polite"></div>'
SHELL = '<div class="sp-shell"></div>'


def header(value: dict[str, Any]) -> gr.HTML:
    """The header; triggers `select` when the button that offers a model is clicked, and `tick` for
    an update."""
    return part("header.js", "header", value)


def notice(elem_id: str, *lines: Line) -> gr.HTML:
    """Lines with a kind, announced by screen readers; triggers `tick` for an update."""
    return part("notice.js", elem_id, notice_value(lines), shell=LIVE_SHELL)


def study_progress(elem_id: str) -> gr.HTML:
    """A study's state, with Stop and Go on; triggers `tick` for an update and `select` with {"do":
    "stop" | "go" | "show", "study": id}."""
    return part("progress.js", elem_id)


def study_list(elem_id: str) -> gr.HTML:
    """Studies as a table; the caller renders it. Triggers `select` with {"do": "open" | "delete",
    "study": id} or {"do": "page", "by": 1 | -1}."""
    return part("studies.js", elem_id, render=False)


def download(elem_id: str) -> gr.HTML:
    """An invisible component: the browser saves its value {"name", "media_type", "text", "n"} as a
    file, once for each `n`."""
    return part("download.js", elem_id)


def offer_table(elem_id: str) -> gr.HTML:
    """Models that can be loaded; triggers `select` with {"llm": name, "ssms": {number: name}}, or
    with one of the two. With "load": true they are to be loaded at once."""
    return part("offers.js", elem_id)


def stage_list(elem_id: str) -> gr.HTML:
    """The stages of a loading with their times."""
    return part("stages.js", elem_id)


def grid_point(elem_id: str) -> gr.HTML:
    """One point of a grid with its runs; triggers `select` with {"run": id}."""
    return part("point.js", elem_id)


def part(
    script: str,
    elem_id: str,
    value: dict[str, Any] | None = None,
    *,
    shell: str = SHELL,
    render: bool = True,
) -> gr.HTML:
    """A component that a script of `assets/` draws from a dict."""
    return gr.HTML(
        value=value or {},
        html_template=shell,
        js_on_load=component_script(script),
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes="sp-part",
        render=render,
    )


def component_script(name: str) -> str:
    """The text of elements.js, then of a component's script."""
    scripts = (SHARED_ASSETS / "elements.js", SHARED_ASSETS / name)
    return "\n".join(script.read_text(encoding="utf-8") for script in scripts)


def header_value(
    models: Iterable[ModelInfo],
    state: str = "ready",
    place: int = 0,
    offer: str = "",
    scores: Mapping[str, tuple[int, int]] | None = None,
    ranks: RanksInfo | None = None,
) -> dict[str, Any]:
    """The header's value. `state`: the engine's state; `place`: the run's place in the queue.
    `ranks`: how the LLM is divided among processes. `offer`: the model that one click loads.
    `scores`: for each drafter that drafted, its numbers of accepted and of proposed tokens.

    A drafter without a model has a chip if `scores` contains it. A chip's `slot`: the number of a
    drafter's colour; -1 for the LLM. An SSM's `short` name omits the prefix, up to a hyphen, that
    the names of all SSMs share."""
    infos = tuple(models)
    names = [model.name for model in infos if model.role == "ssm"]
    prefix = os.path.commonprefix(names) if len(names) > 1 else ""
    prefix = prefix[: prefix.rfind("-") + 1]
    chips: dict[str, Any] = {}
    slot = 0
    for i, model in enumerate(infos):
        is_drafter = model.role == "ssm"
        chips[str(i)] = {
            "role": "SSM" if is_drafter else "LLM",
            "name": model.name,
            "short": model.name[len(prefix) :] if is_drafter else model.name,
            "parameters": short_count(model.parameters),
            "dtype": model.dtype,
            "device": model.device
            if is_drafter or ranks is None
            else f"{model.device}, {division_words(ranks)}",
            "slot": slot if is_drafter else -1,
            "letter": letter(slot) if is_drafter else "",
            "score": _score(scores or {}, model.name) if is_drafter else {},
        }
        slot += is_drafter
    chips |= _model_free_chips(scores or {}, infos)
    return {"models": chips, "state": state, "place": place, "offer": offer}


def _score(scores: Mapping[str, tuple[int, int]], name: str) -> dict[str, int]:
    """The drafter's score for its chip; empty without `scores`."""
    accepted, proposed = scores.get(name, (0, 0))
    return {"accepted": accepted, "proposed": proposed} if scores else {}


def _model_free_chips(
    scores: Mapping[str, tuple[int, int]], infos: Sequence[ModelInfo]
) -> dict[str, Any]:
    # `scores` may also have SSMs that are no longer loaded.
    slots = slots_of([name for name in scores if is_model_free(name)], infos)
    return {
        str(len(infos) + i): {
            "role": "drafter",
            "name": name,
            "short": name,
            "parameters": "",
            "dtype": "",
            "device": "",
            "slot": slot,
            "letter": letter(slot),
            "score": _score(scores, name),
        }
        for i, (name, slot) in enumerate(slots.items())
    }


def short_count(parameters: int) -> str:
    """A number of parameters in at most three digits: 7.51M for 7,510,000."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if parameters >= 0.9995 * size:  # 999,600 is 1M
            return f"{parameters / size:.3g}{unit}"
    return str(parameters)


def notice_value(lines: Iterable[Line], again: bool = False) -> dict[str, Any]:
    """Distinct lines that have text, in order. `again`: whether the browser polls for updates."""
    unique = list(dict.fromkeys(line for line in lines if line.text))
    by_index = {
        str(i): {"kind": line.kind, "text": visible(line.text)} for i, line in enumerate(unique)
    }
    return {"lines": by_index, "again": True} if again else {"lines": by_index}


def log_line(status: Any) -> Line:
    """A line about the store's `status()`; empty unless the log is paused."""
    if not status.paused:
        return Line("info", "")
    return Line(
        "warn",
        f"The log is paused: {status.reason}. The text goes on; {status.waiting} events wait, "
        f"{status.dropped} were dropped.",
    )


def page_css() -> str:
    """The CSS files beside these components' scripts."""
    # Sorted: if rules are equally specific, the later file's rule applies.
    return "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(SHARED_ASSETS.glob("*.css"))
    )


def page_js() -> str:
    """JavaScript that runs once in each browser tab."""
    names = ("keys.js", "key_list.js", "run_clicks.js")
    scripts = [(SHARED_ASSETS / name).read_text(encoding="utf-8") for name in names]
    # Each script is a function, so that names in different scripts do not collide.
    return "() => {" + "\n".join(f"({script.strip()})();" for script in scripts) + "}"
