"""Whether the configurations of a comparison wrote plain decoding's text, and if not, why."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from core.errors import StoreError
from core.events import Event
from lab.measured import Measured
from lab.order import Cell
from lab.study import Study
from lab.tables import Results, same_text
from lab.texts import first_difference
from ui.run.proof import Answer, compare, distribution_of, weighable
from ui.run.view import reduce_all

__all__ = ["ANSWERS", "Events", "same_answer"]

Events = Callable[[str], tuple[Event, ...]]
"""The id of a run -> the run's events. Raises StoreError if the run is not in the log."""
ANSWERS = MappingProxyType(
    {
        "base": "–",
        "identical": "identical",
        "tie": "a rounding tie",
        "distribution": "same distribution",
        "bug": "differs: a bug",
        "differs": "differs",
        "unknown": "–",
    }
)
"""The table's words for each kind of answer. `differs`: a run was deleted, or too little was
recorded to say why."""
WORST_FIRST = ("bug", "differs", "tie")


def same_answer(study: Study, results: Results, name: str, events: Events) -> Answer:
    """Whether the runs of `name` wrote plain decoding's text; of several answers, the worst."""
    if name == study.base:
        return Answer("base", "What the others are compared with.")
    own_cells = sorted(cell for cell in results if cell.contestant == name)
    same = same_text(study, results, own_cells)
    if same.kind == "unknown":
        return Answer("unknown", "Nothing to compare yet.")
    if same.kind == "distribution":
        distribution = distribution_of(results[own_cells[0]].verify)
        return distribution or Answer("unknown", "Nothing to compare yet.")
    pairs = _pairs(study, results, own_cells)
    differing = [cell for cell, base in pairs if results[cell].token_ids != base.token_ids]
    if not differing:
        runs = "its run" if len(pairs) == 1 else f"all {len(pairs)} runs"
        words = f"Identical: {runs} wrote token for token what plain decoding wrote."
        return Answer("identical", words)
    answers = [_difference_answer(study, results, cell, events) for cell in differing]
    worst = min(answers, key=lambda answer: WORST_FIRST.index(answer.kind))
    others = len(pairs) - len(differing)
    rest = f" {others} of {len(pairs)} runs are identical." if others else ""
    return Answer(worst.kind, worst.sentence + rest, worst.at)


def _pairs(study: Study, results: Results, own_cells: list[Cell]) -> list[tuple[Cell, Measured]]:
    bases = [(cell, results.get(Cell(study.base, cell.item, cell.repeat))) for cell in own_cells]
    return [(cell, base) for cell, base in bases if base is not None]


def _difference_answer(study: Study, results: Results, cell: Cell, events: Events) -> Answer:
    base = results[Cell(study.base, cell.item, cell.repeat)]
    at = first_difference(results[cell].token_ids, base.token_ids)
    assert at is not None, "both texts are equal"
    try:
        events_of_run, base_events = events(results[cell].run_id), events(base.run_id)
    except StoreError:
        words = f"Differs at token {at + 1}; its run was deleted, so the reason is unknown."
        return Answer("differs", words, at)
    view, plain = reduce_all(events_of_run), reduce_all(base_events)
    if not weighable(view, plain, base_events):
        words = (
            f"Differs at token {at + 1}; the two tokens are not both among the recorded ones. "
            "Run it in Live: plain decoding follows, and both texts are compared."
        )
        return Answer("differs", words, at)
    return compare(view, plain, events_of_run, base_events)
