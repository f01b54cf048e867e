"""The application in a process that reports compiling by numba and timing of LLM passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import app
from core.models.loading.catalog import SMOLLM2
from tests.interrupts import hear_interrupts

# Requests run in the thread `engine`.
PROGRAM = """
import runpy, sys, threading
from numba.core.dispatcher import Dispatcher
from core.speculation_length.cost_model import ledger

def watch(owner, name, words):
    function = getattr(owner, name)
    def report_and_call(first, *rest):
        thread = threading.current_thread().name
        print("WATCHED", thread, words, getattr(first, "py_func", ""), flush=True)
        return function(first, *rest)
    setattr(owner, name, report_and_call)

watch(Dispatcher, "compile", "compiles")
watch(ledger, "measure_verify_costs", "times passes")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
LEARNING = {"drafters": ["ngram", "suffix", "table", "all"], "combine": "vote_tree"}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"preset": "best"},
    {"preset": "best", "temperature": 0.8},
    {"speculation": LEARNING},
    {"preset": "autoregressive"},
)


@dataclass(frozen=True)
class WatchedApp:
    """`opened`: the line that says that the page is open. `before`: the lines before that line."""

    process: subprocess.Popen[str]
    port: int
    before: tuple[str, ...]
    opened: str

    def check_start(self) -> None:
        assert any("WATCHED MainThread compiles" in line for line in self.before), self.before
        assert sum("WATCHED MainThread times" in line for line in self.before) == 1, self.before
        assert not any("WATCHED engine" in line for line in self.before), self.before

    def ask(self, llm: str) -> None:
        for settings in SETTINGS:
            assert self._answer(llm, settings)

    def _answer(self, llm: str, settings: dict[str, Any]) -> str:
        path, body = "/v1/completions", {"prompt": "Once there was", "max_tokens": 12, **settings}
        if llm == SMOLLM2:
            del body["prompt"]
            question = {"role": "user", "content": "What is the capital of France?"}
            path, body = "/v1/chat/completions", {"messages": [question], **body}
        headers = {"Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=120) as response:
            (choice,) = json.load(response)["choices"]
        return str(choice["message"]["content"] if llm == SMOLLM2 else choice["text"])


@contextmanager
def watched_app(port: int, *arguments: str, **environment: str) -> Iterator[WatchedApp]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "app.py", "--port", str(port), *arguments],
        cwd=Path(app.__file__).parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hear_interrupts,
    )
    try:
        assert process.stdout is not None
        before = []
        for line in process.stdout:
            if "is open at" in line:
                break
            before.append(line)
        else:
            raise AssertionError("".join(before))
        yield WatchedApp(process, port, tuple(before), line)
    finally:
        process.kill()
        process.communicate()
