"""From a RunQuery to rows and summaries: the SQL of lists. Search text is data.

A word with letters or digits is looked up in the full-text index, as the beginning of a word; any
other (punctuation, scripts written without blanks) as a piece of the text. All must be found.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from typing import Any

from storage.codec import decode_stats, from_json, text_back, text_in
from storage.queries import NO_DRAFTER, ORDERS, RunChoices, RunPage, RunQuery, RunSummary
from storage.sink import run_output

__all__ = ["select_choices", "select_run", "select_runs"]

MAX_WORDS = 32
MAX_WORD = 200

COLUMNS = """runs.*, (SELECT name FROM models WHERE models.id = runs.llm) AS llm_name, (
    SELECT json_group_array(name) FROM (
        SELECT name FROM run_models JOIN models ON models.id = run_models.model
        WHERE run_models.run = runs.id AND role = 'ssm' ORDER BY ordinal)) AS ssms_json"""

MODEL = "(SELECT id FROM models WHERE name = ?)"
# `+id`: the found are looked up in a list, while the index that is already in order is walked;
# without it SQLite would fetch every one of them, and sort them.
IN_INDEX = "+id IN (SELECT rowid FROM runs_fts WHERE runs_fts MATCH ?)"
A_PIECE = "instr(prompt || char(10) || output || char(10) || note, ?) > 0"
NOTED = "+id IN (SELECT id FROM runs WHERE note <> '')"
DRAFTED_BY = f"+id IN (SELECT run FROM run_drafters WHERE model = {MODEL})"
DRAFTED_BY_NONE = "+id NOT IN (SELECT run FROM run_drafters)"

Condition = tuple[str, tuple[Any, ...]]


def select_runs(connection: sqlite3.Connection, query: RunQuery) -> RunPage:
    """The page of runs that `query` asks for."""
    where, values = _where(query)
    (total,) = connection.execute(f"SELECT count(*) FROM runs WHERE {where}", values).fetchone()
    # Keys first: an index has all that is asked for, so no skipped run is read.
    keys = f"SELECT id FROM runs WHERE {where} ORDER BY {ORDERS[query.order]} LIMIT ? OFFSET ?"
    found = connection.execute(keys, (*values, query.limit, query.offset)).fetchall()
    rows = [_row(connection, "id", row["id"]) for row in found]
    return RunPage(tuple(_summary(connection, row) for row in rows if row is not None), total)


def select_run(connection: sqlite3.Connection, run_id: str) -> RunSummary | None:
    """One run by its id, None if there is none."""
    row = _row(connection, "run_id", text_in(run_id))
    return None if row is None else _summary(connection, row)


def select_choices(connection: sqlite3.Connection) -> RunChoices:
    """The names of models that some run has."""

    def names(table: str, column: str) -> tuple[str, ...]:
        held = f"SELECT 1 FROM {table} WHERE {column} = models.id"
        rows = connection.execute(f"SELECT name FROM models WHERE EXISTS ({held})")
        return tuple(sorted(text_back(row["name"]) for row in rows))

    return RunChoices(names("runs", "llm"), names("run_drafters", "model"))


def _row(connection: sqlite3.Connection, column: str, value: Any) -> sqlite3.Row | None:
    query = f"SELECT {COLUMNS} FROM runs WHERE {column} = ?"
    row: sqlite3.Row | None = connection.execute(query, (value,)).fetchone()
    return row


def _where(query: RunQuery) -> Condition:
    """The WHERE clause and its values."""
    conditions = [*_fields(query), *_search(query.text)]
    clause = " AND ".join(condition for condition, _ in conditions) or "1"
    return clause, tuple(value for _, values in conditions for value in values)


def _fields(query: RunQuery) -> list[Condition]:
    found: list[Condition] = []
    if query.status:
        found.append(("status = ?", (query.status,)))
    if query.owner is not None:
        found.append(("owner = ?", (text_in(query.owner),)))
    if query.llm:
        found.append((f"llm = {MODEL}", (text_in(query.llm),)))
    if query.drafter == NO_DRAFTER:
        found.append((DRAFTED_BY_NONE, ()))
    elif query.drafter:
        found.append((DRAFTED_BY, (text_in(query.drafter),)))
    if query.since_utc:
        found.append(("created_utc >= ?", (query.since_utc,)))
    if query.until_utc:
        found.append(("created_utc < ?", (query.until_utc,)))
    if query.noted:
        found.append((NOTED, ()))
    return found


def _search(text: str) -> list[Condition]:
    words = _words(text)
    indexed = [word for word in words if _indexed(word)]
    phrases = " ".join('"' + word.replace('"', '""') + '"*' for word in indexed)
    found: list[Condition] = [(IN_INDEX, (phrases,))] if indexed else []
    return found + [(A_PIECE, (word,)) for word in words if word not in indexed]


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
        llm=text_back(row["llm_name"] or ""),
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
        note=text_back(row["note"]),
        thinned=bool(row["thinned"]),
    )


def _rounds(connection: sqlite3.Connection, run: int) -> int:
    query = "SELECT count(*) FROM rounds WHERE run = ? AND completed_seq IS NOT NULL"
    (rounds,) = connection.execute(query, (run,)).fetchone()
    return int(rounds)
