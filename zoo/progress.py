"""A line on the progress of training: a bar, step, loss, speed, time left."""

from __future__ import annotations

from typing import TextIO

__all__ = ["ProgressLine"]

_BAR_CELLS = 24


class ProgressLine:
    """Shows the progress of a training: on a terminal one line, due every second; elsewhere
    a new line every `log_seconds`. The last line is always due."""

    def __init__(self, name: str, budget: float, stream: TextIO, log_seconds: float = 15.0) -> None:
        self._name, self._budget, self._stream = name, budget, stream
        self._rewrites = stream.isatty()
        self._every = 1.0 if self._rewrites else log_seconds
        self._shown_at = float("-inf")
        self._is_open = False  # whether the rewritten line still has to be ended

    def is_due(self, spent: float) -> bool:
        """Whether to show the line now. Ask before reading the loss, which waits for the device."""
        return spent - self._shown_at >= self._every or spent >= self._budget

    def show(self, spent: float, step: int, num_tokens: int, loss: float) -> None:
        """Shows the line. `spent`: seconds of training, in which `num_tokens` tokens were used."""
        self._shown_at = spent
        fraction = min(spent / self._budget, 1.0)
        num_filled = round(fraction * _BAR_CELLS)
        bar = "#" * num_filled + "-" * (_BAR_CELLS - num_filled)
        left = max(self._budget - spent, 0.0)
        speed = num_tokens / spent if spent else 0.0
        self._write(
            f"{self._name} [{bar}] {fraction:4.0%}  step {step}  loss {loss:.3f}  "
            f"{speed:,.0f} tok/s  {int(left // 60)}:{int(left % 60):02} left"
        )

    def note(self, text: str) -> None:
        """Prints a line that is not rewritten."""
        self.end()
        print(f"{self._name} {text}", file=self._stream, flush=True)

    def end(self) -> None:
        """Ends the line that is being rewritten; later output begins on a new line."""
        if self._is_open:
            print(file=self._stream, flush=True)
        self._is_open = False

    def _write(self, line: str) -> None:
        if self._rewrites:
            print(f"\r{line}\x1b[K", end="", file=self._stream, flush=True)
            self._is_open = True
        else:
            print(line, file=self._stream, flush=True)
