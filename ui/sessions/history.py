"""Logged runs as a visitor may see them: the list, single runs, access rights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import gradio as gr

from core.config.checks import choice
from core.errors import ConfigError, StoreError, UnknownRunError
from core.plurals import number_of
from ui.run.listed import join_names, shorten
from ui.server.context import Context
from ui.server.session import guard_once
from ui.server.under_way import under_way
from ui.shared.parts import log_line, notice_value
from ui.words.dates import local_time
from ui.words.glossary import GLOSSARY
from ui.words.messages import Line
from ui.words.settings import OWN, point_words, settings_of
from ui.words.visible import visible

__all__ = [
    "ANY_MODEL",
    "NO_DRAFTER",
    "ORDERS",
    "SINCE",
    "STATUSES",
    "CallerRights",
    "RunFilters",
    "allowed_run",
    "rights_of",
    "check_ended",
    "drafter_choices",
    "excerpt",
    "list_values",
    "llm_choices",
    "menu",
    "run_row_value",
    "parse_whole_number",
]

STATUSES = ("completed", "running", "cancelled", "failed", "interrupted")
ORDERS = ("newest", "oldest", "fastest", "longest", "acceptance", "passes")
ANY_MODEL = ("all", "")
NO_DRAFTER = ("none (plain decoding)", "none")
SINCE = MappingProxyType(
    {
        "any time": 0,
        "the last hour": 1,
        "the last 24 hours": 24,
        "the last 7 days": 24 * 7,
        "the last 30 days": 24 * 30,
    }
)
"""Menu entry -> hours, 0 for no limit."""

HOW_TO_END = MappingProxyType(
    {
        "here": "stop it first, with Stop in Sessions",
        "elsewhere": "stop it on the server that makes it, or wait for its end",
    }
)
TOKENS_PER_PASS = GLOSSARY["mean_acceptance_length"]
ROWS_A_PAGE = 20
EXCERPT_LENGTH = 160
DIFFERENCES = 3
"""The most differences from the default settings that a run's line names."""


def rights_of(context: Context, request: gr.Request, visitor: str) -> CallerRights:
    """The rights of the caller that made this request."""
    access = context.access
    return CallerRights(access.owner(request, visitor or ""), access.shows_paths(request))


@dataclass(frozen=True, slots=True)
class CallerRights:
    """The rights of a caller. `owner`: the only owner whose runs are visible, None for all owners;
    `paths`: whether the server's file paths may be shown."""

    owner: str | None
    paths: bool


@dataclass(frozen=True, slots=True)
class RunFilters:
    """Filters of the list besides text and status; the defaults have no effect. `since`: a name in
    SINCE; `noted`: runs with a note; `alone`: runs that belong to no study."""

    llm: str = ""
    drafter: str = ""
    since: str = "any time"
    noted: bool = False
    alone: bool = False

    def query(self) -> dict[str, Any]:
        """The filters as fields of the store's RunQuery. Raises ConfigError for an unknown
        `since`."""
        names = {"llm": self.llm or "", "drafter": self.drafter or ""}
        ticked = {"noted": bool(self.noted), "alone": bool(self.alone)}
        choice("since", self.since, tuple(SINCE))
        hours = SINCE[self.since]
        since = (datetime.now(UTC) - timedelta(hours=hours)).isoformat() if hours else ""
        return {**names, **ticked, "since_utc": since}


NO_FILTERS = RunFilters()


