"""The request form: its controls, and their values as a Request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.errors import ConfigError
from ui.form.fields import (
    FIELD_NAMES,
    MEANINGS,
    config_of,
    field_controls,
    values_of,
    whole_number,
)
from ui.form.menus import (
    DEFAULT_COMBINE,
    FOLLOWERS,
    combine_choices,
    draft_choices,
    idle_fields,
    pipeline_choices,
    verify_choices,
    weights_choices,
    why_pipeline_is_idle,
)
from ui.run.explain import RECORD_TOP_K
from ui.run.temperature import TEMPERATURE_INFO
from ui.words.settings import OWN, page_preset

__all__ = [
    "CHAT_EXAMPLES",
    "EXAMPLES",
    "FOLLOWED",
    "OWN",
    "SAMPLING_NAMES",
    "Form",
    "Command",
    "build_command",
    "build_settings",
    "chat_words",
    "control_updates",
    "examples",
    "fill_prompt",
    "own_preset",
    "preset_choices",
    "preset_config",
    "processor_controls",
    "preset_values",
    "request_of",
    "sampling_controls",
    "sampling_of",
    "empty_box_errors",
    "validity",
]

# One prompt for each of four domains.
EXAMPLES = (
    (
        "Dialogue",
        "User: I want to book a table for two at an Italian restaurant.\nAssistant:",
    ),
    ("Story", "Once upon a time, there was a little bear who lived in the forest. One day"),
    ("Code", "def read_lines(path):\n    with open(path) as f:"),
    (
        "Math",
        "Question: Raymond and Samantha are cousins. Raymond was born 6 years before Samantha. "
        "Raymond had a son at the age of 23. If Samantha is now 31, how many years ago was "
        "Raymond's son born?\nAnswer:",
    ),
)

# Prompts for an LLM that answers questions.
CHAT_EXAMPLES = (
    ("Dialogue", "Why is the sky blue? Answer in two sentences."),
    ("Story", "Tell me a short story about a little bear who lives in the forest."),
    ("Code", "Write a Python function that reads the lines of a file."),
    ("Math", "A train travels 60 miles in one hour. How far does it travel in three hours?"),
)

SAMPLING_NAMES = (
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "seed",
    "stop",
    "ignore_eos",
    "chat",
)


def examples(answers: bool) -> tuple[tuple[str, str], ...]:
    """Names and prompts of the examples. `answers`: whether prompts are chat messages."""
    return CHAT_EXAMPLES if answers else EXAMPLES


def fill_prompt(place: int, answers: Callable[[], bool]) -> Callable[[], str]:
    """The click handler of example `place`, from 0; `answers` is called on each click."""
    return lambda: examples(answers())[place][1]


@dataclass(frozen=True, slots=True)
class Form:
    """The form's controls; `inputs` has the order that `request_of` expects."""

    prompt: gr.Textbox
    examples: tuple[gr.Button, ...]
    preset: gr.Dropdown
    sampling: dict[str, Component]
    fields: dict[str, Component]

    @property
    def inputs(self) -> list[Component]:
        return [self.prompt, *self.sampling.values(), *self.fields.values()]


@dataclass(frozen=True, slots=True)
class Command:
    """Controls of the command row."""

    prompt: gr.Textbox
    examples: tuple[gr.Button, ...]
    preset: gr.Dropdown
    temperature: gr.Number


def build_command(preset: str, answers: bool = False) -> Command:
    """Builds the prompt box, the example buttons, the preset menu and the temperature."""
    first = examples(answers)[0][1]
    prompt = gr.Textbox(
        value=first, label="Prompt", lines=2, max_lines=2, elem_id="prompt", scale=4
    )
    with gr.Row(elem_classes="sp-examples"):
        buttons = tuple(
            gr.Button(name, size="sm", min_width=60, elem_id=f"example-{name.lower()}")
            for name, _ in EXAMPLES
        )
    chosen = gr.Dropdown(
        choices=preset_choices(),
        value=preset,
        label="Preset",  # live.css may add "(runs at once)"
        elem_id="preset",
        min_width=150,
    )
    return Command(prompt, buttons, chosen, temperature_control())


