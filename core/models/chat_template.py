"""Renders chat templates in a separate process, under a time limit.

transformers' sandbox limits neither time nor memory: `{{ 9**9**9 }}` holds the GIL.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from core.errors import ContextLengthError, ModelError
from core.plurals import number_of

__all__ = ["TemplateProcess"]

PROGRAM = Path(__file__).with_name("template_program.py")
# Time limit for rendering a conversation. The program also sets this limit on itself.
RENDER_TIMEOUT_S = 2.0
# Time limit for the program to import its libraries.
START_TIMEOUT_S = 60.0
# The process is killed this long after RENDER_TIMEOUT_S: on Windows, the program cannot limit its
# own time.
GRACE_S = 1.0


class TemplateProcess:
    """A child process that renders conversations; `render` starts it unless it runs. The process is
    killed when this object is collected. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._kill: Callable[[], object] = lambda: None
        self._ready = False

    def start(self) -> None:
        """Starts the process without waiting, unless it runs already."""
        with self._lock, contextlib.suppress(OSError):  # `render` reports the error
            self._ensure_started()

    def render(
        self,
        template: str,
        messages: Iterable[Mapping[str, str]],
        special_tokens: Mapping[str, Any],
        longest: int,
    ) -> str:
        """The text of the conversation in the template, with the generation prompt at the end.
        Raises ModelError if rendering fails or takes too long, or if the process cannot be started;
        ContextLengthError if the text has more than `longest` characters."""
        request = {
            "template": template,
            "messages": [dict(message) for message in messages],
            "special_tokens": dict(special_tokens),
            "longest": longest,
            "seconds": RENDER_TIMEOUT_S,
        }
        with self._lock:
            try:
                self._ensure_started()
            except OSError as error:
                raise ModelError(f"its process cannot be started: {error}") from error
            if not self._ready and not self._exchange(None, START_TIMEOUT_S):
                raise ModelError("the process that renders it does not start")
            self._ready = True
            reply = self._exchange(request, RENDER_TIMEOUT_S + GRACE_S)
        if not reply:
            raise ModelError(f"it does not end within {RENDER_TIMEOUT_S:g} s, or takes all memory")
        if "length" in reply:
            raise ContextLengthError(
                f"prompt is {number_of(reply['length'], 'character')} long in the chat template: "
                f"at most {longest} are allowed"
            )
        if "fault" in reply:
            raise ModelError(reply["fault"])
        return str(reply["text"])

    def _ensure_started(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._kill()
            # -P: files in the program's folder must not shadow libraries.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
            self._ready = False
            self._kill = weakref.finalize(self, _kill, self._process)

    def _exchange(self, request: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        """Sends a request, if given, and returns the next reply; empty if the process has ended."""
        process, reply = self._process, {}
        assert process is not None and process.stdin is not None and process.stdout is not None
        timer = threading.Timer(timeout_s, process.kill)
        timer.daemon = True
        timer.start()
        try:
            if request is not None:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
            # The end of the process closes the pipe: the call cannot block forever.
            line = process.stdout.readline()
            # A killed process may leave a part of a line.
            if line.endswith("\n"):
                reply = json.loads(line)
        except OSError:  # the process has ended
            pass
        finally:
            timer.cancel()
            # Also after an interrupt: else a late reply would be read as the next reply.
            if not reply:
                self._kill()
        return reply


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # closing flushes a pipe without a reader
                pipe.close()
