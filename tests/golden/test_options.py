"""The options of the command lines are the recorded ones.

After an intended change, run the module `tests.golden.options`.
"""

from __future__ import annotations

import argparse
import json

from tests.golden.options import FILE, command_options, options_of


def test_the_options_are_those_of_the_golden_file() -> None:
    assert command_options() == json.loads(FILE.read_text(encoding="utf-8"))


def test_options_of_subcommands_are_found() -> None:
    parser = argparse.ArgumentParser("cut", add_help=False)
    parser.add_argument("--speed", "-s")
    parser.add_argument("file")
    parser.add_subparsers().add_parser("all", add_help=False).add_argument("--fast")
    assert dict(options_of(parser)) == {"cut": ["--speed", "-s"], "cut file all": ["--fast"]}