def preset_choices(own: Iterable[str] = ()) -> list[tuple[str, str]]:
    """(label, name) of the built-in presets, the visitor's `own` presets, and OWN."""
    built_in = [(f"{name} ({PRESET_WORDS[name]})", name) for name in PRESETS]
    return [*built_in, *((name, name) for name in (*own, OWN))]


PRESET_WORDS = {
    "autoregressive": "the LLM alone",
    "sequence": "one SSM, a chain",
    "specinfer": "one tree of all SSMs",
    "specinfer-paper": "the tree uncut",
    "minions": "a vote: one draft is checked, the others are dropped",
    "cosine": "chosen SSMs write one chain, for schedule cosine",
    "best": "a tree as large as the measured times make worth it",
}
assert set(PRESET_WORDS) == set(PRESETS)


def build_settings(
    command: Command,
    drafter_names: Sequence[str],
    preset: str,
    chat: bool,
    answers: bool = False,
    own: Sequence[str] = (),
) -> Form:
    """Builds the settings of sampling and engine, and returns the whole form. `chat`: whether the
    LLM has a chat template; `answers`: whether the template is used by default. `own`: user-defined
    drafters."""
    with gr.Accordion("Sampling", open=True):
        sampling = sampling_controls(chat, ticked=answers, temperature=command.temperature)
    with gr.Accordion("Every setting of the engine", open=False, elem_id="all-fields"):
        fields = field_controls(preset_config(preset, 0.0), drafter_names, own)
    return Form(command.prompt, command.examples, command.preset, sampling, fields)


def temperature_control() -> gr.Number:
    """The number box for the temperature, which is 0 at first."""
    # Not a slider, whose box would replace an empty value or a value out of range.
    return gr.Number(
        value=0,
        step=0.1,
        label="Temperature",
        info=TEMPERATURE_INFO,
        elem_id="sampling-temperature",
        min_width=90,
    )


def processor_controls() -> dict[str, Component]:
    """Controls of the logits processors other than the temperature."""
    return {
        "top_k": gr.Number(value=0, step=1, label="Top k", info="0: every token may be drawn."),
        "top_p": gr.Number(
            value=1, step=0.05, label="Top p", info="Keep the likeliest tokens up to this."
        ),
        "min_p": gr.Number(
            value=0, step=0.05, label="Min p", info="Leave out tokens under this share of the best."
        ),
        "repetition_penalty": gr.Number(
            value=1, step=0.05, label="Repetition penalty", info="Over 1: what was written, less."
        ),
    }


def sampling_controls(
    chat: bool, page: str = "", ticked: bool = False, temperature: Component | None = None
) -> dict[str, Component]:
    """A control for each of SAMPLING_NAMES. `chat`: whether the LLM has a chat template; `ticked`:
    whether the template is used at first. `page`: prefix of element ids, by default `sampling`."""
    controls: dict[str, Component] = {
        "max_new_tokens": gr.Number(
            value=128, step=1, label="Max new tokens", info="Tokens to write at most."
        ),
        "temperature": temperature or temperature_control(),
        **processor_controls(),
        # Not gr.Number: an empty gr.Number shows 0 once the accordion is opened.
        "seed": gr.Textbox(
            value="", max_lines=1, label="Seed", info="Empty: a new one is drawn and recorded."
        ),
        "stop": gr.Textbox(
            value="",
            lines=1,
            max_lines=4,
            label="Stop",
            info="Strings that end the text, a line each.",
        ),
        "ignore_eos": gr.Checkbox(False, label="Ignore EOS", info="Go on past the end of text."),
        "chat": gr.Checkbox(ticked, label="Chat", info=chat_words(chat), interactive=chat),
    }
    for name, control in controls.items():
        control.elem_id = f"{page}-{name}" if page else f"sampling-{name}"
    return controls


def chat_words(chat: bool) -> str:
    """What the control of `chat` does, or why it has no effect."""
    return (
        "Wrap the prompt in the LLM's chat template." if chat else "This LLM has no chat template."
    )


def request_of(values: Sequence[Any]) -> Request:
    """Values of `Form.inputs` -> Request. Raises ConfigError, which names the field."""
    count = len(SAMPLING_NAMES)
    prompt, rest = values[0], values[1:]
    with empty_box_errors():
        sampling, chat = sampling_of(rest[:count])
        return Request(prompt or "", sampling, config_of(rest[count:]), chat)