def list_values(
    context: Context,
    rights: CallerRights,
    opened: str,
    text: str,
    status: str,
    order: str,
    page: float,
    filters: RunFilters = NO_FILTERS,
) -> list[Any]:
    """The values of the list of runs and of its notice, and the number of the shown page.
    `opened`: the id of the opened run."""

    def work() -> list[Any]:
        query = {
            "text": text or "",
            "status": "" if status == "all" else status,
            "order": order,
            "owner": rights.owner,
            "limit": ROWS_A_PAGE,
            **filters.query(),
        }
        number = max(1, parse_whole_number("page", page or 1))
        found = context.store.runs(context.query(**query, offset=ROWS_A_PAGE * (number - 1)))
        last = max(1, -(-found.total // ROWS_A_PAGE))
        # Runs may have been deleted since the page was chosen.
        if number > last:
            number = last
            found = context.store.runs(context.query(**query, offset=ROWS_A_PAGE * (number - 1)))
        rows = {
            str(i): run_row_value(summary, context.store.studies.cell_of(summary.run_id))
            for i, summary in enumerate(found.rows)
        }
        is_filtered = bool(text) or status != "all" or filters != NO_FILTERS
        empty = "No run matches." if is_filtered else "No runs yet: start one on the Live tab."
        value: dict[str, object] = {"rows": rows, "selected": opened, "empty": empty}
        value |= {"mean": TOKENS_PER_PASS.label, "page": number, "pages": last}
        pages = f", page {number} of {last}" if last > 1 else ""
        lines = [Line("info", f"{number_of(found.total, 'run')}{pages}.")]
        log = log_line(context.store.status())
        lines += [log, Line("info", "" if rights.paths else "You see the runs of this browser.")]
        return [value, notice_value(lines, again=bool(log.text)), number]

    return guard_once(work, lambda message: [{}, notice_value([Line("error", message)]), 1])


def llm_choices(context: Context, rights: CallerRights) -> list[tuple[str, str]]:
    """The menu of LLMs: all LLMs in the log, or the loaded LLM if the visitor may not see all
    runs."""
    if rights.owner is None:
        return [ANY_MODEL, *((name, name) for name in context.store.choices().llms)]
    return [ANY_MODEL, *((model.name, model.name) for model in context.models[:1])]


def drafter_choices(context: Context, rights: CallerRights) -> list[tuple[str, str]]:
    """The menu of drafters: all drafters in the log, or the server's drafters if the visitor may
    not see all runs."""
    loaded = (*context.drafter_names, *context.model_free)
    names = context.store.choices().drafters if rights.owner is None else loaded
    return [ANY_MODEL, NO_DRAFTER, *((name, name) for name in names)]


def parse_whole_number(field: str, typed: float) -> int:
    """A typed number, rounded towards zero. Raises ConfigError if it is not a finite number."""
    if isinstance(typed, bool) or not isinstance(typed, (int, float)) or not math.isfinite(typed):
        raise ConfigError.must_be(field, typed, "a whole number")
    return int(typed)


def menu(choices: list[tuple[str, str]], chosen: str) -> Any:
    """A menu's new choices; if `chosen` is not among them, "all" is chosen."""
    if chosen in (value for _, value in choices):
        return gr.update(choices=choices)
    return gr.update(choices=choices, value="")


def run_row_value(
    summary: Any, cell: tuple[str, tuple[str, str, int]] | None = None
) -> dict[str, Any]:
    """A run's row in the list, from its RunSummary. `cell`: the id of the run's study, and the
    run's place in the study (contestant, item, repeat)."""
    stats = summary.stats
    settings = settings_of(summary.asked, summary.ssms)
    point = point_words(cell[1][0]) if cell else ""
    return {
        "id": summary.run_id,
        "status": summary.status,
        "prompt": excerpt(summary.prompt),
        "when": local_time(summary.created_utc),
        "drafters": ", ".join(summary.drafters) or "none (plain)",
        "repeat": f"repeat {cell[1][2] + 1}" if cell else "",
        "title": point or (settings.brief(DIFFERENCES) if settings.name == OWN else settings.name),
        "settings": settings.brief(DIFFERENCES),
        "sampling": ", ".join([*settings.sampling, *_schedule_words(summary)]),
        "tokens": number_of(stats.num_new_tokens, "token") if stats else "",
        "passes": number_of(summary.num_rounds, "pass"),
        "mean": TOKENS_PER_PASS.text(stats.mean_acceptance_length) if stats else "",
        "note": excerpt(summary.note),
        "thinned": summary.thinned,
        "speed": GLOSSARY["tokens_per_second"].with_label(stats.tokens_per_second) if stats else "",
    }


def _schedule_words(summary: Any) -> list[str]:
    if not summary.schedules:
        return []
    others = summary.num_others
    with_others = f" beside up to {number_of(others, 'other')}" if others else ""
    return [f"schedule {join_names(summary.schedules)}{with_others}"]


def excerpt(text: str) -> str:
    """Text for one line of a list: short, without characters that break or reverse the line."""
    return shorten(visible(" ".join(text.split())), EXCERPT_LENGTH)


def check_ended(context: Context, run: Any) -> None:
    """Raises StoreError if a run is still running."""
    if where := under_way(context, run):
        raise StoreError(f"run is still running: {HOW_TO_END[where]}")


def allowed_run(context: Context, rights: CallerRights, run_id: str) -> Any:
    """The run's summary. Raises UnknownRunError also for another visitor's run."""
    if rights.owner is None:
        return context.store.run(run_id)
    # The message is the same as for unknown ids: the ids of other visitors' runs stay secret.
    refusal = f"run_id is {run_id!r}: no such run of yours"
    try:
        summary = context.store.run(run_id)
    except UnknownRunError as error:
        raise UnknownRunError(refusal) from error
    if getattr(summary, "owner", "") != rights.owner:
        raise UnknownRunError(refusal)
    return summary
