"""The opened run's facts and note, and the log's retention and place."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import gradio as gr

from core.errors import ConfigError, SpecScopeError, StoreError
from core.plurals import number_of
from ui.server.context import Context
from ui.server.session import guard_once
from ui.server.under_way import under_way
from ui.sessions.history import DIFFERENCES, CallerRights, allowed_run, excerpt
from ui.shared.parts import notice_value
from ui.shared.studies import Studies
from ui.shared.study_words import KINDS
from ui.words.dates import local_time, short_time
from ui.words.glossary import GLOSSARY
from ui.words.messages import Line
from ui.words.settings import settings_of

__all__ = [
    "THINNING",
    "about_run",
    "keep_note",
    "log_location",
    "parse_retention",
    "set_retention",
    "retention_view",
]

THINNING = (
    "Older runs keep text, figures and accepted tokens; rejected branches and alternatives are "
    "deleted permanently. Empty or 0: all runs are kept in full."
)
THINNED = (
    "Of this run only text, figures and accepted tokens are kept, by the log's retention setting; "
    "rejected branches and alternatives are deleted."
)
UNDER_WAY = MappingProxyType(
    {
        "here": "It is under way: its pictures follow it to its end. Stop ends it for all viewers.",
        "elsewhere": "It is under way in another server that uses this log: its pictures follow "
        "the log, about once a second. It can be stopped there only.",
    }
)
MOST_RUNS = 10_000_000


# -- the opened run --


def about_run(context: Context, rights: CallerRights, run_id: str) -> list[Any]:
    """Updates of the opened run's section, notice, note, stop button and study button; the section
    is hidden if there is no run that the visitor may see."""
    try:
        run = allowed_run(context, rights, run_id) if run_id else None
        study = Studies(context, rights.owner, "").of_run(run_id)
    except SpecScopeError:
        run = None  # the board shows the error
    if run is None:
        return [
            gr.Column(visible=False),
            notice_value([]),
            "",
            gr.Button(),
            gr.Button(visible=False),
        ]
    where = under_way(context, run)
    message = f"Opened: {run.run_id}, made {local_time(run.created_utc)}"
    stats = run.stats
    measured = stats and stats.total_ms > 0 and stats.num_rounds
    speed = f", {1000 * stats.num_rounds / stats.total_ms:.1f} rounds / s" if measured else ""
    kind = KINDS[study.kind] if study else ""
    # The first two lines are visible without hover and focus.
    lines = [
        Line("info", excerpt(run.prompt)),
        Line("info", " · ".join(_short_facts(run))),
        Line("info", UNDER_WAY.get(where, "")),
        Line("info", f"It was made for a {kind}: {study.title}" if study else ""),
        Line("info", THINNED if run.thinned else ""),
        Line("info", f"{message}{speed}."),
    ]
    study_button = gr.Button(visible=False)
    if study:
        study_button = gr.Button(f"Open its {kind}", visible=True)
    stop = gr.Button(visible=where != "elsewhere")
    # The note is not shortened, since "Save note" stores the content of the box.
    return [gr.Column(visible=True), notice_value(lines), run.note, stop, study_button]


def _short_facts(run: Any) -> list[str]:
    settings = settings_of(run.asked, run.ssms)
    quantity = GLOSSARY["mean_acceptance_length"]
    tokens_per_pass = [quantity.with_label(run.stats.mean_acceptance_length)] if run.stats else []
    words = [settings.brief(DIFFERENCES), *settings.sampling]
    return [*words, *tokens_per_pass, short_time(local_time(run.created_utc))]


def keep_note(context: Context, rights: CallerRights, run_id: str, note: str) -> dict[str, Any]:
    """Stores the note of the opened run (an empty note deletes it) and returns the notice."""

    def work() -> dict[str, Any]:
        if not run_id:
            raise StoreError("no run is opened: open one from the list first")
        allowed_run(context, rights, run_id)
        context.store.annotate(run_id, note or "")
        message = (
            "The note is saved; the search finds its words." if note else "The run has no note now."
        )
        return notice_value([Line("good", message)])

    return guard_once(work, lambda message: notice_value([Line("error", message)]))


# -- how much is kept --


def parse_retention(typed: Any) -> int | None:
    """The typed number of runs; None for all runs. Raises ConfigError if `typed` is neither empty
    nor a whole number from 0 to MOST_RUNS."""
    text = str(typed if typed is not None else "").strip()
    digits = text.lstrip("0")
    if not digits:
        return None
    # The length is checked first: `int` raises ValueError for more than 4300 digits.
    if not digits.isdecimal() or len(digits) > len(str(MOST_RUNS)) or int(digits) > MOST_RUNS:
        raise ConfigError.must_be(
            "runs", typed, f"empty or 0 for all runs, or a whole number from 1 to {MOST_RUNS}"
        )
    return int(digits)


def retention_view(
    context: Context, rights: CallerRights, typed: Any, last: str | None
) -> list[Any]:
    """Updates of the section's visibility and of the box; the log's retention, for the next call.

    `typed`: the value in the box; `last`: the log's retention at the last call. A value that the
    visitor typed is not changed."""
    hidden = [gr.Accordion(visible=False), gr.skip(), gr.skip()]

    def work() -> list[Any]:
        retention = context.store.retention()
        limit = "" if retention is None else str(retention)
        was_typed = (typed or "") not in (limit, last or "")
        unchanged = was_typed or limit == (typed or "")
        return [gr.Accordion(visible=True), gr.skip() if unchanged else limit, limit]

    return guard_once(work, lambda _: hidden) if rights.paths else hidden


def log_location(context: Context, rights: CallerRights) -> dict[str, Any]:
    """A notice with the log's path; empty for callers who may not see paths."""
    if not rights.paths:
        return notice_value([])
    command = context.store.datasette()
    where = f"All runs are in {context.store.path} (SQLite). To look inside: {command}"
    return notice_value([Line("info", where)])


def set_retention(
    context: Context, rights: CallerRights, typed: Any, confirmed: bool
) -> tuple[dict[str, Any], gr.Button]:
    """Sets how many runs are kept in full. If a number above 0 is typed and `confirmed` is False,
    only asks for confirmation. Returns the notice, and the button that confirms."""

    def work() -> tuple[dict[str, Any], gr.Button]:
        if not rights.paths:
            raise StoreError("retention can be set only by the server's owner")
        keep = parse_retention(typed)
        if keep is not None and not confirmed:
            kept = number_of(keep, "run")
            ask = f"All but the last {kept} lose their rejected branches permanently. Sure?"
            return notice_value([Line("warn", ask)]), gr.Button(visible=True)
        context.store.set_retention(keep)
        all_kept = "From now on every run is kept in full."
        latest = number_of(keep or 0, "run")
        verb = "is" if keep == 1 else "are"
        thinned = (
            f"The last {latest} {verb} kept in full; older ones are thinned in the background."
        )
        line = Line("good", all_kept if keep is None else thinned)
        return notice_value([line]), gr.Button(visible=False)

    def refusal(message: str) -> tuple[dict[str, Any], gr.Button]:
        return notice_value([Line("error", message)]), gr.Button(visible=False)

    return guard_once(work, refusal)
