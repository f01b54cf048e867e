"""`python app.py` with SmolLM2 compiles functions and times passes before the page opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.page.site import free_port
from core.models.loading.catalog import SMOLLM2
from tests.smollm2 import smollm2
from tests.ui.watched import watched_app

pytestmark = pytest.mark.nightly


def test_nothing_is_compiled_or_timed_in_the_first_requests(tmp_path: Path) -> None:
    smollm2()
    database = str(tmp_path / "runs.db")
    with watched_app(free_port(), "--llm", SMOLLM2, "--db", database) as running:
        running.check_start()
        running.ask(SMOLLM2)
        running.process.terminate()
        output, _ = running.process.communicate(timeout=60)
    assert "WATCHED" not in output
