"""Parses the benchmark's command lines; an error is one line (see `ConfigError.of`)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from core.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """Raises ConfigError, whose message is one line, instead of printing usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def whole(field: str) -> Callable[[str], int]:
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
