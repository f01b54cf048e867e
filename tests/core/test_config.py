"""Configurations and requests."""

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
    Request,
    SamplingParams,
    SpeculationConfig,
    lossless_rules,
)
from core.config.field_text import parse_field
from core.config.mechanisms import combine_rule
from core.errors import ConfigError

DETERMINISTIC = ("topk", "coupled", "best_first")
DRAWN = ("sampled", "sampled_iid")
FUSED = ("fused", "fused_credit")
VERIFY_SETTINGS = ("auto", "greedy", "match", "mss", "traversal")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("verify", VERIFY_SETTINGS)
@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("combine", COMBINES)
def test_only_lossless_settings_are_resolved(
    draft: str, combine: str, verify: str, temperature: float
) -> None:
    config = SpeculationConfig(draft=draft, combine=combine, verify=verify)
    keeps_all = combine_rule(combine).keeps_all
    if draft in FUSED and combine != "union":
        legal = False
    elif temperature == 0.0:
        legal = draft not in DRAWN and verify in ("auto", "greedy", "match")
    elif keeps_all and draft in DRAWN:
        legal = verify in ("auto", "match", "mss", "traversal")
    elif keeps_all and draft == "auto":
        legal = verify != "greedy"
    else:
        legal = verify in ("auto", "match")
    if not legal:
        with pytest.raises(ConfigError, match=r"^(draft|verify) is '.*': .*choose|lossless"):
            config.resolve(temperature)
        with pytest.raises(ConfigError):
            Request("hi", SamplingParams(temperature=temperature), config)
        return
    resolved = config.resolve(temperature)
    assert resolved.draft in (*DETERMINISTIC, *FUSED, *DRAWN)
    assert resolved.verify in lossless_rules(resolved.draft, temperature, combine)
    assert resolved.verify == verify or verify == "auto"
    assert resolved.resolve(temperature) == resolved


@pytest.mark.parametrize(
    ("temperature", "draft", "verify", "becomes"),
    [
        (0.0, "auto", "auto", ("topk", "greedy")),
        (0.0, "coupled", "auto", ("topk", "greedy")),
        (0.0, "best_first", "match", ("best_first", "match")),
        (0.7, "auto", "auto", ("coupled", "match")),
        (0.7, "auto", "mss", ("sampled", "mss")),
        (0.7, "auto", "traversal", ("sampled", "traversal")),
        (0.7, "sampled", "auto", ("sampled", "mss")),
        (0.7, "sampled_iid", "match", ("sampled_iid", "match")),
    ],
)
def test_auto_depends_on_temperature_and_rule(
    temperature: float, draft: str, verify: str, becomes: tuple[str, str]
):
    resolved = SpeculationConfig(draft=draft, verify=verify).resolve(temperature)
    assert (resolved.draft, resolved.verify) == becomes


def test_a_refusal_names_the_lossless_choices() -> None:
    with pytest.raises(ConfigError) as caught:
        SpeculationConfig(draft="topk", verify="mss").resolve(0.8)
    assert "lossless choices are auto, match" in str(caught.value)
    with pytest.raises(ConfigError, match=r"choose auto, topk or best_first"):
        SpeculationConfig(draft="sampled").resolve(0.0)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_run(name: str, temperature: float) -> None:
    config = SpeculationConfig.preset(name, temperature)
    Request("hi", SamplingParams(temperature=temperature), config)


def test_presets_have_these_settings() -> None:
    assert SpeculationConfig.preset("specinfer") == SpeculationConfig()
    plain = SpeculationConfig.preset("autoregressive")
    assert (plain.drafters, plain.speculation_length) == ((), 0)
    chain = SpeculationConfig.preset("sequence")
    assert (chain.routing, set(chain.shape(8))) == ("audition", {1})
    paper = SpeculationConfig.preset("specinfer-paper", 0.8)
    assert (paper.max_tree_nodes, paper.draft, paper.verify) == ("uncut", "sampled", "mss")
    assert SpeculationConfig.preset("specinfer-paper").draft == "topk"
    minions = SpeculationConfig.preset("minions")
    assert minions == SpeculationConfig(
        expansion=(1,), combine="vote", weights="paper", length="trend", pipeline="across"
    )
    # docs/results.md tells what was tried for `best`.
    assert SpeculationConfig.preset("best") == SpeculationConfig(
        drafters=("all", "ngram"), length="goodput", expansion=(1, 1, 2)
    )
    with pytest.raises(
        ConfigError, match=r"^preset is 'fastest': it must be one of autoregressive, "
    ):
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
        ("expansion", "1,          3", (1, 3)),
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
def test_fields_are_parsed_from_text(name: str, text: str, value: Any) -> None:
    assert getattr(parse_field(SpeculationConfig(), name, text), name) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "speed",
            "1",
            r"^field is 'speed': it must be one of carry_over, combine, confidence_threshold, ",
        ),
        ("expansion", "1,x", r"^expansion is '1,x': it must be whole numbers separated by commas"),
        ("expansion", "1,-2", r"^expansion is '1,-2'"),
        ("speculation_length", "many", r"^speculation_length is 'many': it must be a whole number"),
        ("speculation_length", "NaN", r"^speculation_length is "),
        ("carry_over", "1", r"^carry_over is 1: it must be true or false"),
        ("draft", "3", r"^draft is 3: it must be one of"),
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
    max_tree_nodes=st.sampled_from(["auto", 1, 256]),
    combine=st.sampled_from(COMBINES),
    length=st.sampled_from(LENGTHS),
    speculation_length=st.integers(0, 16),
    verify=st.sampled_from(["auto", "match"]),
    carry_over=st.booleans(),
    record_top_k=st.integers(0, 50),
)


@settings(derandomize=True)
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
    with pytest.raises(ConfigError, match=r"^field is 'speed': it must be one of chat, prompt, "):
        Request.from_plain({"prompt": "hi", "speed": 3})
    with pytest.raises(ConfigError, match=r"^field is 'heat': it must be one of ignore_eos, "):
        Request.from_plain({"prompt": "hi", "sampling": {"heat": 3}})
    with pytest.raises(ConfigError, match=r"^SpeculationConfig is 7: it must be an object"):
        Request.from_plain({"prompt": "hi", "speculation": 7})
