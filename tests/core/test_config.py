"""Configuration: every refusal names field, value and what is allowed; only lossless pairs pass."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import (
    COMBINES,
    DRAFTS,
    LENGTHS,
    PRESETS,
    VERIFIES,
    Request,
    SamplingParams,
    SpeculationConfig,
    lossless_rules,
    parse_field,
)
from core.errors import ConfigError

NAN, INF = float("nan"), float("inf")

BAD_SAMPLING: list[tuple[str, Any, str]] = [
    ("max_new_tokens", 0, "a whole number from 1 to 1000000"),
    ("max_new_tokens", -3, "a whole number"),
    ("max_new_tokens", 2.0, "a whole number"),
    ("max_new_tokens", True, "a whole number"),
    ("max_new_tokens", "8", "a whole number"),
    ("max_new_tokens", None, "a whole number"),
    ("temperature", -0.1, "a number from 0 to 100"),
    ("temperature", NAN, "a number from 0 to 100"),
    ("temperature", INF, "a number"),
    ("temperature", "hot", "a number"),
    ("temperature", False, "a number"),
    ("top_k", -1, "a whole number from 0"),
    ("top_k", 1.5, "a whole number"),
    ("top_p", 0.0, "a number above 0 to 1"),
    ("top_p", 1.01, "a number above 0 to 1"),
    ("top_p", NAN, "a number"),
    ("seed", -1, "a whole number from 0"),
    ("seed", 2**63, "a whole number from 0 to 9223372036854775807"),
    ("seed", 1.0, "a whole number"),
    ("stop", "end", "a list of at most 16 non-empty strings"),
    ("stop", ("",), "non-empty strings"),
    ("stop", (3,), "non-empty strings"),
    ("stop", ("x",) * 17, "at most 16"),
    ("ignore_eos", 1, "true or false"),
]
BAD_SPECULATION: list[tuple[str, Any, str]] = [
    ("drafters", "all", "a list of at most 32 non-empty strings"),
    ("drafters", ("a", "a"), "name each drafter once"),
    ("drafters", ("",), "non-empty strings"),
    ("drafters", tuple(map(str, range(33))), "at most 32"),
    ("draft", "greedy", "one of auto, topk, coupled, sampled, sampled_iid, best_first"),
    ("draft", None, "one of auto"),
    ("expansion", (), "1 to 64 whole numbers from 1"),
    ("expansion", (0,), "a whole number from 1 to 16"),
    ("expansion", (17,), "a whole number from 1 to 16"),
    ("expansion", (1.0,), "a whole number"),
    ("expansion", 3, "1 to 64 whole numbers"),
    ("expansion", (1,) * 65, "1 to 64 whole numbers"),
    ("max_tree_nodes", 0, "a whole number from 1 to 256"),
    ("max_tree_nodes", 257, "a whole number from 1 to 256"),
    ("max_tree_nodes", "many", "auto, uncut, or a number from 1 to 256"),
    ("max_tree_nodes", 1.5, "a whole number"),
    ("max_tree_nodes", None, "a whole number"),
    ("combine", "vote", "one of union"),
    ("length", "trend", "one of fixed"),
    ("speculation_length", -1, "a whole number from 0 to 16"),
    ("speculation_length", 17, "a whole number from 0 to 16"),
    ("speculation_length", True, "a whole number"),
    ("max_speculation_length", 0, "a whole number from 1 to 64"),
    ("max_speculation_length", 65, "a whole number from 1 to 64"),
    ("verify", "always", "one of auto, greedy, match, mss"),
    ("carry_over", "yes", "true or false"),
    ("record_top_k", -1, "a whole number from 0 to 50"),
    ("record_top_k", 51, "a whole number from 0 to 50"),
]
BAD_PROMPTS: list[tuple[Any, str]] = [
    ("", "a text with at least one visible character"),
    (" \n\t", "a text with at least one visible character"),
    (None, "a text"),
    (7, "a text"),
    (b"bytes", "a text"),
    ("half \ud83d a pair", "text without half a character"),
]


def refused(kind: type[Any], field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**{field: value})
    message = str(caught.value)
    assert message.startswith(f"{field} is ")
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize(("field", "value", "allowed"), BAD_SAMPLING)
def test_sampling_refuses(field: str, value: Any, allowed: str) -> None:
    refused(SamplingParams, field, value, allowed)


@pytest.mark.parametrize(("field", "value", "allowed"), BAD_SPECULATION)
def test_speculation_refuses(field: str, value: Any, allowed: str) -> None:
    refused(SpeculationConfig, field, value, allowed)


@pytest.mark.parametrize(("value", "allowed"), BAD_PROMPTS)
def test_a_prompt_must_be_text(value: Any, allowed: str) -> None:
    refused(Request, "prompt", value, allowed)


def test_the_value_stands_in_the_message() -> None:
    with pytest.raises(ConfigError, match=r"^temperature is -2\.5: "):
        SamplingParams(temperature=-2.5)
    with pytest.raises(ConfigError, match=r"^chat is 'yes': true or false$"):
        Request("hi", chat="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [SamplingParams, SpeculationConfig])
def test_every_field_has_a_refusal(kind: type[Any]) -> None:
    cases = BAD_SAMPLING if kind is SamplingParams else BAD_SPECULATION
    assert {field for field, _, _ in cases} == {f.name for f in dataclasses.fields(kind)}


def test_lists_become_tuples_and_values_are_frozen() -> None:
    config = SpeculationConfig(drafters=["a", "b"], expansion=[2, 1])  # type: ignore[arg-type]
    assert (config.drafters, config.expansion) == (("a", "b"), (2, 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.draft = "topk"  # type: ignore[misc]


# -- what is lossless --

DETERMINISTIC = ("topk", "coupled", "best_first")
DRAWN = ("sampled", "sampled_iid")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("verify", VERIFIES)
@pytest.mark.parametrize("draft", DRAFTS)
def test_the_validity_matrix(draft: str, verify: str, temperature: float) -> None:
    """ALGORITHMS 2, written out here a second time."""
    config = SpeculationConfig(draft=draft, verify=verify)
    if temperature == 0.0:
        legal = draft not in DRAWN and verify in ("auto", "greedy", "match")
    elif draft in DRAWN:
        legal = verify in ("auto", "match", "mss")
    elif draft == "auto":
        legal = verify != "greedy"
    else:
        legal = verify in ("auto", "match")
    if not legal:
        with pytest.raises(ConfigError, match=r"^(draft|verify) is '.*': .*choose|lossless"):
            config.resolved(temperature)
        with pytest.raises(ConfigError):
            Request("hi", SamplingParams(temperature=temperature), config)
        return
    resolved = config.resolved(temperature)
    assert resolved.draft in (*DETERMINISTIC, *DRAWN)
    assert resolved.verify in lossless_rules(resolved.draft, temperature)
    assert resolved.verify == verify or verify == "auto"
    assert resolved.resolved(temperature) == resolved


@pytest.mark.parametrize(
    ("temperature", "draft", "verify", "becomes"),
    [
        (0.0, "auto", "auto", ("topk", "greedy")),
        (0.0, "coupled", "auto", ("topk", "greedy")),
        (0.0, "best_first", "match", ("best_first", "match")),
        (0.7, "auto", "auto", ("coupled", "match")),
        (0.7, "auto", "mss", ("sampled", "mss")),
        (0.7, "sampled", "auto", ("sampled", "mss")),
        (0.7, "sampled_iid", "match", ("sampled_iid", "match")),
    ],
)
def test_what_auto_becomes(
    temperature: float, draft: str, verify: str, becomes: tuple[str, str]
) -> None:
    resolved = SpeculationConfig(draft=draft, verify=verify).resolved(temperature)
    assert (resolved.draft, resolved.verify) == becomes


def test_a_refusal_names_the_lossless_choices() -> None:
    with pytest.raises(ConfigError) as caught:
        SpeculationConfig(draft="topk", verify="mss").resolved(0.8)
    assert "lossless choices are auto, match" in str(caught.value)
    with pytest.raises(ConfigError, match=r"choose auto, topk or best_first"):
        SpeculationConfig(draft="sampled").resolved(0.0)


# -- presets, shapes, text --


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_run(name: str, temperature: float) -> None:
    config = SpeculationConfig.preset(name, temperature)
    Request("hi", SamplingParams(temperature=temperature), config)


def test_what_the_presets_are() -> None:
    assert SpeculationConfig.preset("specinfer") == SpeculationConfig()
    plain = SpeculationConfig.preset("autoregressive")
    assert (plain.drafters, plain.speculation_length) == ((), 0)
    chain = SpeculationConfig.preset("sequence")
    assert (chain.drafters, set(chain.shape(8))) == (("first",), {1})
    paper = SpeculationConfig.preset("specinfer-paper", 0.8)
    assert (paper.max_tree_nodes, paper.draft, paper.verify) == ("uncut", "sampled", "mss")
    assert SpeculationConfig.preset("specinfer-paper").draft == "topk"
    with pytest.raises(ConfigError, match=r"^preset is 'fastest': one of autoregressive, "):
        SpeculationConfig.preset("fastest")


@pytest.mark.parametrize(("length", "shape"), [(0, ()), (1, (2,)), (2, (2, 3)), (4, (2, 3, 1, 1))])
def test_a_shape_is_the_expansion_cut_or_padded(length: int, shape: tuple[int, ...]) -> None:
    assert SpeculationConfig(expansion=(2, 3)).shape(length) == shape


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("drafters", "ssm-code, ngram", ("ssm-code", "ngram")),
        ("drafters", "", ()),
        ("draft", "topk", "topk"),
        ("expansion", "<1,1,3>", (1, 1, 3)),
        ("expansion", "4", (4,)),
        ("max_tree_nodes", "12", 12),
        ("max_tree_nodes", "uncut", "uncut"),
        ("combine", "union", "union"),
        ("length", "fixed", "fixed"),
        ("speculation_length", "3", 3),
        ("max_speculation_length", "20", 20),
        ("verify", "match", "match"),
        ("carry_over", "True", True),
        ("carry_over", "false", False),
        ("record_top_k", "5", 5),
    ],
)
def test_fields_from_text(name: str, text: str, value: Any) -> None:
    assert getattr(parse_field(SpeculationConfig(), name, text), name) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("speed", "1", r"^field is 'speed': one of carry_over, combine, draft, "),
        ("expansion", "1,x", r"^expansion is '1,x': whole numbers separated by commas"),
        ("expansion", "1,-2", r"^expansion is '1,-2'"),
        ("speculation_length", "many", r"^speculation_length is 'many': a whole number"),
        ("speculation_length", "NaN", r"^speculation_length is "),
        ("carry_over", "1", r"^carry_over is 1: true or false"),
        ("draft", "3", r"^draft is 3: one of"),
    ],
)
def test_bad_text_is_refused_by_name(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_field(SpeculationConfig(), name, text)


def test_every_field_can_be_set_from_text() -> None:
    for field in dataclasses.fields(SpeculationConfig):
        value = getattr(SpeculationConfig(), field.name)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert parse_field(SpeculationConfig(), field.name, text) == SpeculationConfig()


# -- plain values --

samplings = st.builds(
    SamplingParams,
    max_new_tokens=st.integers(1, 10_000),
    temperature=st.floats(0.1, 5),
    top_k=st.integers(0, 100),
    top_p=st.floats(0.01, 1),
    seed=st.none() | st.integers(0, 2**63 - 1),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
    ignore_eos=st.booleans(),
)
speculations = st.builds(
    SpeculationConfig,
    drafters=st.lists(st.sampled_from(["all", "a", "ngram"]), unique=True).map(tuple),
    draft=st.sampled_from(["auto", "sampled", "sampled_iid"]),
    expansion=st.lists(st.integers(1, 16), min_size=1, max_size=6).map(tuple),
    max_tree_nodes=st.sampled_from(["auto", "uncut", 1, 256]),
    combine=st.sampled_from(COMBINES),
    length=st.sampled_from(LENGTHS),
    speculation_length=st.integers(0, 16),
    verify=st.sampled_from(["auto", "match"]),
    carry_over=st.booleans(),
    record_top_k=st.integers(0, 50),
)


@settings(derandomize=True, deadline=None)
@given(
    st.builds(
        Request,
        prompt=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map("x".__add__),
        sampling=samplings,
        speculation=speculations,
        chat=st.booleans(),
    )
)
def test_a_request_survives_json(request: Request) -> None:
    plain = json.loads(json.dumps(request.to_plain()))
    assert Request.from_plain(plain) == request


def test_unknown_fields_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^field is 'speed': one of chat, prompt, "):
        Request.from_plain({"prompt": "hi", "speed": 3})
    with pytest.raises(ConfigError, match=r"^field is 'heat': one of ignore_eos, "):
        Request.from_plain({"prompt": "hi", "sampling": {"heat": 3}})
    with pytest.raises(ConfigError, match=r"^SpeculationConfig is 7: an object"):
        Request.from_plain({"prompt": "hi", "speculation": 7})
