"""The arguments of the command lines.

`python -m tests.golden.options` writes `options.json` anew.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import bench.__main__
import bench.family_chart
import bench.length_chart
import bench.page.gaps
import bench.relay
import core.__main__
import core.nodes
import ui.report.__main__
from bench.grown.command import grow_parser
from ui.server.arguments import parse
from zoo.__main__ import COMMANDS
from zoo.arguments import parser_of

__all__ = ["FILE", "arguments_of", "command_arguments"]

FILE = Path(__file__).parent / "options.json"
ROOT = Path(__file__).parents[2]
Arguments = list[dict[str, Any]]


def command_arguments() -> dict[str, Arguments]:
    parsers = (
        parser_in(partial(parse, [])),
        core.__main__.parser(),
        core.nodes.parser(),
        bench.__main__.parser(),
        grow_parser(),
        parser_of(COMMANDS),
        parser_in(partial(ui.report.__main__.main, [])),
        parser_in(partial(bench.relay.main, [])),
        parser_in(partial(bench.family_chart.main, [])),
        parser_in(partial(bench.length_chart.main, [])),
        parser_in(bench.page.gaps.main, "python -m bench.page.gaps"),
    )
    return {name: arguments for parser in parsers for name, arguments in arguments_of(parser)}


def parser_in(run: Callable[[], Any], prog: str = "") -> argparse.ArgumentParser:
    """The parser that `run` makes and calls."""
    called = mock.patch.object(
        argparse.ArgumentParser, "parse_args", autospec=True, side_effect=StopIteration
    )
    with called as call:
        try:
            run()
        except StopIteration:
            parser: argparse.ArgumentParser = call.call_args.args[0]
            parser.prog = prog or parser.prog
            return parser
    raise AssertionError("no parser was called")


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Arguments]]:
    """Options are sorted, since their order does not matter."""
    actions = parser._actions  # argparse has no public list of actions
    options = sorted(
        (one for one in actions if one.option_strings), key=lambda one: one.option_strings
    )
    positional = [one for one in actions if not one.option_strings]
    yield parser.prog, [_facts_of(one) for one in (*options, *positional)]
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from arguments_of(subparser)


def _facts_of(action: argparse.Action) -> dict[str, Any]:
    facts = {
        "options": list(action.option_strings) or None,
        "dest": action.dest,
        "action": type(action).__name__,
        "nargs": action.nargs,
        "type": _type_name(action.type),
        "default": _to_plain(action.default),
        "choices": None if action.choices is None else list(action.choices),
        "required": action.required or None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _type_name(kind: Any) -> str | None:
    if kind is None:
        return None
    if "<locals>" not in kind.__qualname__:
        return str(kind.__name__)
    # A type that `core.config.arguments.argument_of` made.
    return str(inspect.getclosurevars(kind).nonlocals["allowed"])


def _to_plain(default: Any) -> Any:
    """A path is relative to the repository, to be the same on every machine."""
    if isinstance(default, Path):
        path = default.relative_to(ROOT) if default.is_relative_to(ROOT) else default
        return path.as_posix()
    return list(default) if isinstance(default, tuple) else default


def text_of(arguments: dict[str, Arguments]) -> str:
    commands = []
    for name, facts in arguments.items():
        lines = ",\n".join(f"  {json.dumps(one)}" for one in facts)
        commands.append(f" {json.dumps(name)}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(commands) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text_of(command_arguments()), encoding="utf-8")
