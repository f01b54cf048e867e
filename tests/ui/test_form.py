"""The form of a request."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from core import Engine, Request
from core.config import PRESETS, SpeculationConfig
from core.errors import ConfigError
from core.events.outcome import Outcome
from tests.family import SSMS
from ui.form.fields import FIELD_NAMES, MEANINGS, config_of, field_controls
from ui.form.form import (
    CHAT_EXAMPLES,
    EXAMPLES,
    OWN,
    SAMPLING_NAMES,
    Form,
    build_command,
    build_settings,
    fill_prompt,
    own_preset,
    preset_values,
    request_of,
    validity,
)
from ui.form.presets import fields_at_temperature
from ui.shared.slider import Slider
from ui.words.settings import PAGE_NODES, field_label


@cache
def fresh_form() -> Form:
    with gr.Blocks():
        return build_settings(build_command("specinfer"), SSMS, "specinfer", chat=False)


def form_values(**changes: Any) -> list[Any]:
    form = fresh_form()
    controls = {**form.sampling, **form.fields}.items()
    values = {"prompt": form.prompt.value, **{name: one.value for name, one in controls}}
    unknown = set(changes) - set(values)
    assert not unknown, unknown
    return list({**values, **changes}.values())


def test_the_page_opens_with_specinfer_and_offers_every_preset() -> None:
    request, preset = request_of(form_values()), SpeculationConfig.preset("specinfer")
    preset = dataclasses.replace(preset, max_tree_nodes=PAGE_NODES)
    assert request.speculation == dataclasses.replace(preset, drafters=SSMS, record_top_k=5)
    assert request.prompt == EXAMPLES[0][1] and request.sampling.seed is None
    labels = [label for label, _ in fresh_form().preset.choices]
    assert [label.split(" (")[0] for label in labels] == [*PRESETS, OWN]


def test_every_field_has_a_control_and_a_meaning_in_one_line() -> None:
    with gr.Blocks():
        controls = field_controls(SpeculationConfig(), SSMS)
    assert tuple(controls) == FIELD_NAMES
    for name, control in controls.items():
        assert MEANINGS.get(name), f"{name} has no meaning"
        assert len(MEANINGS[name]) <= 90 and "\n" not in MEANINGS[name]
        assert control.label == field_label(name)
    assert set(MEANINGS) == set(FIELD_NAMES) and "rescaled to mean 1" in MEANINGS["eta"]


def test_typed_values_become_the_fields_types_and_lines_stop_strings() -> None:
    typed = {"expansion": "<2, 1,1>", "max_tree_nodes": "24", "speculation_length": 4.0}
    config = request_of(form_values(**typed, drafters=["ngram"])).speculation
    assert config.expansion == (2, 1, 1) and config.max_tree_nodes == 24
    assert config.speculation_length == 4 and config.drafters == ("ngram",)
    sampling = request_of(form_values(stop="\n\nThe end\n.", seed=" ")).sampling
    assert sampling.stop == ("The end", ".") and sampling.seed is None
    assert request_of(form_values(seed=" 7 ")).sampling.seed == 7


BAD = {
    "prompt": ("   ", "prompt is '   ': it must be a text with at least one visible character"),
    "max_new_tokens": (0, "max_new_tokens is 0: it must be a whole number from 1"),
    "temperature": (float("nan"), "temperature is nan: it must be 0 or a number from 0.001 to 100"),
    "top_k": (-1, "top_k is -1: it must be a whole number from 0"),
    "top_p": (0.0, "top_p is 0.0: it must be a number above 0 to 1"),
    "min_p": (-1, "min_p is -1: it must be a number from 0 to 1"),
    "repetition_penalty": (0, "repetition_penalty is 0: it must be a number from 0.01 to 100"),
    "seed": ("-5", "seed is '-5': it must be a whole number from 0"),
    "stop": ("x\n" * 40, "stop is"),
    "drafters": (["nobody", "nobody"], "name each drafter once"),
    "draft": ("guess", "draft is 'guess': it must be one of auto, topk"),
    "expansion": ("1,x", "expansion is '1,x': it must be whole numbers separated by commas"),
    "max_tree_nodes": ("many", "max_tree_nodes is 'many': it must be auto, uncut, or a number"),
    "speculation_length": (99, "speculation_length is 99: it must be a whole number from 0 to 16"),
    "max_speculation_length": (0, "max_speculation_length is 0"),
    "verify": ("mss", "verify is 'mss': with draft=topk and combine=union at temperature 0"),
    "record_top_k": (51, "record_top_k is 51: it must be a whole number from 0 to 50"),
    "combine": ("duel", "combine is 'duel': it must be one of union, vote, vote_tree, log_pool"),
    "routing": ("best", "routing is 'best': it must be one of all, audition, cosine, credit"),
    "routed_drafters": (0, "routed_drafters is 0: it must be a whole number from 1 to 32"),
    "weights": ("even", "weights is 'even': it must be one of full_information, paper"),
    "vote_nodes": (0, "vote_nodes is 0: it must be a whole number from 1 to 256"),
    "eta": (0, "eta is 0: it must be a number above 0 to 10"),
    "weight_bounds": ("2,10", "weight_bounds is 2: it must be a number from 0.001 to 1"),
    "length": ("long", "length is 'long': it must be one of fixed, trend, goodput, confidence"),
    "confidence_threshold": (1.5, "confidence_threshold is 1.5: it must be a number from 0 to 1"),
    "pipeline": ("on", "pipeline is 'on': it must be one of off, across"),
}


@pytest.mark.parametrize("field", BAD)
def test_bad_values_are_refused_by_name_value_and_what_is_allowed(field: str) -> None:
    value, words = BAD[field]
    with pytest.raises(ConfigError) as caught:
        request_of(form_values(**{field: value}))
    assert words in str(caught.value)
    if field != "prompt":
        assert words in validity(form_values(**{field: value}))


@pytest.mark.parametrize(
    ("field", "typed", "words"),
    [
        ("top_p", 7, "top_p is 7: it must be a number above 0 to 1"),
        ("top_p", None, "top_p is empty: it must be a number above 0 to 1"),
        ("top_k", 2.7, "top_k is 2.7: it must be a whole number from 0"),
        ("top_k", None, "top_k is empty: it must be a whole number from 0"),
        ("temperature", None, "temperature is empty: it must be 0 or a number from 0.001"),
        ("max_new_tokens", 2.5, "max_new_tokens is 2.5: it must be a whole number from 1"),
        ("max_new_tokens", None, "max_new_tokens is empty: it must be a whole number from 1"),
        (
            "speculation_length",
            None,
            "speculation_length is empty: it must be a whole number from 0 to 16",
        ),
    ],
)
def test_numbers_past_what_is_allowed_reach_our_checks(field: str, typed: Any, words: str) -> None:
    form = fresh_form()
    box = {**form.sampling, **form.fields}[field]
    assert words in validity(form_values(**{field: box.preprocess(typed)}))


def test_number_boxes_keep_what_is_typed_and_our_slider_is_gradios_block() -> None:
    form = fresh_form()
    controls = {**form.sampling, **form.fields}
    assert not [name for name, control in controls.items() if isinstance(control, gr.Slider)]
    boxes = [control for control in controls.values() if isinstance(control, gr.Number)]
    assert len(boxes) == 13
    for box in boxes:
        assert (box.minimum, box.maximum, box.precision) == (None, None, None)
    with gr.Blocks():
        slider = Slider(0, 2, value=1)
    assert slider.get_block_name() == "slider"
    assert not Path(inspect.getfile(Slider)).with_suffix(".pyi").exists()


def test_an_empty_prompt_leaves_run_enabled_and_an_invisible_one_is_a_text() -> None:
    assert validity(form_values(prompt="")) == "" and validity(form_values(prompt=None)) == ""
    assert request_of(form_values(prompt="\u200b")).prompt == "\u200b"
    with pytest.raises(ConfigError, match="prompt is"):
        request_of(form_values(prompt=" \n\u2003"))


def test_own_presets_come_back_as_they_were_saved() -> None:
    values = form_values(expansion="3,1", drafters=["ssm-code"], max_tree_nodes="16")
    own = {"mine": own_preset(values)}
    assert config_of(preset_values("mine", 0.0, SSMS, own)) == request_of(values).speculation


def test_only_unchanged_built_in_presets_follow_the_temperature() -> None:
    paper = preset_values("specinfer-paper", 0.0, SSMS)
    sampled = fields_at_temperature("specinfer-paper", 0.8, SSMS, paper)
    assert sampled == preset_values("specinfer-paper", 0.8, SSMS) != paper
    assert fields_at_temperature("specinfer-paper", 0.0, SSMS, sampled) == paper
    at_empty_box = fields_at_temperature("specinfer-paper", None, SSMS, sampled)
    assert at_empty_box == paper, "an empty box counts as temperature 0"
    other_preset = preset_values("specinfer", 0.0, SSMS)
    broken = [v if n != "expansion" else "x" for n, v in zip(FIELD_NAMES, paper, strict=True)]
    for name in ("own settings", "mine"):
        assert fields_at_temperature(name, 0.8, SSMS, paper) is None
    for shown in (other_preset, broken):
        assert fields_at_temperature("specinfer-paper", 0.8, SSMS, shown) is None


def most_repeats(token_ids: list[int]) -> int:
    return max(Counter(zip(*(token_ids[i:] for i in range(6)), strict=False)).values())


def test_the_first_example_is_continued_without_repetition(bundled: Engine) -> None:
    plain, outcome = SpeculationConfig.preset("autoregressive"), Outcome()
    for event in bundled.generate(Request(EXAMPLES[0][1], speculation=plain)):
        outcome.observe(event)
    result = outcome.to_plain()
    assert most_repeats(result["token_ids"]) <= 2, result["text"]
    assert result["summary"]["num_new_tokens"] > 64 and most_repeats([1, 2] * 9) == 7


def test_examples_are_texts_of_four_domains() -> None:
    for result in (EXAMPLES, CHAT_EXAMPLES):
        assert [name for name, _ in result] == ["Dialogue", "Story", "Code", "Math"]
        for _, text in result:
            request_of(form_values(prompt=text))
    chat = False
    fill = fill_prompt(1, lambda: chat)
    assert fill() == EXAMPLES[1][1]
    chat = True
    assert fill() == CHAT_EXAMPLES[1][1], "the models were exchanged meanwhile"
    assert len(SAMPLING_NAMES) == 10
