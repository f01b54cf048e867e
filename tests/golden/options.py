"""The option strings of the command lines.

`python -m tests.golden.options` writes `options.json` anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import bench.__main__
import core.__main__
from bench.grown.command import grow_parser
from core.config.arguments import Parser
from ui.server.arguments import parse
from zoo.__main__ import COMMANDS
from zoo.arguments import parser_of

__all__ = ["FILE", "command_options", "options_of"]

FILE = Path(__file__).parent / "options.json"


def command_options() -> dict[str, list[str]]:
    """The sorted option strings of each command and subcommand."""
    parsers = (
        app_parser(),
        core.__main__.parser(),
        bench.__main__.parser(),
        grow_parser(),
        parser_of(COMMANDS),
    )
    return {name: options for parser in parsers for name, options in options_of(parser)}


def app_parser() -> argparse.ArgumentParser:
    """The parser that `parse` makes."""
    with mock.patch.object(Parser, "parse_args", autospec=True, side_effect=StopIteration) as call:
        try:
            parse([])
        except StopIteration:
            (parser, _), _ = call.call_args
            return parser
    raise AssertionError("`parse` called no Parser")


def options_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """The name and the options of a parser, then those of its subcommands."""
    actions = parser._actions  # argparse has no public list of them
    yield parser.prog, sorted(option for action in actions for option in action.option_strings)
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from options_of(subparser)


def write() -> None:
    FILE.write_text(json.dumps(command_options(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
