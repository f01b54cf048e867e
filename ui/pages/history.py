"""Past runs as a visitor may see them: the list, one run, whose it is. Knows the store's answers.

Shared by the Sessions tab and the endpoints, so that the same rules hold for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.errors import UnknownRunError
from ui.context import Context
from ui.dates import local_time
from ui.messages import Line
from ui.pages.parts import log_line, notice_value
from ui.session import guarded_once
from ui.settings import settings_of

__all__ = ["ORDERS", "STATUSES", "Asker", "allowed", "asker_of", "listed", "row_value"]

STATUSES = ("completed", "running", "cancelled", "failed", "interrupted")
ORDERS = ("newest", "oldest", "fastest", "longest", "acceptance")
PAGE = 10
EXCERPT = 160
DIFFERENCES = 3


def asker_of(context: Context, request: gr.Request, visitor: str) -> Asker:
    """What this caller may see."""
    access = context.access
    return Asker(access.owner(request, visitor or ""), access.shows_paths(request))


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: the owner their list is restricted to (None: all), whether paths are theirs."""

    owner: str | None
    paths: bool


def listed(
    context: Context, asker: Asker, opened: str, text: str, status: str, order: str, page: float
) -> list[Any]:
    """The list, its notice and the page number, which never runs past the end."""

    def work() -> list[Any]:
        asked = {
            "text": text or "",
            "status": "" if status == "all" else status,
            "order": order,
            "owner": asker.owner,
            "limit": PAGE,
        }
        number = max(1, int(page or 1))
        found = context.store.runs(context.query(**asked, offset=PAGE * (number - 1)))
        last = max(1, -(-found.total // PAGE))
        if number > last:
            number = last
            found = context.store.runs(context.query(**asked, offset=PAGE * (number - 1)))
        rows = {str(i): row_value(summary) for i, summary in enumerate(found.rows)}
        anything = bool(text) or status != "all"
        empty = "No run matches." if anything else "No run yet: the Live tab makes the first."
        value = {"rows": rows, "selected": opened, "empty": empty}
        lines = [Line("info", f"{_runs(found.total)}, page {number} of {last}.")]
        log = log_line(context.store.status())
        lines += [log, *_whereabouts(context, asker)]
        return [value, notice_value(lines, again=bool(log.text)), number]

    return guarded_once(work, lambda message: [{}, notice_value([Line("error", message)]), 1])


def _runs(total: int) -> str:
    return "1 run" if total == 1 else f"{total} runs"


def _whereabouts(context: Context, asker: Asker) -> list[Line]:
    if not asker.paths:
        return [Line("info", "You see the runs of this browser.")]
    return [
        Line(
            "info",
            f"All runs are in {context.store.path} (SQLite). "
            f'To look inside: uvx datasette "{context.store.path}"',
        )
    ]


def row_value(summary: Any) -> dict[str, Any]:
    """What the list shows of a run; a RunSummary in."""
    stats = summary.stats
    settings = settings_of(summary.asked, summary.ssms)
    return {
        "id": summary.run_id,
        "status": summary.status,
        "prompt": _excerpt(summary.prompt),
        "output": _excerpt(summary.output),
        "when": local_time(summary.created_utc),
        "drafters": ", ".join(summary.drafters) or "none (plain)",
        "settings": settings.brief(DIFFERENCES),
        "sampling": ", ".join(settings.sampling),
        "tokens": str(stats.num_new_tokens) if stats else "",
        "rounds": str(summary.num_rounds),
        "mean": f"{stats.mean_acceptance_length:.2f}" if stats else "",
        "tps": f"{stats.tokens_per_second:.1f}" if stats else "",
    }


def _excerpt(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= EXCERPT else flat[: EXCERPT - 1] + "…"


def allowed(context: Context, asker: Asker, run_id: str) -> Any:
    """The run's summary. UnknownRunError also where it is another visitor's."""
    if asker.owner is None:
        return context.store.run(run_id)
    # One answer for both: it must not tell which ids other visitors' runs have.
    nothing = f"run_id is {run_id!r}: no such run of yours"
    try:
        summary = context.store.run(run_id)
    except UnknownRunError as error:
        raise UnknownRunError(nothing) from error
    if getattr(summary, "owner", "") != asker.owner:
        raise UnknownRunError(nothing)
    return summary
