"""A logged run as a file, in one of several formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from types import MappingProxyType
from typing import Any

from core.config.checks import choice
from core.errors import StoreError
from ui.report import report_html
from ui.run.baselines import baseline_of
from ui.run.hindsight import stored_regret
from ui.run.regret_words import regret_plain
from ui.server.context import Context
from ui.sessions.history import CallerRights, allowed_run
from ui.words.messages import Line

__all__ = ["FORMATS", "FROM_STORE", "export_progress", "write_export"]

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "json": "JSON events",
        "csv": "CSV of rounds",
        "trace": "Perfetto trace",
        "html": "HTML report",
    }
)
"""Name of each format -> its button's label."""

FROM_STORE: Mapping[str, str] = MappingProxyType(
    {"json": "events", "csv": "rounds", "trace": "trace"}
)
"""The formats that the store writes -> their names in `Context.exports`."""

LONGEST_STEM = 80
PROGRESS_INTERVAL_S = 0.3


def export_progress(
    context: Context, rights: CallerRights, run_id: str, name: str
) -> Iterator[tuple[dict[str, Any] | None, Line]]:
    """Yields None with a line on progress, repeatedly, then the file of `write_export` with a line.
    Raises the errors of `write_export`."""
    # The written shares of the file, the latest at the end.
    shares = [0.0]
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(write_export, context, rights, run_id, name, shares.append)
        while not wait((job,), PROGRESS_INTERVAL_S).done:
            share = shares[-1]
            del shares[:-1]
            percent = f": {100 * share:.0f} %" if share else ""
            message = f"Writing {FORMATS[name]}{percent}. The file is saved when it is complete."
            yield None, Line("info", message)
        file = job.result()
    yield file, Line("good", f"Saved as {file['name']}.")


def write_export(
    context: Context,
    rights: CallerRights,
    run_id: str,
    name: str,
    on_progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """A run as a file: its `name`, `media_type` and `text`. The argument `name` is a key of
    FORMATS. `on_progress` is called with the written share (0 to 1), for the HTML report alone.

    Raises ConfigError for an unknown format, StoreError unless the caller may see the run."""
    choice("format", name, tuple(FORMATS))
    if not run_id:
        raise StoreError("no run is opened: open one from the list first")
    run = allowed_run(context, rights, run_id)
    events = context.store.events(run_id)
    regret = stored_regret(run)
    if name == "html":
        extension, media_type = "html", "text/html; charset=utf-8"
        baseline = baseline_of(context.store, run)
        text = report_html(events, baseline, on_progress=on_progress, regret=regret)
    else:
        export = context.exports[FROM_STORE[name]]
        extension, media_type = export.extension, export.media_type
        text = export.write(events, run.status, regret_plain(regret) if regret else None)
    # Valid as a file's name on any system.
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", run_id)[:LONGEST_STEM]
    return {"name": f"{stem}.{extension.lstrip('.')}", "media_type": media_type, "text": text}
