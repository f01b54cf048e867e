"""Samples are written behind prompts of each domain, and code is told from what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import zoo.__main__ as command
from core.errors import ConfigError
from zoo.samples import Prompt, parses, prompts_of

PROMPTS = [
    {"domain": domain, "prompt": f"{domain} {n}"} for n in range(3) for domain in ("code", "math")
]


@pytest.mark.parametrize(
    ("prompt", "continuation", "whether"),
    [
        ("def f(a):\n", "    return a\n", True),
        ("def f(a):\n", "    return a\n\n\nx = f(1)\ny = (x +", True),  # the last line is cut
        ("def f(a):\n", "    b = a\n    return b\n\n\ndef g(\n    c,\n", True),  # ends in a bracket
        ("x = 1\n", "y = 2\nif x:\n", True),
        ("def f(a):\n", "    return return\n    b = 1\n    c = 2\n", False),
        ("import os\n", "x = 1\n  y = 2\nz = 3\n", False),
        ("import os\n", '"""And so on\nand on\nand on\nand on\n', False),  # a string to the end
        ("x = [\n", "1, 2\n3 4\n]\n", False),
        ("x = 1\n", "y = '\0'\nz = 1\n", False),
        ("x = 1\n", "(" * 400 + ")" * 400 + "\ny = 1\n", False),  # nested beyond reason
        ("import os\n\n\nclass A:\n", "    pass", True),
    ],
)
def test_code_parses_as_far_as_it_goes(prompt: str, continuation: str, whether: bool) -> None:
    assert parses(prompt, continuation) is whether


def test_prompts_are_taken_by_domain(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, PROMPTS)))
    assert prompts_of(file, [], 2) == [
        Prompt("code", "code 0"), Prompt("code", "code 1"),
        Prompt("math", "math 0"), Prompt("math", "math 1"),
    ]  # fmt: skip
    assert [one.text for one in prompts_of(file, ["math"], 9)] == ["math 0", "math 1", "math 2"]
    with pytest.raises(ConfigError, match="domains is 'docs': one of code, math"):
        prompts_of(file, ["docs"], 1)
    file.write_text('{"prompt": "x"}')
    with pytest.raises(ConfigError, match="a prompt and its domain"):
        prompts_of(file, [], 1)


def test_the_command_prints_texts_and_how_many_parse(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["samples", "--domains", "code", "stories", "--count", "1", "--tokens", "6"]
    assert command.main(asked) == 0
    printed = capsys.readouterr().out
    assert "=== stories =" in printed and "=== code (" in printed
    assert printed.rstrip().endswith("of 1 texts of code parse")
    assert command.main([*asked, "--domains", "poems"]) == 2
    assert "domains is 'poems'" in capsys.readouterr().err
