"""Processes that share a suite's rows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.ended import has_ended

ROOT = Path(__file__).resolve().parents[2]


def told(seconds: float) -> None:
    """Says which process works, and works."""
    print(os.getpid(), flush=True)
    time.sleep(seconds)


@pytest.mark.nightly
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks in /proc")
def test_workers_end_with_a_suite_that_was_killed() -> None:
    began = """
from bench.suites.process_pool import map_processes
from tests.bench.test_process_pool import told
list(map_processes(1, told, [60.0]))
"""
    piped: dict[str, Any] = {"stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", began], cwd=ROOT, **piped) as suite:
        assert suite.stdout
        worker = int(suite.stdout.readline())
        suite.kill()
    assert has_ended(worker)
