"""Small components of the page: header chips, notices, the list of runs. Plain `gr.HTML` with dict
values.

Their scripts (`assets/*.js` here) build the DOM from text nodes alone, so a prompt or a file name
is never markup. Knows how to show values, not where they come from.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from core.config.mechanisms import is_model_free
from core.events import ModelInfo, RanksInfo
from ui.run.letters import letter, slots_of
from ui.run.ranks import division_words
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
    "pair_tables",
    "part",
    "run_list",
    "study_list",
    "study_progress",
    "short_count",
    "stage_list",
]

SHARED_ASSETS = Path(__file__).parent / "assets"
LIVE_SHELL = '<div class="sp-shell" aria-live="polite"></div>'
SHELL = '<div class="sp-shell"></div>'


def header(value: dict[str, Any]) -> gr.HTML:
    """Chips of the loaded models, the engine's state, the place in the queue; triggers `select`
    when the offer is clicked."""
    return _part("header.js", SHELL, "header", value)


def notice(elem_id: str, *lines: Line) -> gr.HTML:
    """Lines with a kind, announced by screen readers; triggers `tick` to be updated."""
    return _part("notice.js", LIVE_SHELL, elem_id, notice_value(lines))


def run_list(elem_id: str) -> gr.HTML:
    """Past runs as a table; triggers `select` with {"run": id}."""
    return _part("runs.js", SHELL, elem_id)


def study_progress(elem_id: str) -> gr.HTML:
    """A study's state, with Stop and Go on; triggers `tick` for an update and `select` with {"do":
    "stop" | "go" | "show", "study": id}."""
    return _part("progress.js", SHELL, elem_id)


def study_list(elem_id: str) -> gr.HTML:
    """Past studies as a table, not rendered yet; triggers `select` with {"do": "open" | "delete",
    "study": id} or {"do": "page", "by": 1 | -1}."""
    return _part("studies.js", SHELL, elem_id, render=False)


def pair_tables(elem_id: str) -> gr.HTML:
    """Two tables of two runs: their figures with ratios, the settings that differ."""
    return _part("pair.js", SHELL, elem_id)


def download(elem_id: str) -> gr.HTML:
    """Invisible: a value {"name", "media_type", "text", "n"} is saved as a file, once for each
    n."""
    return _part("download.js", SHELL, elem_id)


def offer_table(elem_id: str) -> gr.HTML:
    """Models that can be loaded; triggers `select` with {"llm": name, "ssms": {number: name}}, or
    only one of the two to fill in."""
    return _part("offers.js", SHELL, elem_id)


def stage_list(elem_id: str) -> gr.HTML:
    """The stages of a loading with their times."""
    return _part("stages.js", SHELL, elem_id)


def grid_point(elem_id: str) -> gr.HTML:
    """One point of a grid with its runs; triggers `select` with {"run": id}."""
    return _part("point.js", SHELL, elem_id)


def part(script: str, elem_id: str, value: dict[str, Any] | None = None) -> gr.HTML:
    """A component of one tab, drawn by a script of `assets/` from a dict."""
    return _part(script, SHELL, elem_id, value)


def _part(
    script: str,
    shell: str,
    elem_id: str,
    value: dict[str, Any] | None = None,
    render: bool = True,
) -> gr.HTML:
    return gr.HTML(
        value=value or {},
        html_template=shell,
        js_on_load=component_script(script),
        apply_default_css=False,
        elem_id=elem_id,
        render=render,
    )


def component_script(name: str) -> str:
    """A component's script behind the helpers that all of them use."""
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
    """`ranks`: how the LLM is divided among processes. `slot`: a drafter's colour; the LLM has
    none. `offer`: models that one click loads.
    `scores`: of each drafter that drafted, how many of its tokens were accepted, and how many it
    proposed; one without a model has a chip then, since its letter is in the pictures."""
    infos = tuple(models)
    prefix = _common_prefix([model.name for model in infos if model.role == "ssm"])
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
            "device": model.device if is_drafter or ranks is None else _divided(model, ranks),
            "slot": slot if is_drafter else -1,
            "letter": letter(slot) if is_drafter else "",
            "score": _score(scores or {}, model.name) if is_drafter else {},
        }
        slot += is_drafter
    chips |= _lookup_chips(scores or {}, infos)
    return {"models": chips, "state": state, "place": place, "offer": offer}


def _score(scores: Mapping[str, tuple[int, int]], name: str) -> dict[str, int]:
    """Empty before the first draft of a run; of a drafter that has drafted nothing noughts."""
    accepted, proposed = scores.get(name, (0, 0))
    return {"accepted": accepted, "proposed": proposed} if scores else {}


def _lookup_chips(
    scores: Mapping[str, tuple[int, int]], infos: Sequence[ModelInfo]
) -> dict[str, Any]:
    # The shown run's SSMs are not always the loaded ones.
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


def _divided(model: ModelInfo, ranks: RanksInfo) -> str:
    return f"{model.device}, {division_words(ranks)}"


def _common_prefix(names: list[str]) -> str:
    """What all names begin with, up to a hyphen; empty for a single name."""
    prefix = os.path.commonprefix(names) if len(names) > 1 else ""
    return prefix[: prefix.rfind("-") + 1]


def short_count(parameters: int) -> str:
    """7.51M for 7,510,000."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if parameters >= size:
            return f"{parameters / size:.3g}{unit}"
    return str(parameters)


def notice_value(lines: Iterable[Line], again: bool = False) -> dict[str, Any]:
    """Distinct lines in order. `again`: the browser asks for updates, since the lines expire by
    themselves."""
    unique = list(dict.fromkeys(line for line in lines if line.text))
    by_index = {str(i): {"kind": x.kind, "text": visible(x.text)} for i, x in enumerate(unique)}
    return {"lines": by_index, "again": True} if again else {"lines": by_index}


def log_line(status: Any) -> Line:
    """A notice for the store's `status()`; empty unless the log is paused."""
    if not status.paused:
        return Line("info", "")
    return Line(
        "warn",
        f"The log is paused: {status.reason}. The text goes on; {status.waiting} events wait, "
        f"{status.dropped} were dropped.",
    )


def page_css() -> str:
    """CSS of these components, of the layout, and of each tab's own components."""
    # Sorted: among rules of equal weight the later file wins, on every machine the same.
    return "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(SHARED_ASSETS.glob("*.css"))
    )


def page_js() -> str:
    """JavaScript that runs once in each tab: keyboard, large type, counting clicks."""
    scripts = [
        (SHARED_ASSETS / name).read_text(encoding="utf-8") for name in ("keys.js", "presses.js")
    ]
    # A function each, so that their names do not meet.
    return "() => {" + "\n".join(f"({script.strip()})();" for script in scripts) + "}"
