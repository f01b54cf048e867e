"""The arguments of the command lines are the recorded ones.

After an intended change, run the module `tests.golden.options`.
"""

from __future__ import annotations

import argparse
import json

from core.config.arguments import integer_argument
from tests.golden.options import FILE, arguments_of, command_arguments


def test_the_arguments_are_those_of_the_golden_file() -> None:
    assert command_arguments() == json.loads(FILE.read_text(encoding="utf-8"))


def test_arguments_of_subcommands_are_found() -> None:
    parser = argparse.ArgumentParser("cut", add_help=False)
    parser.add_argument("--speed", "-s", type=integer_argument("speed"), default=2)
    parser.add_argument("file", type=int, choices=(1, 2))
    fast = parser.add_subparsers().add_parser("all", add_help=False)
    fast.add_argument("--fast", action="store_true", required=True)
    commands = dict(arguments_of(parser))
    assert list(commands) == ["cut", "cut {1,2} all"]
    speed, file, _ = commands["cut"]
    stored = {"action": "_StoreAction"}
    names = {"options": ["--speed", "-s"], "dest": "speed"}
    assert speed == {**names, **stored, "type": "a whole number", "default": 2}
    required = {"choices": [1, 2], "required": True}
    assert file == {"dest": "file", **stored, "type": "int", **required}
    names = {"options": ["--fast"], "dest": "fast", "action": "_StoreTrueAction"}
    assert commands["cut {1,2} all"] == [{**names, "nargs": 0, "default": False, "required": True}]
