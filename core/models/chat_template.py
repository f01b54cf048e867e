"""Chat templates are programs that come with a model: they are rendered in a process of their own,
which is ended where one does not end in time.

transformers' sandbox keeps a template from files and from Python's internals, not from time and
memory: `{{ 9**9**9 }}` holds the interpreter's lock for hours, and so everything in its process.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.errors import ContextLengthError, ModelError

__all__ = ["TemplateProcess"]

PROGRAM = Path(__file__).with_name("template_program.py")
PATIENCE_S = 2.0
START_PATIENCE_S = 60.0


class TemplateProcess:
    """Started by the first conversation or before, and anew after one that it had to be ended for;
    ends with this object or with our process. For many threads, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._ready = False

    def start(self) -> None:
        """Begins to start it, where it is not running; returns at once."""
        with self._lock:
            self._running()

    def render(
        self,
        template: str,
        messages: Iterable[Mapping[str, str]],
        special_tokens: Mapping[str, Any],
        longest: int,
    ) -> str:
        """The conversation in the template, and the beginning of an answer. Raises ModelError with
        the reason where it fails or does not end, ContextLengthError where the text has more than
        `longest` characters."""
        asked = {
            "template": template,
            "messages": [dict(message) for message in messages],
            "special_tokens": dict(special_tokens),
            "longest": longest,
        }
        with self._lock:
            process = self._running()
            if not self._ready and not _reply(process, None, START_PATIENCE_S):
                raise ModelError("the process that renders it does not start")
            self._ready = True
            replied = _reply(process, asked, PATIENCE_S)
        if not replied:
            raise ModelError(f"it does not end within {PATIENCE_S:g} s, or takes all memory")
        if "length" in replied:
            raise ContextLengthError(
                f"prompt is {replied['length']} characters long in the chat template: the context "
                f"holds at most {longest}"
            )
        if "fault" in replied:
            raise ModelError(replied["fault"])
        return str(replied["text"])

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            # -P: what lies beside the program is not to be imported in place of a library.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
            self._ready = False
            weakref.finalize(self, _end, self._process)
        return self._process


def _reply(
    process: subprocess.Popen[str], asked: Mapping[str, Any] | None, patience: float
) -> dict[str, Any]:
    """What the program answers; nothing where it ended or had to be ended."""
    assert process.stdin is not None and process.stdout is not None
    timer = threading.Timer(patience, process.kill)
    timer.daemon = True
    timer.start()
    try:
        if asked is not None:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
    except OSError:  # it ended while it was asked
        line = ""
    finally:
        timer.cancel()
    if line.endswith("\n"):
        reply: dict[str, Any] = json.loads(line)
        return reply
    _end(process)
    return {}


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not sent yet goes to nobody
                pipe.close()
