"""Progress of loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

__all__ = ["Say", "StageLines", "same_stage"]

Say = Callable[[str], None]
"""Called with the text of a stage, possibly more than once. An exception from it ends loading."""

# How the texts of long stages begin, in lower case, after "MODEL: ".
LONG_STAGES = (
    "downloading", "dequantizing", "reading the gguf", "writing", "waiting", "placing",
)  # fmt: skip
# Moves to the start of the line, then erases to its end.
ERASE = "\r\x1b[K"
DIGITS = str.maketrans("", "", "0123456789")


def same_stage(one: str, other: str) -> bool:
    """Whether two texts differ at most in their digits."""
    return one.translate(DIGITS) == other.translate(DIGITS)


class StageLines:
    """A `Say` that writes the long stages: on a terminal, in a single line that is rewritten; on
    any other output, in a line for each stage."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._last = ""

    def __call__(self, stage: str) -> None:
        if not _is_long(stage):
            self.end()
        elif self._terminal:
            self._write(f"{ERASE}{stage}")
        elif not same_stage(stage, self._last):
            self._write(f"{stage}\n")
        self._last = stage

    def end(self) -> None:
        """Erases the line on a terminal."""
        if self._terminal and _is_long(self._last):
            self._write(ERASE)
        self._last = ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _is_long(stage: str) -> bool:
    return stage.rpartition(": ")[2].lower().startswith(LONG_STAGES)
