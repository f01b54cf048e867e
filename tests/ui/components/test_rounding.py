"""One figure, one value: what the browser rounds is what was measured."""

from __future__ import annotations

from tests.synthetic import synthetic_run
from ui.run.frame import Baseline, Frame
from ui.run.values import figures_value
from ui.run.view import reduce_all


def test_figures_go_to_the_browser_unrounded() -> None:
    """2.62496 would be 2.625 with four digits, and then the other side of the middle."""
    view = reduce_all(synthetic_run(30, seed=4))
    value = figures_value(Frame(view=view, known=1, run_id="x"), Baseline(3.0, "plain", "measured"))
    for name in ("mean_acceptance_length", "tokens_per_second", "draft_acceptance_rate"):
        assert value[name] == getattr(view.stats, name)
    assert value["speedup"] == view.stats.tokens_per_second / 3.0
