"""Which past runs a reader asks for, and what a list shows of each. Search text is data.

A word with letters or digits is looked up in the full-text index, as the beginning of a word; any
other (punctuation, scripts written without blanks) as a piece of the text. All must be found.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from core.errors import ConfigError
from core.events import RunStats
from storage.codec import decode_stats, from_json, text_back, text_in
from storage.sink import run_output

__all__ = ["ORDERS", "STATUSES", "RunPage", "RunQuery", "RunSummary", "select_run", "select_runs"]

STATUSES = ("running", "completed", "cancelled", "failed", "interrupted")
MAX_WORDS = 32
MAX_WORD = 200


def _figure(name: str) -> str:
    return f"json_extract(stats_json, '$.{name}') DESC NULLS LAST, created_utc DESC, id DESC"


ORDERS = {
    "newest": "created_utc DESC, id DESC",
    "oldest": "created_utc, id",
    "fastest": _figure("tokens_per_second"),
    "longest": _figure("num_new_tokens"),
    "acceptance": _figure("mean_acceptance_length"),
}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs, in which order, which page of them.

    `text`: words that prompt or output hold. `status`: one of STATUSES, empty for all. `owner`: a
    visitor's key, None for all. `order`: a name in ORDERS. Raises ConfigError.
    """

    text: str = ""
    status: str = ""
    owner: str | None = None
    order: str = "newest"
    limit: int = 50
    offset: int = 0

    def __post_init__(self) -> None:
        if self.status and self.status not in STATUSES:
            raise ConfigError.of("status", self.status, f"empty or one of {', '.join(STATUSES)}")
        if self.order not in ORDERS:
            raise ConfigError.of("order", self.order, f"one of {', '.join(ORDERS)}")
        for name, low in (("limit", 1), ("offset", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
                raise ConfigError.of(name, value, f"a whole number from {low}")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run without its rounds.

    `config` is the whole request as it was run, `asked` as it was given; `ssms` were loaded, in
    their order, whether they drafted or not. `stats` is None while it runs. `num_lost_events`
    above 0: the log could not keep all of it, its events end at the first that is missing.
    """

    run_id: str
    created_utc: str
    status: str
    prompt: str
    output: str
    llm: str
    drafters: tuple[str, ...]
    config: dict[str, Any]
    seed: int
    stats: RunStats | None
    finish_reason: str
    error: str
    num_rounds: int
    owner: str = ""
    error_message: str = ""
    num_lost_events: int = 0
    asked: dict[str, Any] = field(default_factory=dict)
    ssms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs; `total` counts those on all pages."""

    rows: tuple[RunSummary, ...]
    total: int


COLUMNS = """runs.*, (
    SELECT name FROM run_models JOIN models ON models.id = run_models.model
    WHERE run_models.run = runs.id AND role = 'llm' ORDER BY ordinal LIMIT 1) AS llm, (
    SELECT json_group_array(name) FROM (
        SELECT name FROM run_models JOIN models ON models.id = run_models.model
        WHERE run_models.run = runs.id AND role = 'ssm' ORDER BY ordinal)) AS ssms_json"""


def select_runs(connection: sqlite3.Connection, query: RunQuery) -> RunPage:
    """The page of runs that `query` asks for."""
    where, values = _conditions(query)
    (total,) = connection.execute(f"SELECT count(*) FROM runs WHERE {where}", values).fetchone()
    page = connection.execute(
        f"SELECT {COLUMNS} FROM runs WHERE {where} ORDER BY {ORDERS[query.order]} LIMIT ? OFFSET ?",
        (*values, query.limit, query.offset),
    )
    return RunPage(tuple(_summary(connection, row) for row in page.fetchall()), total)


def select_run(connection: sqlite3.Connection, run_id: str) -> RunSummary | None:
    """One run by its id, None if there is none."""
    found = connection.execute(
        f"SELECT {COLUMNS} FROM runs WHERE run_id = ?", (text_in(run_id),)
    ).fetchone()
    return None if found is None else _summary(connection, found)


def _conditions(query: RunQuery) -> tuple[str, tuple[Any, ...]]:
    """The WHERE clause and its values."""
    conditions: list[tuple[str, str]] = []
    if query.status:
        conditions.append(("status = ?", query.status))
    if query.owner is not None:
        conditions.append(("owner = ?", text_in(query.owner)))
    words = _words(query.text)
    indexed = [word for word in words if _indexed(word)]
    if indexed:
        phrases = " ".join('"' + word.replace('"', '""') + '"*' for word in indexed)
        in_index = "id IN (SELECT rowid FROM runs_fts WHERE runs_fts MATCH ?)"
        conditions.append((in_index, phrases))
    pieces = [word for word in words if word not in indexed]
    conditions += [("instr(prompt || char(10) || output, ?) > 0", piece) for piece in pieces]
    where = " AND ".join(condition for condition, _ in conditions) or "1"
    return where, tuple(value for _, value in conditions)


def _words(text: str) -> list[str]:
    # A NUL would end the query string inside SQLite; half a character cannot be sent there at all.
    clean = text.replace("\0", " ").encode("utf-8", "replace").decode()
    return [word[:MAX_WORD] for word in clean.split()[:MAX_WORDS]]


def _indexed(word: str) -> bool:
    """True if the index knows the beginnings of such words: letters and digits, none of them of a
    script without blanks between words."""
    kinds = {unicodedata.category(character) for character in word}
    return "Lo" not in kinds and any(kind[0] in "LN" for kind in kinds)


def _summary(connection: sqlite3.Connection, row: sqlite3.Row) -> RunSummary:
    stats = decode_stats(row["stats_json"]) if row["stats_json"] is not None else None
    running = row["status"] == "running"
    return RunSummary(
        run_id=text_back(row["run_id"]),
        created_utc=text_back(row["created_utc"]),
        status=row["status"],
        prompt=text_back(row["prompt"]),
        output=run_output(connection, row["id"]) if running else text_back(row["output"]),
        llm=text_back(row["llm"] or ""),
        drafters=tuple(from_json(row["drafters_json"])),
        config=from_json(row["config_json"]),
        seed=row["seed"],
        stats=stats,
        finish_reason=text_back(row["finish_reason"]),
        error=text_back(row["error"]),
        num_rounds=_rounds(connection, row["id"]) if stats is None else stats.num_rounds,
        owner=text_back(row["owner"]),
        error_message=text_back(row["error_message"]),
        num_lost_events=row["num_lost_events"],
        asked=from_json(row["asked_json"]),
        ssms=tuple(text_back(name) for name in from_json(row["ssms_json"])),
    )


def _rounds(connection: sqlite3.Connection, run: int) -> int:
    query = "SELECT count(*) FROM rounds WHERE run = ? AND completed_seq IS NOT NULL"
    (rounds,) = connection.execute(query, (run,)).fetchone()
    return int(rounds)
