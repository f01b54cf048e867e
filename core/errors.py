"""SpecScopeError and its subclasses."""

from __future__ import annotations

import logging
from typing import Self

__all__ = [
    "MODEL_FAULTS",
    "EXPECTED_ERRORS",
    "CellInterruptedError",
    "ConfigError",
    "ContextLengthError",
    "DrafterError",
    "EngineBusyError",
    "EngineClosedError",
    "EngineError",
    "ModelError",
    "ModelLoadError",
    "NodeError",
    "OutOfMemoryError",
    "RankError",
    "SpecScopeError",
    "StoreError",
    "StudyError",
    "UnknownRunError",
    "UnknownStudyError",
    "UnsupportedModelError",
    "VocabMismatchError",
    "log_unexpected",
    "one_line",
]

log = logging.getLogger(__name__)

LONGEST_SHOWN = 300


def one_line(value: object, longest: int = LONGEST_SHOWN) -> str:
    """The text of `value` in one line: at most `longest` characters, then three dots if the text
    was cut. White space is collapsed; unprintable characters are escaped."""
    text = str(value)
    words = " ".join(text[: 4 * longest].split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    return line if len(line) <= longest and len(text) <= 4 * longest else f"{line[:longest]}..."


class SpecScopeError(Exception):
    """Base class of the errors in this module."""

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> Self:
        """An error that names the field, its value and what is allowed."""
        return cls(f"{field} is {_format_value(value)}: {allowed}")

    @classmethod
    def must_be(cls, field: str, value: object, allowed: str) -> Self:
        """As `of`, with "it must be" before `allowed`."""
        return cls.of(field, value, f"it must be {allowed}")


class ConfigError(SpecScopeError, ValueError):
    """A request, configuration or argument with a value that is not allowed."""


def _format_value(value: object) -> str:
    # Python refuses to print very long numbers.
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


class ContextLengthError(ConfigError):
    """The prompt and the requested tokens do not fit the context."""


class ModelError(SpecScopeError):
    """A model that cannot be used."""


class ModelLoadError(ModelError):
    """A model that cannot be loaded."""


class UnsupportedModelError(ModelError):
    """A model of a kind that is not supported at all, or not with these settings."""


class VocabMismatchError(ModelError):
    """A model whose tokenizer or vocabulary does not match."""


class RankError(ModelError):
    """A rank (a process that has a part of the LLM) has failed, or does not answer in time."""


class OutOfMemoryError(ModelError):
    """A model, its KV cache or its files do not fit."""


class NodeError(ModelError):
    """A drafter node, its drafts or a cluster cannot be used."""


class EngineError(SpecScopeError):
    """A call that cannot be served, or a drafter that failed."""


class EngineBusyError(EngineError):
    """The engine is already in use by another call or by a worker."""


class EngineClosedError(EngineError):
    """A closed worker was called."""


class DrafterError(EngineError):
    """A drafter failed. `place`: file and line in a user-defined drafter."""

    def __init__(self, name: str, cause: BaseException, place: str = "") -> None:
        reason = one_line(f"{type(cause).__name__}: {cause}")
        super().__init__(f"drafter {name} failed ({reason}{place and f', {place}'})")
        self.name = name


class StoreError(SpecScopeError):
    """The run log cannot be used, or a run does not allow the call."""


class UnknownRunError(StoreError):
    """There is no such run in the log, or the caller may not see it."""


class UnknownStudyError(StoreError):
    """There is no such study in the log, or the caller may not see it."""


class StudyError(SpecScopeError):
    """A study that cannot begin, go on or be changed now."""


class CellInterruptedError(StudyError):
    """A measurement of a study has to be repeated."""


# Errors that a model, a device, a request or a callback may raise.
EXPECTED_ERRORS = (SpecScopeError, RuntimeError, ValueError, MemoryError)
# Errors of third-party code, for example of a model's forward pass or a chat template. The package
# `tokenizers` raises bare Exceptions.
MODEL_FAULTS = (Exception,)


def log_unexpected(what: str, error: BaseException) -> None:
    """Logs the traceback of an error that is no SpecScopeError, or of such an error's cause.
    `what`: what failed."""
    error = error.__cause__ or error
    # The message of a SpecScopeError says all; of another error it rarely says where it was raised.
    if not isinstance(error, SpecScopeError):
        log.error("%s", what, exc_info=error)
