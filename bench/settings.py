"""A suite's settings: prompts, tokens, repeats, threads, dtypes; part of every result. Parsing of
command lines, whose errors are one line (see `ConfigError.of`).
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from core.config.checks import choice, integer
from core.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """Raises ConfigError, whose message is one line, instead of printing usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def int_argument(field: str) -> Callable[[str], int]:
    """An argparse type whose error names the field, its value and what is allowed."""
    return _parser_of(field, int, "a whole number")


def count(field: str) -> Callable[[str], int]:
    """The same for large counts, which may be written 0.5e9."""
    return _parser_of(field, lambda value: int(float(value)), "a number such as 0.5e9")


def _parser_of(field: str, kind: Callable[[str], int], allowed: str) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            return kind(value)
        except (OverflowError, ValueError) as error:
            message = str(ConfigError.of(field, value, allowed))
            raise argparse.ArgumentTypeError(message) from error

    return parse


DTYPES = ("float32", "bfloat16")
MAX_PROMPTS, MAX_TOKENS, MAX_REPEATS, MAX_PROCESSES = 60, 512, 1000, 64


@dataclass(frozen=True, slots=True)
class Settings:
    """`prompts`: their number, spread evenly over the domains; `tokens`: new tokens for each.

    `repeats`: how often each block is measured in a suite that measures time; the number of seeds
    per prompt above temperature 0 in one that does not. `threads` 0: all cores but one.
    `processes`: processes that divide the work of a suite that measures no time.
    """

    prompts: int
    tokens: int
    repeats: int
    dtypes: tuple[str, ...]
    threads: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        integer("prompts", self.prompts, 1, MAX_PROMPTS)
        integer("tokens", self.tokens, 1, MAX_TOKENS)
        integer("repeats", self.repeats, 1, MAX_REPEATS)
        for dtype in self.dtypes:
            choice("dtype", dtype, DTYPES)
        integer("processes", self.processes, 1, MAX_PROCESSES)
        if not self.dtypes or len(set(self.dtypes)) != len(self.dtypes):
            raise ConfigError.of("dtype", self.dtypes, "name each dtype once")

    def but(self, **changes: Any) -> Settings:
        """These settings with the given values; None means not given."""
        given_values = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **given_values)

    def to_plain(self) -> dict[str, Any]:
        plain = {**dataclasses.asdict(self), "dtypes": list(self.dtypes)}
        del plain["processes"]  # another number of processes may continue a file
        return plain

    def __str__(self) -> str:
        return (
            f"--prompts {self.prompts} --tokens {self.tokens} --repeats {self.repeats} "
            f"--dtype {' '.join(self.dtypes)}"
        )
