"""The pictures of the page as `gr.HTML` components, each drawn by a script of `assets/`.

A picture is no subclass of `gr.HTML`, because Gradio writes a `.pyi` file for each component class.
The HTML template is a fixed shell: no text of a model goes through a template.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import Any

import gradio as gr

from ui.components.assets import version
from ui.words.glossary import GLOSSARY

__all__ = [
    "COMPARE_PICTURES",
    "PICTURES",
    "Figures",
    "GridLength",
    "GridPoints",
    "GridSpeed",
    "Inspector",
    "Lengths",
    "Mask",
    "Picture",
    "PromptTable",
    "Proposals",
    "Routing",
    "Scrubber",
    "Timeline",
    "TokenStrip",
    "TokenTree",
    "WhatIf",
]

SHELL = Template('<div class="ss-shell" data-picture="$name"$part></div>')

# `element`, `trigger`, `props`, `watch` and `server` are Gradio's. Gradio finds the names of a
# component's events ('select') in this text.
LOADER = Template("""
const root = (window.gradio_config && window.gradio_config.root) || "";
const host = { element, trigger, props, watch, server, event: 'select'$asks };
import(root + "/specscope/$version/main.js").then(
  (main) => main.mount("$name", host),
  (error) => { element.textContent = "This picture could not be loaded: " + error.message; },
);
""")


@dataclass(frozen=True, slots=True)
class Picture:
    """One kind of picture: `name` is its key in `assets/main.js`, `label` its title on the page.

    `min_height`: pixels reserved until the script has run, so that the layout does not shift.
    `asks`: whether it has controls that trigger `submit`, for example to play the run. `part`: the
    picture's `data-part` attribute on Live; elsewhere it has none.
    """

    name: str
    label: str
    min_height: int
    asks: bool = False
    part: str = ""

    def __call__(
        self,
        value: dict[str, Any] | None = None,
        *,
        label: str | None = None,
        elem_id: str | None = None,
        part: str = "",
        **options: Any,
    ) -> gr.HTML:
        """The component; `options` are passed to `gr.HTML`. A click triggers the component's event
        `select`."""
        asks = ", asks: 'submit'" if self.asks else ""
        return gr.HTML(
            value=value or {},
            label=label or self.label,
            elem_id=elem_id,
            html_template=SHELL.substitute(
                name=self.name, part=f' data-part="{part}"' if part else ""
            ),
            js_on_load=LOADER.substitute(name=self.name, version=version(), asks=asks),
            apply_default_css=False,
            min_height=self.min_height,
            **options,
        )


TokenStrip = Picture("strip", "Text, token by token", 310, part="text")
Figures = Picture("figures", "The race", 90, part="race")
TokenTree = Picture("tree", "Token tree", 550, part="tree")
Scrubber = Picture("scrubber", "Rounds", 60, asks=True, part="scrubber")
Routing = Picture("routing", "Which SSMs draft", 0, asks=True)
Proposals = Picture("proposals", "Proposals and votes", 440)
Inspector = Picture("inspector", "Why this token?", 400)
Mask = Picture("mask", "Inside the pass", 150)
WhatIf = Picture("what_if", "What if", 150)
Lengths = Picture("lengths", "Accepted tokens and speculation length", 340)
Timeline = Picture("timeline", "Pipeline", 400)
GridSpeed = Picture("grid", "Speed", 330)
GridLength = Picture("grid", GLOSSARY["mean_acceptance_length"].title, 330)
GridPoints = Picture("points", "All points", 200)
PromptTable = Picture("prompts", "Acceptance prompt by prompt", 200)

PICTURES = (
    TokenStrip,
    Figures,
    TokenTree,
    Routing,
    Proposals,
    Inspector,
    Lengths,
    Timeline,
)

COMPARE_PICTURES = (
    Picture("compared", "Side by side", 240),
    Picture("ratios", f"{GLOSSARY['speedup'].title} over plain decoding", 220),
    Picture("portions", "Where the time goes", 220),
    Picture("rounds", "Accepted tokens per round", 300),
    Picture("rates", GLOSSARY["acceptance_rate_per_position"].title, 300),
    Picture("texts", "The texts", 200),
)
