"""`python app.py`: what the first requests need is compiled and timed before the page is open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import app
from bench.page.site import free_port
from core.models.loading.catalog import BUNDLED, SMOLLM2
from tests.interrupts import hear_interrupts
from tests.smollm2 import smollm2

pytestmark = pytest.mark.nightly

# Runs the given program. A line for each function that is compiled or loaded from numba's cache,
# and one where the LLM's passes are timed, with the thread: requests run in the one named `engine`.
WATCHED = """
import runpy, sys, threading
from numba.core.dispatcher import Dispatcher
from core.length.cost_model import ledger

def watch(owner, name, words):
    function = getattr(owner, name)
    def watched(first, *rest):
        thread = threading.current_thread().name
        print("WATCHED", thread, words, getattr(first, "py_func", ""), flush=True)
        return function(first, *rest)
    setattr(owner, name, watched)

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


@contextmanager
def serve(llm: str, database: Path) -> Iterator[tuple[str, Any]]:
    """The address of the application, and its process."""
    port = free_port()
    arguments = ["app.py", "--llm", llm, "--port", str(port), "--db", str(database)]
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, *arguments],
        cwd=Path(app.__file__).parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hear_interrupts,
    )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("llm", [BUNDLED, SMOLLM2])
def test_nothing_is_compiled_or_timed_in_the_first_requests(llm: str, tmp_path: Path) -> None:
    if llm == SMOLLM2:
        smollm2()
    with serve(llm, tmp_path / "runs.db") as (url, process):
        before = []
        for line in process.stdout:
            if "is open at" in line:
                break
            before.append(line)
        assert any("WATCHED MainThread compiles" in line for line in before), before
        assert sum("WATCHED MainThread times" in line for line in before) == 1, before
        # The run that the page opens with may begin before the page is open.
        assert not any("WATCHED engine" in line for line in before), before
        for settings in SETTINGS:
            assert answer(url, llm, settings)
        process.terminate()
        rest, _ = process.communicate(timeout=60)
    assert "WATCHED" not in rest


def answer(url: str, llm: str, settings: dict[str, Any]) -> str:
    """The LLM's text, as a client of OpenAI's API gets it."""
    path, body = "/v1/completions", {"prompt": "Once there was", "max_tokens": 12, **settings}
    if llm == SMOLLM2:
        del body["prompt"]
        question = {"role": "user", "content": "What is the capital of France?"}
        path, body = "/v1/chat/completions", {"messages": [question], **body}
    request = Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=120) as response:
        (choice,) = json.load(response)["choices"]
    return str(choice["message"]["content"] if llm == SMOLLM2 else choice["text"])
