"""Retention: thins all but the newest runs to their accepted paths, in portions.

A portion is one short transaction: other writers wait only a moment. Progress is stored in the
rows: any process can continue. Runs that lost events are not thinned. Runs without a recorded end
are not thinned: their figures are counted from their trees.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from storage.codec import from_json, to_json
from storage.database import connect
from storage.tables import DRAFTS
from storage.views_fused import OWN_PROPOSAL

__all__ = [
    "MOST_KEPT",
    "release_pages",
    "read_retention",
    "thin_some",
    "upkeep",
    "write_retention",
]

MOST_KEPT = 10**9
"""The largest `keep` of `write_retention`."""
# Seconds after which a transaction begins no further group of ROUNDS_AT_ONCE rounds.
PORTION_S = 0.02
ROUNDS_AT_ONCE = 32
PAGES_AT_ONCE = 256
PAGES_LEFT = 256  # free pages that stay in the file: new rounds need them soon
# The answer of `PRAGMA auto_vacuum` for INCREMENTAL.
INCREMENTAL = 2
RETENTION = "retention"


# -- the setting --


def read_retention(connection: sqlite3.Connection) -> int | None:
    """How many runs keep their trees; None for all."""
    query = "SELECT value_json FROM settings WHERE name = ?"
    row = connection.execute(query, (RETENTION,)).fetchone()
    keep: int | None = None if row is None else from_json(row["value_json"])
    return keep


def write_retention(connection: sqlite3.Connection, keep: int | None) -> None:
    """Sets how many runs keep their trees."""
    query = "INSERT OR REPLACE INTO settings (name, value_json) VALUES (?, ?)"
    connection.execute(query, (RETENTION, to_json(keep)))


# -- thinning --


def thin_some(connection: sqlite3.Connection, keep: int) -> int | None:
    """Thins until PORTION_S seconds have passed or nothing is left to thin. Returns the number of
    runs that this call finished; None if there was nothing to do."""
    num_thinned = 0
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        end = time.monotonic() + PORTION_S  # waiting for the lock does not count
        if (run := _oldest_run(connection, keep)) is None:
            return None
        while run is not None:
            num_thinned += _thin_rounds(connection, run)
            run = _oldest_run(connection, keep) if time.monotonic() < end else None
    return num_thinned


def _oldest_run(connection: sqlite3.Connection, keep: int) -> int | None:
    """The key of the oldest run to thin; None if no run is left to thin."""
    older, values = "1", tuple[object, ...]()
    if keep:
        query = "SELECT created_utc, id FROM runs ORDER BY created_utc DESC, id DESC"
        oldest_kept = connection.execute(f"{query} LIMIT 1 OFFSET ?", (keep - 1,)).fetchone()
        if oldest_kept is None:  # fewer than `keep` runs
            return None
        older, values = "(created_utc, id) < (?, ?)", tuple(oldest_kept)
    row = connection.execute(
        "SELECT id FROM runs WHERE thinned < 2 AND num_lost_events = 0"
        f" AND status IN ('completed', 'cancelled', 'failed') AND {older}"
        " ORDER BY created_utc, id LIMIT 1",
        values,
    ).fetchone()
    return None if row is None else int(row["id"])


def _thin_rounds(connection: sqlite3.Connection, run: int) -> bool:
    """Thins the next rounds of a run; True if no round is left."""
    rows = connection.execute(
        "SELECT round, path_json, masses_json FROM rounds"
        " WHERE run = ? AND thinned = 0 ORDER BY round LIMIT ?",
        (run, ROUNDS_AT_ONCE),
    ).fetchall()
    all_thinned = len(rows) < ROUNDS_AT_ONCE
    if rows:
        rounds = (run, rows[0]["round"], rows[-1]["round"])
        _replace_tokens_by_counts(connection, rounds)
        _delete_nodes(connection, rounds)
        _clear_node_data(connection, run, rows)
    connection.execute("UPDATE runs SET thinned = ? WHERE id = ?", (2 if all_thinned else 1, run))
    return all_thinned


RoundRange = tuple[int, int, int]  # run, first round, last round
WITHIN = "run = ? AND round BETWEEN ? AND ?"


def _replace_tokens_by_counts(connection: sqlite3.Connection, rounds: RoundRange) -> None:
    """Replaces each draft's tokens by three numbers: how many nodes it proposed, how many of these
    nodes had a score, and the sum of the scores.

    The rows are deleted and inserted: SQLite does not shrink the pages of updated rows.
    """
    totals = connection.execute(
        "SELECT round, model, count(*) AS nodes, count(score) AS scored, sum(score) AS total FROM ("
        " SELECT round, model, score, row_number() OVER ("
        " PARTITION BY round, node, model) AS place FROM proposals JOIN rounds USING (run, round)"
        f" WHERE {OWN_PROPOSAL.format(proposals='proposals')} AND {WITHIN}"
        ") WHERE place = 1 GROUP BY round, model",
        rounds,
    )
    counts = {(row[0], row[1]): tuple(row)[2:] for row in totals}
    drafts = connection.execute(
        f"SELECT {', '.join(DRAFTS.columns)} FROM drafts WHERE {WITHIN} ORDER BY round, ordinal",
        rounds,
    ).fetchall()
    rows = []
    for draft in drafts:
        emptied = [*draft]
        emptied[DRAFTS.columns.index("tokens_json")] = "{}"
        rows.append((*emptied, *counts.pop((draft["round"], draft["model"]), (0, 0, 0.0))))
    connection.execute(f"DELETE FROM drafts WHERE {WITHIN}", rounds)
    names = ", ".join((*DRAFTS.columns, "num_nodes", "num_scored", "sum_scores"))
    marks = ", ".join("?" * (len(DRAFTS.columns) + 3))
    connection.executemany(f"INSERT INTO drafts ({names}) VALUES ({marks})", rows)


def _delete_nodes(connection: sqlite3.Connection, rounds: RoundRange) -> None:
    for table in ("trials", "top_k"):
        connection.execute(f"DELETE FROM {table} WHERE {WITHIN}", rounds)
    path = f"SELECT round, value FROM rounds, json_each(path_json) WHERE {WITHIN}"
    # Proposals first: else the foreign key would delete each node's proposals one by one.
    for table in ("proposals", "nodes"):
        connection.execute(
            f"DELETE FROM {table} WHERE {WITHIN} AND (round, node) NOT IN ({path})",
            (*rounds, *rounds),
        )


def _clear_node_data(connection: sqlite3.Connection, run: int, rows: Sequence[sqlite3.Row]) -> None:
    """Marks rounds as thinned, and removes data about nodes that are gone."""
    query = "UPDATE rounds SET thinned = 1, masses_json = ? WHERE run = ? AND round = ?"
    weight_rows = [(_masses(row), run, row["round"]) for row in rows]
    connection.executemany(query, weight_rows)
    rounds = (run, rows[0]["round"], rows[-1]["round"])
    for name in ("dropped_json", "dropped_masses_json"):
        connection.execute(
            f"UPDATE rounds SET {name} = '[]' WHERE {WITHIN} AND {name} IS NOT NULL", rounds
        )


def _masses(row: sqlite3.Row) -> str | None:
    if row["masses_json"] is None:
        return None
    masses, path = from_json(row["masses_json"]), from_json(row["path_json"] or "[]")
    # `masses` is indexed by node; only the masses of accepted nodes stay, in node order.
    return to_json([masses[node] for node in sorted(path) if node < len(masses)])


# -- space, and the upkeep of an idle log --


def release_pages(connection: sqlite3.Connection) -> bool:
    """Truncates some free pages of the file; False if there are few or the file cannot shrink."""
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    if mode != INCREMENTAL or free <= PAGES_LEFT:
        return False
    pages = min(PAGES_AT_ONCE, free - PAGES_LEFT)
    # Not `execute`, which would free a single page.
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")
    return True


def upkeep(path: Path) -> bool:
    """A small part of the maintenance of the log at `path`: thinning, if the log's setting asks for
    it, then returning free pages to the disk. True if more may be left to do. Raises sqlite3.Error.
    """
    # Other writers go first: nothing here is urgent.
    with closing(connect(path, timeout=0)) as connection:
        keep = read_retention(connection)
        if keep is not None and thin_some(connection, keep) is not None:
            return True
        return release_pages(connection)
