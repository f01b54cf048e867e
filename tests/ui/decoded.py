"""Runs of the bundled models on the page in a browser: asking for one, and its recorded events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from core.config import SpeculationConfig
from core.events import (
    Combined,
    Drafted,
    Event,
    RoundCompleted,
    RunCompleted,
    RunStarted,
    RunStats,
    Verified,
)
from storage import RunQuery
from tests.ui.browser.looks import frames
from tests.ui.sites import choose, drawn, number_box, said, shows, usable
from ui.server.context import Context

TOKENS = 40
CALM = 15


@dataclass(frozen=True)
class Recorded:
    """The events of one run, read back from the store, by round."""

    started: RunStarted
    drafted: list[Drafted]
    combined: list[Combined]
    verified: list[Verified]
    completed: list[RoundCompleted]
    stats: RunStats


def recorded(context: Context) -> Recorded:
    """The latest run."""
    context.store.flush()
    run_id = context.store.runs(RunQuery()).rows[0].run_id
    events = context.store.events(run_id)

    def of(kind: type[Event]) -> list[Any]:
        return [event for event in events if isinstance(event, kind)]

    kinds = (Drafted, Combined, Verified, RoundCompleted)
    return Recorded(of(RunStarted)[0], *map(of, kinds), of(RunCompleted)[-1].stats)


def prepare(page: Any, preset: str, tokens: int = TOKENS, **fields: str) -> None:
    """Ask for the story example under a preset and some fields of its own, up to the last click."""
    page.click("#example-story")
    page.get_by_text("Sampling", exact=True).click()
    usable(page, number_box(page, "sampling-max_new_tokens")).fill(str(tokens))
    page.get_by_text("Every setting of the engine").click()
    choose(page, "preset", preset)
    meant = SpeculationConfig.preset(preset)
    for name in ("combine", "length", "pipeline"):  # the server fills in the fields
        shows(page, name, getattr(meant, name))
    for name, value in fields.items():
        choose(page, f"field-{name}", value)


def decode(page: Any, preset: str, **fields: str) -> None:
    """The same to the run's end, with every picture drawn."""
    prepare(page, preset, **fields)
    page.click("#live-run")
    finished(page)


def finished(page: Any) -> None:
    said(page, "Finished: ")
    drawn(page)
    settled(page)


def settled(page: Any) -> None:
    """Every picture has drawn what it was sent, also those out of sight, which take a second: for
    CALM frames in succession none has anything to draw."""
    frames(page)
    page.evaluate("() => { window.specscopeCalm = 0; }")
    page.wait_for_function(
        """(calm) => {
        const pending = document.querySelector('[data-pending]');
        window.specscopeCalm = pending ? 0 : window.specscopeCalm + 1;
        return window.specscopeCalm > calm;
        }""",
        arg=CALM,
    )


def select_round(page: Any, number: int) -> None:
    """Select a round by its text."""
    page.locator(f"#live-strip .ss-round[data-r='{number}']").first.click()
    page.locator("#live-proposals").get_by_text(f"Round {number + 1}:").wait_for()
    page.locator("#live-tree").get_by_text(f"Round {number + 1}", exact=True).wait_for()
    settled(page)


def number_in(text: str) -> float:
    """The number that a short label holds; what is written as <0.01 counts as 0."""
    found = re.search(r"(<?)([\d.]+)", text)
    assert found, text
    return 0.0 if found[1] else float(found[2])


def close(text: str, value: float) -> bool:
    return number_in(text) == pytest.approx(value, abs=0.0105)


def with_draft(run: Recorded, dropping: bool = False) -> list[int]:
    """Rounds that drafted, some of which dropped something."""
    found = [r for r, tree in enumerate(run.combined) if tree.token_ids]
    return [r for r in found if run.combined[r].dropped] if dropping else found
