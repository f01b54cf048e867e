"""A long run is drawn smoothly (PAGE, "How it behaves"). Slow: wants a quiet machine."""

from __future__ import annotations

from typing import Any

import pytest

from bench.page.gaps import measure


@pytest.mark.slow
def test_95_percent_of_the_frame_gaps_of_2000_tokens_are_under_50_ms(chromium: Any) -> None:
    figures = measure(chromium, rounds=500, speed=1.0)
    assert figures["under_50"] >= 0.95, figures
