"""Argument parsing whose errors are ConfigErrors."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from core.errors import ConfigError

__all__ = [
    "BYTE_ORDER_MARK",
    "Parser",
    "argument_of",
    "count_argument",
    "integer_argument",
    "number_argument",
]

BYTE_ORDER_MARK = "\ufeff"
"""Some editors write this character at the beginning of a file."""
Number = TypeVar("Number", int, float)
REWORDED = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^argument (\S+): invalid int value: (.+)", r"\1 is \2: it must be a whole number"),
        (r"^argument (\S+): invalid float value: (.+)", r"\1 is \2: it must be a number"),
        (
            r"^argument (\S+): invalid choice: (.+) \(choose from (.+)\)",
            r"\1 is \2: it must be one of \3",
        ),
        # An error of `argument_of` names its field already.
        (r"^argument \S+: ([\w-]+ is .+)", r"\1"),
    )
)
"""Patterns of argparse's messages, each with its replacement."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ConfigErrors."""

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError with the message, reworded by REWORDED."""
        for pattern, words in REWORDED:
            message = pattern.sub(words, message)
        raise ConfigError(message)


def integer_argument(field: str) -> Callable[[str], int]:
    """An argparse type for whole numbers."""
    return argument_of(field, int, "a whole number")


def number_argument(field: str) -> Callable[[str], float]:
    """An argparse type for numbers."""
    return argument_of(field, float, "a number")


def count_argument(field: str) -> Callable[[str], int]:
    """An argparse type for counts; it accepts floats and cuts off fractions."""
    return argument_of(field, lambda value: int(float(value)), "a number such as 0.5e9")


def argument_of(field: str, kind: Callable[[str], Number], allowed: str) -> Callable[[str], Number]:
    """An argparse type whose error names the field, its value and what is allowed."""

    def parse(value: str) -> Number:
        try:
            return kind(value)
        except (OverflowError, ValueError) as error:
            # argparse replaces the message of a ValueError, and a ConfigError is a ValueError.
            message = str(ConfigError.must_be(field, value, allowed))
            raise argparse.ArgumentTypeError(message) from error

    return parse
