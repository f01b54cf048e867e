"""The SQL of lists: from a RunQuery to rows and summaries. Search text is never part of the SQL.

A word is looked up in the full-text index, as a prefix. A word that the index cannot look up is
searched as a substring. The index has letters and digits only: results for an ASCII word with other
characters, for example `C++`, are also checked for the substring.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from typing import Any

from storage.codec import decode_process, decode_stats, decode_text, encode_text, from_json
from storage.process import Process
from storage.queries import (
    NO_DRAFTER,
    ORDERS,
    PlainSpeed,
    RunChoices,
    RunPage,
    RunQuery,
    RunSummary,
)
from storage.sink import run_output
from storage.tables import SCHEDULED_PARTS

__all__ = ["select_choices", "select_run", "select_runs"]

MAX_WORDS = 32
MAX_WORD = 200

COLUMNS = """runs.*, (SELECT name FROM models WHERE models.id = runs.llm) AS llm_name, (
    SELECT json_group_array(name) FROM (
        SELECT name FROM run_models JOIN models ON models.id = run_models.model
        WHERE run_models.run = runs.id AND role = 'ssm' ORDER BY ordinal)) AS ssms_json"""

# Selects the expressions of the index `rounds_scheduled` (migration m020_schedules).
SCHEDULES = """SELECT {rule}, max({live}) FROM rounds
    WHERE run = ? AND scheduled_json IS NOT NULL GROUP BY {rule}""".format(
    rule=SCHEDULED_PARTS[0], live=SCHEDULED_PARTS[1]
)

# Table `found` is filled once, and used for the count and for the page. `+` keeps SQLite from using
# the index on id, so it scans the runs in the order of the list.
CREATE_FOUND = "CREATE TEMP TABLE found(id INTEGER PRIMARY KEY)"
IN_FOUND = "+id IN (SELECT id FROM found)"
IN_INDEX = "SELECT rowid FROM runs_fts WHERE runs_fts MATCH ?"
CONTAINS = (
    "(instr(lower(prompt), lower(?)) OR instr(lower(output), lower(?)) "
    "OR instr(lower(note), lower(?)))"
)
NOTED = "+id IN (SELECT id FROM runs INDEXED BY runs_noted WHERE note <> '')"
OF_NO_STUDY = "NOT EXISTS (SELECT 1 FROM study_cells WHERE study_cells.run_id = runs.run_id)"
DRAFTED_BY = "EXISTS (SELECT 1 FROM run_drafters WHERE model = ? AND run = runs.id)"
DRAFTED_BY_NONE = "NOT EXISTS (SELECT 1 FROM run_drafters WHERE run = runs.id)"
# For an unknown name: no row of `models` has this id.
NO_MODEL = -1
PUNCTUATION = ",.;:!?\"'()[]{}"

Condition = tuple[str, tuple[Any, ...]]


def select_runs(connection: sqlite3.Connection, query: RunQuery) -> RunPage:
    """The page of runs that match the query."""
    where, values = _where(connection, query)
    (total,) = connection.execute(f"SELECT count(*) FROM runs WHERE {where}", values).fetchone()
    # Ids first: for most queries an index has all columns, and no skipped run is read.
    select_ids = (
        f"SELECT id FROM runs WHERE {where} ORDER BY {ORDERS[query.order]} LIMIT ? OFFSET ?"
    )
    ids = connection.execute(select_ids, (*values, query.limit, query.offset)).fetchall()
    rows = [_select_row(connection, "id", row["id"]) for row in ids]
    return RunPage(tuple(_summary(connection, row) for row in rows if row is not None), total)


def select_run(connection: sqlite3.Connection, run_id: str) -> RunSummary | None:
    """One run by its id; None for an unknown id."""
    row = _select_row(connection, "run_id", encode_text(run_id))
    return None if row is None else _summary(connection, row)


def select_choices(connection: sqlite3.Connection) -> RunChoices:
    """The names of the LLMs and drafters in the log's runs."""

    def names(table: str, column: str) -> tuple[str, ...]:
        usage = f"SELECT 1 FROM {table} WHERE {column} = models.id"
        rows = connection.execute(f"SELECT name FROM models WHERE EXISTS ({usage})")
        return tuple(sorted(decode_text(row["name"]) for row in rows))

    return RunChoices(names("runs", "llm"), names("run_drafters", "model"))


def _select_row(connection: sqlite3.Connection, column: str, value: Any) -> sqlite3.Row | None:
    query = f"SELECT {COLUMNS} FROM runs WHERE {column} = ?"
    row: sqlite3.Row | None = connection.execute(query, (value,)).fetchone()
    return row


def _where(connection: sqlite3.Connection, query: RunQuery) -> Condition:
    conditions = _field_conditions(connection, query)
    if words := _words(query.text):
        _fill_found(connection, words)
        conditions.append((IN_FOUND, ()))
    return _all_of(conditions)


def _all_of(conditions: list[Condition]) -> Condition:
    clause = " AND ".join(condition for condition, _ in conditions) or "1"
    return clause, tuple(value for _, values in conditions for value in values)


