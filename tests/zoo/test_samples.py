"""Samples continue prompts of each domain; code is parsed up to its last complete part."""

import json
from pathlib import Path

import pytest

import zoo.__main__ as command
from core.errors import ConfigError
from zoo.samples import DOES_NOT, PARSES, UNDECIDED, SamplePrompt, parse_verdict, prompts_of

PROMPTS = [
    {"domain": domain, "prompt": f"{domain} {n}"} for n in range(3) for domain in ("code", "math")
]


@pytest.mark.parametrize(
    ("prompt", "continuation", "verdict"),
    [
        ("def f(a):\n", "    return a\n", PARSES),
        ("def f(a):\n", "    return a\n\n\nx = f(1)\ny = (x +", PARSES),  # the last line is cut
        ("def f(a):\n", "    b = a\n    return b\n\n\ndef g(\n    c,\n", PARSES),  # cut inside (
        ("x = 1\n", "y = 2\nif x:\n", PARSES),
        ("def f(a):\n", "    return return\n    b = 1\n    c = 2\n", DOES_NOT),
        ("import os\n", "x = 1\n  y = 2\nz = 3\n", DOES_NOT),
        ("x = [\n", "1, 2\n3 4\n]\n", DOES_NOT),
        ("x = 1\n", "y = '\0'\nz = 1\n", DOES_NOT),
        ("x = 1\n", "(" * 400 + ")" * 400 + "\ny = 1\n", DOES_NOT),  # nested too deeply
        ("import os\n", '"""And so on\nand on\nand on\nand on\n', UNDECIDED),  # open string
        ("def f(a):\n", "    return (a +", UNDECIDED),  # no line is complete
        ("a = (", "1,\n 2,\n 3", UNDECIDED),
    ],
)
def test_cut_code_is_parsed_as_far_as_it_is_complete(
    prompt: str, continuation: str, verdict: str
) -> None:
    assert parse_verdict(prompt, continuation, cut=True) == verdict


@pytest.mark.parametrize(
    ("continuation", "verdict"), [("    return a", PARSES), ("    return (a", DOES_NOT)]
)
def test_a_text_that_was_not_cut_is_parsed_completely(continuation: str, verdict: str) -> None:
    assert parse_verdict("def f(a):\n", continuation, cut=False) == verdict


def test_prompts_are_taken_by_domain(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, PROMPTS)))
    assert prompts_of(file, [], 2) == [
        SamplePrompt("code", "code 0"), SamplePrompt("code", "code 1"),
        SamplePrompt("math", "math 0"), SamplePrompt("math", "math 1"),
    ]  # fmt: skip
    assert [one.text for one in prompts_of(file, ["math"], 9)] == ["math 0", "math 1", "math 2"]
    with pytest.raises(ConfigError, match="domains is 'docs': it must be one of code, math"):
        prompts_of(file, ["docs"], 1)
    file.write_text('{"prompt": "x"}')
    with pytest.raises(ConfigError, match="each with prompt and domain"):
        prompts_of(file, [], 1)


def test_the_command_prints_texts_and_how_many_parse(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["samples", "--domains", "code", "stories", "--count", "1", "--tokens", "6"]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "=== stories =" in printed and "=== code (" in printed
    assert "=== of 1 texts of code " in printed.splitlines()[-1]
    assert command.main([*arguments, "--domains", "poems"]) == 2
    assert "domains is 'poems'" in capsys.readouterr().err
