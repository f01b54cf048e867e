"""Refusals of a configuration name the field, its value and the allowed values."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core.errors
from core.config import Request, SamplingParams, SpeculationConfig
from core.config.arguments import Parser, integer_argument
from core.errors import ConfigError
from tests.source import offenders, sources, tree_of

NAN, INF = float("nan"), float("inf")

BAD_SAMPLING: list[tuple[str, Any, str]] = [
    ("max_new_tokens", 0, "a whole number from 1 to 1000000"),
    ("max_new_tokens", -3, "a whole number"),
    ("max_new_tokens", 2.0, "a whole number"),
    ("max_new_tokens", True, "a whole number"),
    ("max_new_tokens", "8", "a whole number"),
    ("max_new_tokens", None, "a whole number"),
    ("temperature", -0.1, "0 or a number from 0.001 to 100"),
    ("temperature", NAN, "0 or a number from 0.001 to 100"),
    ("temperature", 1e-39, "0 or a number from 0.001 to 100"),
    ("temperature", 1e-4, "0 or a number from 0.001 to 100"),
    ("temperature", 10**400, "a number"),
    ("temperature", INF, "a number"),
    ("temperature", "hot", "a number"),
    ("temperature", False, "a number"),
    ("top_k", -1, "a whole number from 0"),
    ("top_k", 1.5, "a whole number"),
    ("top_p", 0.0, "a number above 0 to 1"),
    ("top_p", 1.01, "a number above 0 to 1"),
    ("top_p", NAN, "a number"),
    ("min_p", -0.1, "a number from 0 to 1"),
    ("min_p", 1.5, "a number from 0 to 1"),
    ("repetition_penalty", 0.0, "a number from 0.01 to 100"),
    ("repetition_penalty", True, "a number"),
    ("seed", -1, "a whole number from 0"),
    ("seed", 2**63, "a whole number from 0 to 9223372036854775807"),
    ("seed", 1.0, "a whole number"),
    ("stop", "end", "a list of at most 16 non-empty strings"),
    ("stop", ("",), "non-empty strings"),
    ("stop", (3,), "non-empty strings"),
    ("stop", ("\ud800",), "text without half a character (lone surrogate)"),
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
    ("combine", "fuse", "one of union, vote, vote_tree, log_pool"),
    ("routing", "best", "one of all, audition, cosine, credit"),
    ("routed_drafters", 0, "a whole number from 1 to 32"),
    ("weights", "even", "one of full_information, paper"),
    ("vote_nodes", 0, "a whole number from 1 to 256"),
    ("eta", 0.0, "a number above 0 to 10"),
    ("eta", float("nan"), "a number above 0 to 10"),
    ("weight_bounds", (0.1,), "two numbers"),
    ("weight_bounds", (2.0, 3.0), "a number from 0.001 to 1"),
    ("weight_bounds", (0.5, 0.9), "a number from 1 to 1000"),
    ("length", "best", "one of fixed, trend, goodput, confidence"),
    ("confidence_threshold", 1.01, "a number from 0 to 1"),
    ("pipeline", "on", "one of off, across"),
    ("speculation_length", -1, "a whole number from 0 to 16"),
    ("speculation_length", 17, "a whole number from 0 to 16"),
    ("speculation_length", True, "a whole number"),
    ("max_speculation_length", 0, "a whole number from 1 to 64"),
    ("max_speculation_length", 65, "a whole number from 1 to 64"),
    ("verify", "always", "one of auto, greedy, match, mss, traversal"),
    ("carry_over", "yes", "true or false"),
    ("record_top_k", -1, "a whole number from 0 to 50"),
    ("record_top_k", 51, "a whole number from 0 to 50"),
]


@pytest.mark.parametrize(
    ("expansion", "length", "nodes"),
    [((16, 16, 16), 3, 4368), ((16, 16), 8, 1808), ((2,) * 8, 8, 510)],
)
def test_an_uncut_tree_must_be_small(expansion, length, nodes):
    with pytest.raises(ConfigError, match=f"expansion is .* {length} steps of this make {nodes}$"):
        SpeculationConfig(expansion=expansion, speculation_length=length, max_tree_nodes="uncut")
    SpeculationConfig(expansion=expansion, speculation_length=length, max_tree_nodes=256)
    SpeculationConfig(expansion=expansion, speculation_length=1, max_tree_nodes="uncut")


BAD_PROMPTS: list[tuple[Any, str]] = [
    ("", "a text with at least one visible character"),
    (" \n\t", "a text with at least one visible character"),
    (None, "a text"),
    (7, "a text"),
    (b"bytes", "a text"),
    ("half \ud83d a pair", "text without half a character"),
]


def check_refusal(kind: type[Any], field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**{field: value})
    message = str(caught.value)
    assert message.startswith(f"{field} is ")
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize(("field", "value", "allowed"), BAD_SAMPLING)
def test_invalid_sampling_parameters_are_refused(field: str, value: Any, allowed: str) -> None:
    check_refusal(SamplingParams, field, value, allowed)


@pytest.mark.parametrize(("field", "value", "allowed"), BAD_SPECULATION)
def test_invalid_speculation_settings_are_refused(field: str, value: Any, allowed: str) -> None:
    check_refusal(SpeculationConfig, field, value, allowed)


@pytest.mark.parametrize(("value", "allowed"), BAD_PROMPTS)
def test_a_prompt_must_be_text(value: Any, allowed: str) -> None:
    check_refusal(Request, "prompt", value, allowed)


def test_the_value_is_in_the_message() -> None:
    with pytest.raises(ConfigError, match=r"^temperature is -2\.5: "):
        SamplingParams(temperature=-2.5)
    with pytest.raises(ConfigError, match=r"^chat is 'yes': it must be true or false$"):
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


def handwritten_refusals(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        is_error = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if not is_error or not hasattr(core.errors, node.func.id) or not node.args:
            continue
        parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else []
        text = "".join(
            part.value if isinstance(part, ast.Constant) else "#" if is_count(part) else "{}"
            for part in parts
        )
        if re.match(r"[\w{} -]+ is \{\}: ", text):
            yield f"{node.lineno}: {text[:60]}"


def is_count(part: ast.expr) -> bool:
    return "number_of" in ast.unparse(part)


@pytest.mark.usefixtures("trees")
def test_refusals_are_made_by_the_error_classes() -> None:
    assert not offenders(sources(), handwritten_refusals), (
        "use ConfigError.of, ModelLoadError.of and so on"
    )


def test_refusals_of_command_lines_have_the_same_form() -> None:
    parser = Parser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--seed", type=integer_argument("seed"))
    parser.add_argument("--ssm-params", type=integer_argument("ssm-params"))
    for arguments, message in (
        (["--port", "x"], "--port is 'x': it must be a whole number"),
        (["--rate", "fast"], "--rate is 'fast': it must be a number"),
        (["--device", "tpu"], "--device is 'tpu': it must be one of 'cpu', 'cuda'"),
        (["--seed", "1.5"], "seed is '1.5': it must be a whole number"),
        (["--ssm-params", "x"], "ssm-params is 'x': it must be a whole number"),
        (["--speed"], "unrecognized arguments: --speed"),
    ):
        with pytest.raises(ConfigError) as caught:
            parser.parse_args(arguments)
        assert str(caught.value) == message
