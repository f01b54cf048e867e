"""A run is shown in Sessions and in its report with the speed-up that was measured beside it."""

from __future__ import annotations

from typing import Any

import pytest

from lab.study import PLAIN
from tests.ui.boards import ALL, live_of, run, sessions_of
from tests.ui.reports import Place, Report, unpacked
from tests.ui.test_live import ME
from tests.ui.test_studies import ended, mine, study
from ui.live.handlers import answer_question
from ui.run.baselines import baseline_of
from ui.run.checks import measure_baseline, prove
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.exporting import write_export
from ui.sessions.tab import opened_run

FIGURES = 2


def replayed(context: Context, run_id: str) -> dict[str, Any]:
    """The figures in Sessions; the report's must be the same."""
    values = opened_run(sessions_of(context), TabSession(), ALL, run_id)
    figures = unpacked(values[FIGURES])
    html = write_export(context, ALL, run_id, "html")["text"]
    report = Report(html)
    assert report.pictures(Place(report.stops - 1))["figures"] == figures
    assert ("times plain decoding" in html) == (figures["speedup"] is not None)
    return figures


@pytest.mark.parametrize("question", [measure_baseline, prove])
def test_what_was_measured_live_is_replayed(context: Context, question: Any) -> None:
    live, desk = live_of(context), TabSession()
    run(live, desk)
    first = desk.frame().run_id
    assert replayed(context, first)["speedup"] is None
    lived = unpacked(list(answer_question(live, desk, ME, question))[-1][FIGURES + 1])
    assert lived["speedup"] > 0
    assert replayed(context, first) == lived
    again = unpacked(run(live, desk)[FIGURES + 1])
    assert again["speedup"] is not None and again["baseline_note"] == lived["baseline_note"]
    assert replayed(context, desk.frame().run_id) == again, "with the baseline of the run before"
    other = unpacked(run(live, desk, prompt="Another")[FIGURES + 1])
    assert replayed(context, desk.frame().run_id) == other and other["speedup"] is None


def test_the_plain_run_may_go(context: Context) -> None:
    live, desk = live_of(context), TabSession()
    run(live, desk)
    lived = unpacked(list(answer_question(live, desk, ME, measure_baseline))[-1][FIGURES + 1])
    assert desk.baseline is not None
    context.store.delete(desk.baseline.run_id)
    assert replayed(context, desk.frame().run_id) == lived


def test_a_baseline_is_the_llms_it_was_measured_of(context: Context) -> None:
    live, desk = live_of(context), TabSession()
    run(live, desk)
    list(answer_question(live, desk, ME, measure_baseline))
    assert desk.baseline is not None
    kept = desk.baseline.request
    desk.baseline = type(desk.baseline)(1.0, "plain", "", (("another", "", ""), *kept[1:]))
    assert unpacked(run(live, desk)[FIGURES + 1])["speedup"] is None


def test_a_studys_run_is_compared_with_its_own_plain_cell(context: Context) -> None:
    asked_for = study(context, prompts=2, repeats=2)
    mine(context).begin(asked_for)
    ended(context)
    cells = mine(context).open(asked_for.study_id).results
    for cell, kept in cells.items():
        figures = replayed(context, kept.run_id)
        if cell.contestant == PLAIN:
            assert figures["speedup"] is None
            continue
        (plain,) = (
            one
            for other, one in cells.items()
            if (other.contestant, other.item, other.repeat) == (PLAIN, cell.item, cell.repeat)
        )
        rate = plain.stats.tokens_per_second
        assert figures["speedup"] == kept.stats.tokens_per_second / rate
        assert figures["baseline_tps"] == rate
        found = baseline_of(context.store, context.store.run(kept.run_id))
        assert found is not None and found.run_id == plain.run_id
    mine(context).delete(asked_for.study_id)
    assert replayed(context, kept.run_id)["speedup"] is None