def _field_conditions(connection: sqlite3.Connection, query: RunQuery) -> list[Condition]:
    # A list sorted by a figure is to use this figure's index: `+` keeps SQLite from using another
    # index for a condition.
    no_index = "" if query.order in ("newest", "oldest") else "+"
    conditions: list[Condition] = []
    if query.status:
        conditions.append((f"{no_index}status = ?", (query.status,)))
    if query.owner is not None:
        conditions.append((f"{no_index}owner = ?", (encode_text(query.owner),)))
    if query.llm:
        conditions.append((f"{no_index}llm = ?", (_model_id(connection, query.llm),)))
    if query.drafter == NO_DRAFTER:
        conditions.append((DRAFTED_BY_NONE, ()))
    elif query.drafter:
        conditions.append((DRAFTED_BY, (_model_id(connection, query.drafter),)))
    if query.since_utc:
        conditions.append((f"{no_index}created_utc >= ?", (query.since_utc,)))
    if query.until_utc:
        conditions.append((f"{no_index}created_utc < ?", (query.until_utc,)))
    if query.noted:
        conditions.append((NOTED, ()))
    if query.alone:
        conditions.append((OF_NO_STUDY, ()))
    return conditions


def _model_id(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute(
        "SELECT id FROM models WHERE name = ?", (encode_text(name),)
    ).fetchone()
    return NO_MODEL if row is None else int(row["id"])


def _fill_found(connection: sqlite3.Connection, words: list[str]) -> None:
    for_index = [word for word in words if _is_indexed(word)]
    # Quoted: no word is an operator of FTS5. `*` makes a word a prefix.
    phrases = " ".join('"' + word.replace('"', '""') + '"*' for word in for_index)
    for_substring = [_strip_punctuation(word) for word in words]
    contains: list[Condition] = [
        (CONTAINS, (word,) * 3) for word in for_substring if not _is_plain(word)
    ]
    if not contains:
        select, values = IN_INDEX, tuple[Any, ...]((phrases,))
    else:
        # The index first: it leaves few texts to search for the substring.
        conditions = [(f"+id IN ({IN_INDEX})", (phrases,)), *contains] if for_index else contains
        where, values = _all_of(conditions)
        select = f"SELECT id FROM runs WHERE {where}"
    connection.execute(CREATE_FOUND)
    connection.execute(f"INSERT INTO found {select}", values)


def _words(text: str) -> list[str]:
    # SQLite ends a query string at a NUL, and cannot take a lone surrogate at all.
    clean = text.replace("\0", " ").encode("utf-8", "replace").decode()
    return [word[:MAX_WORD] for word in clean.split()[:MAX_WORDS]]


def _strip_punctuation(word: str) -> str:
    # A word of punctuation alone is unchanged.
    return word.strip(PUNCTUATION) or word


def _is_plain(word: str) -> bool:
    """Whether the index's answer is final. An indexed non-ASCII word with a separator is not
    searched as a substring: SQLite's lower() folds ASCII only."""
    has_separator = any(unicodedata.category(character)[0] not in "LNM" for character in word)
    return _is_indexed(word) and not (has_separator and word.isascii())


def _is_indexed(word: str) -> bool:
    """Whether the word is looked up in the index: it has letters or digits, and no letter of
    category Lo, as in Chinese, where words are not separated."""
    kinds = {unicodedata.category(character) for character in word}
    return "Lo" not in kinds and any(kind[0] in "LN" for kind in kinds)


def _summary(connection: sqlite3.Connection, row: sqlite3.Row) -> RunSummary:
    stats = decode_stats(row["stats_json"]) if row["stats_json"] is not None else None
    running = row["status"] == "running"
    return RunSummary(
        run_id=decode_text(row["run_id"]),
        created_utc=decode_text(row["created_utc"]),
        status=row["status"],
        prompt=decode_text(row["prompt"]),
        output=run_output(connection, row["id"]) if running else decode_text(row["output"]),
        llm=decode_text(row["llm_name"] or ""),
        drafters=tuple(from_json(row["drafters_json"])),
        config=from_json(row["config_json"]),
        seed=row["seed"],
        stats=stats,
        finish_reason=decode_text(row["finish_reason"]),
        error=decode_text(row["error"]),
        num_rounds=_num_rounds(connection, row["id"]) if stats is None else stats.num_rounds,
        owner=decode_text(row["owner"]),
        error_message=decode_text(row["error_message"]),
        num_lost_events=row["num_lost_events"],
        asked=from_json(row["asked_json"]),
        ssms=tuple(decode_text(name) for name in from_json(row["ssms_json"])),
        note=decode_text(row["note"]),
        thinned=bool(row["thinned"]),
        baseline=_baseline(row),
        regret=from_json(row["regret_json"]) if row["regret_json"] is not None else None,
        **_schedules(connection, row["id"]),
        elsewhere=running and decode_process(row) != Process.current(),
    )


def _schedules(connection: sqlite3.Connection, run: int) -> dict[str, Any]:
    rows = connection.execute(SCHEDULES, (run,)).fetchall()
    names = tuple(decode_text(name) for name, _ in rows if isinstance(name, str))
    live = max((most for _, most in rows if isinstance(most, int)), default=1)
    return {"schedules": names, "num_others": live - 1}


def _baseline(row: sqlite3.Row) -> PlainSpeed | None:
    rate = row["baseline_tokens_per_second"]
    if rate is None:
        return None
    blocks = tuple((plain, run) for plain, run in from_json(row["baseline_blocks_json"] or "[]"))
    names = decode_text(row["baseline_run_id"]), decode_text(row["baseline_note"])
    return PlainSpeed(rate, *names, blocks, bool(row["baseline_same_text"]))


def _num_rounds(connection: sqlite3.Connection, run: int) -> int:
    query = "SELECT count(*) FROM rounds WHERE run = ? AND completed_seq IS NOT NULL"
    (rounds,) = connection.execute(query, (run,)).fetchone()
    return int(rounds)