@contextmanager
def empty_box_errors() -> Iterator[None]:
    """Changes "is None" to "is empty" in a ConfigError about a number box."""
    try:
        yield
    except ConfigError as error:
        raise type(error)(re.sub(r"^([\w ]+) is None: ", r"\1 is empty: ", str(error))) from error


def sampling_of(values: Sequence[Any]) -> tuple[SamplingParams, bool]:
    """Values of `sampling_controls` -> the sampling, and whether the prompt is sent as a chat
    message. Raises ConfigError, which names the field."""
    by_name = dict(zip(SAMPLING_NAMES, values, strict=True))
    chat = by_name.pop("chat")
    by_name["stop"] = tuple(line for line in str(by_name["stop"] or "").split("\n") if line)
    by_name["seed"] = _seed(by_name["seed"])
    for name in ("max_new_tokens", "top_k"):
        by_name[name] = whole_number(by_name[name])
    return SamplingParams(**by_name), bool(chat)


def _seed(typed: Any) -> Any:
    text = str(typed if typed is not None else "").strip()
    # A seed has at most 19 digits; for thousands of digits `int` raises an error of its own.
    return None if not text else int(text) if text.isdecimal() and len(text) < 20 else typed


def preset_config(
    name: str, temperature: float, own: dict[str, Any] | None = None
) -> SpeculationConfig:
    """The visitor's `own` preset `name`, else the built-in preset with RECORD_TOP_K."""
    if own and name in own:
        return SpeculationConfig.from_plain(own[name])
    plain = page_preset(name, temperature).to_plain()
    return SpeculationConfig.from_plain({**plain, "record_top_k": RECORD_TOP_K})


def preset_values(
    name: str, temperature: float, names: Sequence[str], own: dict[str, Any] | None = None
) -> list[Any]:
    """The fields' values for a preset. `names`: the loaded SSMs."""
    return values_of(preset_config(name, temperature, own), names)


def own_preset(values: Sequence[Any]) -> dict[str, Any]:
    """Values of `Form.inputs` -> fields to store. Raises ConfigError, which names the field."""
    return config_of(values[1 + len(SAMPLING_NAMES) :]).to_plain()


def validity(values: Sequence[Any]) -> str:
    """Why core.config refuses the values of `Form.inputs` other than the prompt; else empty."""
    try:
        request_of(["x", *values[1:]])
    except ConfigError as error:
        return str(error)
    return ""


def control_updates(values: Sequence[Any]) -> dict[str, Component]:
    """The update of the control of each field in FOLLOWED, for values of `Form.inputs`. A control
    without effect shows the reason in place of its meaning."""
    by_name = dict(zip(SAMPLING_NAMES, values[1:], strict=False))
    fields = dict(zip(FIELD_NAMES, values[1 + len(SAMPLING_NAMES) :], strict=True))
    temperature = float(by_name["temperature"] or 0.0)
    draft, verify = fields["draft"] or "auto", fields["verify"] or "auto"
    combine, weights = fields["combine"] or DEFAULT_COMBINE, str(fields["weights"])
    updates: dict[str, Component] = {
        "draft": gr.Dropdown(choices=draft_choices(temperature, verify, combine, weights)),
        "verify": gr.Dropdown(choices=verify_choices(draft, temperature, combine)),
        "combine": gr.Dropdown(choices=combine_choices(draft, verify, temperature)),
        "pipeline": gr.Dropdown(
            choices=pipeline_choices(combine, draft),
            info=why_pipeline_is_idle(str(fields["pipeline"]), combine, draft)
            or MEANINGS["pipeline"],
        ),
    }
    idle = idle_fields(fields)
    for name in FOLLOWERS:
        properties: dict[str, Any] = {
            "interactive": name not in idle,
            "info": idle.get(name, MEANINGS[name]),
        }
        updates[name] = (
            gr.Dropdown(choices=weights_choices(combine, draft), **properties)
            if name == "weights"
            else gr.Textbox(**properties)
            if name in ("expansion", "weight_bounds")
            else gr.Number(**properties)
        )
    return updates


FOLLOWED = ("draft", "verify", "combine", "pipeline", *FOLLOWERS)
