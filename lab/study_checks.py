"""Checks a study before its first cell, and names cells in errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.config import Request, SpeculationConfig
from core.errors import EXPECTED_ERRORS, CellInterruptedError, ConfigError, StudyError
from lab.order import Cell
from lab.runs import RunHost
from lab.study import Study

__all__ = ["check", "naming_cell"]


def check(study: Study, runs: RunHost) -> None:
    """Raises ConfigError if a prompt or a configuration cannot be run."""
    plain = SpeculationConfig.preset("autoregressive")
    for prompt in study.prompts:
        try:
            runs.check(Request(prompt.text, study.sampling, plain, study.chat))
        except ConfigError as error:
            raise type(error)(f"{prompt.words} cannot be run: {error}") from error
    text = study.prompts[0].text
    for one in study.configurations:
        try:
            runs.check(Request(text, study.sampling_of(one), one.speculation, study.chat))
        except ConfigError as error:
            raise type(error)(f"configuration {one.name} cannot be run: {error}") from error


@contextmanager
def naming_cell(cell: Cell) -> Iterator[None]:
    """Turns an expected error inside a cell, except CellInterruptedError, into a StudyError that
    names the cell."""
    try:
        yield
    except CellInterruptedError:
        raise
    except EXPECTED_ERRORS as error:
        raise StudyError(f"{cell.words}: {error}") from error
