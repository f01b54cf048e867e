"""The schema of the run log, one function for each migration. A released migration is never edited.

UTC is ISO text; a run's times are *_ms REAL; values without a native type are JSON in *_json
columns. NaN is stored as NULL: REAL columns of probabilities and times allow NULL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import cast

from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

from storage import figures, views, views_fused, views_shared
from storage.search_index import create_index
from storage.tables import SCHEDULED_PARTS

__all__ = ["migrations"]

STRICT_SINCE = (3, 37, 0)

# The file stores this name and the names of the functions that have run: none may change.
migrations = Migrations("specscope")


def _create(db: Database, *, without_rowid: bool = False, **tables: str) -> None:
    """Creates tables. `without_rowid`: for tables of narrow rows."""
    strict = ["STRICT"] if sqlite3.sqlite_version_info >= STRICT_SINCE else []
    options = ", ".join(strict + ["WITHOUT ROWID"] * without_rowid)
    for name, columns in tables.items():
        db.execute(f"CREATE TABLE {name} ({columns}) {options}")


def _create_views(db: Database, named: Iterable[tuple[str, str]]) -> None:
    for name, select in named:
        db.create_view(name, select)


@migrations()
def m001_runs(db: Database) -> None:
    """A run, its request and its end; `host`, `pid`, `process_start`: the recording process.

    AUTOINCREMENT: a deleted run's key must not be reused while rounds of the run are still written.
    """
    _create(
        db,
        models="id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE",
        runs="""
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run_id TEXT NOT NULL UNIQUE,
            status TEXT NOT NULL,
            created_utc TEXT NOT NULL,
            owner TEXT NOT NULL,
            prompt TEXT NOT NULL,
            output TEXT NOT NULL DEFAULT '',
            seed INTEGER NOT NULL,
            dtype TEXT NOT NULL,
            device TEXT NOT NULL,
            queue_ms REAL,
            config_json TEXT NOT NULL,
            asked_json TEXT NOT NULL,
            versions_json TEXT NOT NULL,
            warnings_json TEXT NOT NULL,
            drafters_json TEXT NOT NULL,
            prompt_token_ids_json TEXT NOT NULL,
            prompt_texts_json TEXT NOT NULL,
            start_seq INTEGER NOT NULL,
            start_at_ms REAL,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            process_start TEXT NOT NULL,
            num_lost_events INTEGER NOT NULL DEFAULT 0,
            end_seq INTEGER,
            end_at_ms REAL,
            finish_reason TEXT NOT NULL DEFAULT '',
            text_tail TEXT NOT NULL DEFAULT '',
            error TEXT NOT NULL DEFAULT '',
            error_message TEXT NOT NULL DEFAULT '',
            stats_json TEXT
        """,
        run_models="""
            run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
            ordinal INTEGER NOT NULL,
            model INTEGER NOT NULL REFERENCES models(id),
            role TEXT NOT NULL,
            parameters INTEGER NOT NULL,
            architecture TEXT NOT NULL,
            vocab_size INTEGER NOT NULL,
            context_length INTEGER NOT NULL,
            dtype TEXT NOT NULL,
            device TEXT NOT NULL,
            PRIMARY KEY (run, ordinal)
        """,
    )
    # m009 replaces these indexes with indexes that have more columns.
    db.execute("CREATE INDEX runs_created ON runs(created_utc, id)")
    db.execute("CREATE INDEX runs_status ON runs(status)")
    db.execute("CREATE INDEX runs_owner ON runs(owner)")


@migrations()
def m002_rounds(db: Database) -> None:
    """The data of each round. `completed_seq` is NULL in a round that the run's end cut off.

    `node` numbers the nodes of a tree (-1: the root); `ordinal` is the position in the event's own
    order.
    """
    _create(
        db,
        rounds="""
            run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
            round INTEGER NOT NULL,
            drafted_seq INTEGER, drafted_at_ms REAL,
            combined_seq INTEGER, combined_at_ms REAL,
            verified_seq INTEGER, verified_at_ms REAL,
            completed_seq INTEGER, completed_at_ms REAL,
            root_token_id INTEGER, root_text TEXT, dropped_json TEXT,
            num_nodes INTEGER, tree_depth INTEGER,
            rule TEXT, path_json TEXT,
            own_token_id INTEGER, own_text TEXT, own_kind TEXT, own_probability REAL,
            position INTEGER, num_new_tokens INTEGER, num_accepted INTEGER, num_cut INTEGER,
            speculation_length INTEGER, next_speculation_length INTEGER,
            weights_json TEXT, temperatures_json TEXT,
            kv_used INTEGER, kv_capacity INTEGER,
            PRIMARY KEY (run, round)
        """,
    )
    key = "run INTEGER NOT NULL, round INTEGER NOT NULL, ordinal INTEGER NOT NULL"
    of_round = "FOREIGN KEY (run, round) REFERENCES rounds(run, round) ON DELETE CASCADE"
    _create(
        db,
        drafts=f"""{key}, model INTEGER NOT NULL REFERENCES models(id),
            drafted_ahead INTEGER NOT NULL, num_tokens INTEGER NOT NULL,
            tokens_json TEXT NOT NULL, spans_json TEXT NOT NULL,
            PRIMARY KEY (run, round, ordinal), {of_round}""",
        top_k=f"""{key}, node INTEGER NOT NULL, source TEXT NOT NULL,
            token_ids_json TEXT NOT NULL, texts_json TEXT NOT NULL,
            probabilities_json TEXT NOT NULL,
            PRIMARY KEY (run, round, ordinal), {of_round}""",
    )
    _create(
        db,
        without_rowid=True,
        nodes=f"""run INTEGER NOT NULL, round INTEGER NOT NULL, node INTEGER NOT NULL,
            parent INTEGER NOT NULL, depth INTEGER NOT NULL,
            token_id INTEGER NOT NULL, text TEXT NOT NULL,
            outcome TEXT, llm_probability REAL,
            PRIMARY KEY (run, round, node), {of_round}""",
        proposals="""run INTEGER NOT NULL, round INTEGER NOT NULL, node INTEGER NOT NULL,
            ordinal INTEGER NOT NULL, model INTEGER NOT NULL REFERENCES models(id),
            score REAL, q REAL, rank INTEGER NOT NULL,
            PRIMARY KEY (run, round, node, ordinal),
            FOREIGN KEY (run, round, node) REFERENCES nodes(run, round, node) ON DELETE CASCADE""",
        trials=f"""{key}, node INTEGER NOT NULL, model INTEGER NOT NULL REFERENCES models(id),
            p REAL, q REAL, accepted INTEGER NOT NULL,
            PRIMARY KEY (run, round, ordinal), {of_round}""",
        tokens=f"""{key}, position INTEGER NOT NULL, token_id INTEGER NOT NULL,
            text TEXT NOT NULL, text_delta TEXT NOT NULL, source TEXT NOT NULL,
            PRIMARY KEY (run, round, ordinal), {of_round}""",
        spans=f"""{key}, lane TEXT NOT NULL, name TEXT NOT NULL, start_ms REAL, end_ms REAL,
            PRIMARY KEY (run, round, ordinal), {of_round}""",
    )


@migrations()
def m003_search(db: Database) -> None:
    """Full-text search over prompt and output, updated by triggers."""
    cast("Table", db["runs"]).enable_fts(["prompt", "output"], create_triggers=True)


@migrations()
def m004_views(db: Database) -> None:
    """Views with each run's figures, for other programs that open the file."""
    _create_views(db, views.M004)


@migrations()
def m005_minions(db: Database) -> None:
    """Votes, length policies and drafting ahead; NULL in the rounds of older runs."""
    texts = "combine_rule combine_weights_json masses_json dropped_masses_json winner"
    # SQLite can add only columns that allow NULL or have a default: older rows have no values.
    for column in f"{texts} length_reason estimates_json ahead_json notes_json".split():
        db.execute(f"ALTER TABLE rounds ADD COLUMN {column} TEXT")
    db.execute("ALTER TABLE rounds ADD COLUMN predicted_ms REAL")


@migrations()
def m006_overlap(db: Database) -> None:
    """`overlap_ratio` also counts drafting that ran during LLM passes for other requests."""
    # SQLite cannot alter a view.
    db.execute("DROP VIEW run_summary")
    _create_views(db, views.M006)


@migrations()
def m007_studies(db: Database) -> None:
    """Studies; `run_id` names a cell's run, which may be deleted."""
    _create(
        db,
        studies="""
            id INTEGER PRIMARY KEY,
            study_id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            title TEXT NOT NULL,
            state TEXT NOT NULL DEFAULT 'running',
            reason TEXT NOT NULL DEFAULT '',
            created_utc TEXT NOT NULL,
            owner TEXT NOT NULL,
            total INTEGER NOT NULL,
            study_json TEXT NOT NULL,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            process_start TEXT NOT NULL
        """,
        study_cells="""
            id INTEGER PRIMARY KEY,
            study INTEGER NOT NULL REFERENCES studies(id) ON DELETE CASCADE,
            contestant TEXT NOT NULL,
            item TEXT NOT NULL,
            repeat INTEGER NOT NULL,
            run_id TEXT NOT NULL,
            result_json TEXT NOT NULL,
            UNIQUE (study, contestant, item, repeat)
        """,
    )
    db.execute("CREATE INDEX study_cells_run ON study_cells(run_id)")


@migrations()
def m008_notes(db: Database) -> None:
    """A visitor's note on a run, also in the full-text index."""
    db.execute("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''")
    # A partial index, for lists of the runs with a note.
    db.execute("CREATE INDEX runs_noted ON runs(created_utc, id) WHERE note <> ''")
    create_index(db, ("prompt", "output", "note"))
    # For substring searches: a scan of this index reads the texts only.
    db.execute("CREATE INDEX runs_texts ON runs(prompt, output, note)")


@migrations()
def m009_lists(db: Database) -> None:
    """Columns and indexes for sorting and filtering lists of thousands of runs."""
    _create(
        db,
        without_rowid=True,
        run_drafters="""
            run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
            ordinal INTEGER NOT NULL,
            model INTEGER NOT NULL REFERENCES models(id),
            PRIMARY KEY (run, ordinal)
        """,
    )
    db.execute("CREATE INDEX run_drafters_model ON run_drafters(model, run)")
    db.execute("ALTER TABLE runs ADD COLUMN llm INTEGER REFERENCES models(id)")
    db.execute(
        "UPDATE runs SET llm = (SELECT model FROM run_models"
        " WHERE run = runs.id AND role = 'llm' ORDER BY ordinal LIMIT 1)"
    )
    for name in ("num_new_tokens INTEGER", "num_rounds INTEGER"):
        db.execute(f"ALTER TABLE runs ADD COLUMN {name}")
    for name in ("tokens_per_second REAL", "mean_acceptance_length REAL"):
        db.execute(f"ALTER TABLE runs ADD COLUMN {name}")
    figures.fill(db.conn)  # runs that were recorded before
    for name in ("runs_created", "runs_status", "runs_owner"):
        db.execute(f"DROP INDEX {name}")
    # A list that is filtered only by these columns is counted in an index.
    rest = "status, owner, llm"
    db.execute(f"CREATE INDEX runs_created ON runs(created_utc, id, {rest})")
    db.execute("CREATE INDEX runs_status ON runs(status, created_utc, id, owner, llm)")
    db.execute("CREATE INDEX runs_owner ON runs(owner, created_utc, id, status, llm)")
    db.execute("CREATE INDEX runs_llm ON runs(llm, created_utc, id, status, owner)")
    for figure in figures.FIGURES:
        db.execute(f"CREATE INDEX runs_{figure} ON runs({figure}, created_utc, id, {rest})")
    db.execute("DROP VIEW run_summary")
    _create_views(db, views.M009)


@migrations()
def m010_thinning(db: Database) -> None:
    """Thinning of old runs to their accepted paths."""
    _create(db, settings="name TEXT PRIMARY KEY, value_json TEXT NOT NULL")
    # In `runs`: 0 whole, 1 partly thinned, 2 thinned. In `rounds`: 0 whole, 1 thinned.
    db.execute("ALTER TABLE runs ADD COLUMN thinned INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE rounds ADD COLUMN thinned INTEGER NOT NULL DEFAULT 0")
    # For a draft of a thinned round: how many nodes it proposed, how many of these nodes had a
    # score, and the sum of the scores.
    for column in ("num_nodes INTEGER", "num_scored INTEGER", "sum_scores REAL"):
        db.execute(f"ALTER TABLE drafts ADD COLUMN {column}")
    # A partial index, for finding the runs that are not yet thinned completely.
    db.execute("CREATE INDEX runs_whole ON runs(created_utc, id, status) WHERE thinned < 2")
    db.execute("DROP VIEW ssm_scoreboard")
    _create_views(db, views.M010)


@migrations()
def m011_seen(db: Database) -> None:
    """The last heartbeat of a study's process, in seconds since 1970."""
    db.execute("ALTER TABLE studies ADD COLUMN seen_at REAL NOT NULL DEFAULT 0")


@migrations()
def m012_baselines(db: Database) -> None:
    """The speed of plain decoding for a run's speed-up; the run that measured it may be deleted."""
    db.execute("ALTER TABLE runs ADD COLUMN baseline_run_id TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE runs ADD COLUMN baseline_tokens_per_second REAL")
    db.execute("ALTER TABLE runs ADD COLUMN baseline_note TEXT NOT NULL DEFAULT ''")


@migrations()
def m013_shares(db: Database) -> None:
    """The part of a span that counts for its lane; 1 in older runs, whose SSMs drafted one after
    another."""
    db.execute("ALTER TABLE spans ADD COLUMN share REAL NOT NULL DEFAULT 1.0")
    for name in ("span_times", "ssm_scoreboard"):
        db.execute(f"DROP VIEW {name}")
    _create_views(db, views_shared.M013)


@migrations()
def m014_between(db: Database) -> None:
    """The time between a round's stages; 0 if it was not measured, as in older rounds."""
    db.execute("ALTER TABLE rounds ADD COLUMN between_ms REAL DEFAULT 0.0")


@migrations()
def m015_fingerprints(db: Database) -> None:
    """A digest of each model's weights; empty in older runs."""
    db.execute("ALTER TABLE run_models ADD COLUMN fingerprint TEXT NOT NULL DEFAULT ''")


@migrations()
def m016_routing(db: Database) -> None:
    """The role and the score of a routed run's SSMs in each round, and the router's reason; empty
    in older runs."""
    db.execute("ALTER TABLE rounds ADD COLUMN routing_json TEXT DEFAULT '[]'")
    db.execute("ALTER TABLE rounds ADD COLUMN routing_reason TEXT DEFAULT ''")


@migrations()
def m017_fusion(db: Database) -> None:
    """The drafter that proposed each node of a tree with fused drafts; empty for older trees."""
    db.execute("ALTER TABLE rounds ADD COLUMN origins_json TEXT DEFAULT '[]'")


@migrations()
def m018_scheduling(db: Database) -> None:
    """A request's part in a round that was scheduled with other requests; NULL with the schedule
    `each`, and in older runs."""
    db.execute("ALTER TABLE rounds ADD COLUMN scheduled_json TEXT")


@migrations()
def m019_own_tokens(db: Database) -> None:
    """In a fused draft, tokens that were only fed to an SSM do not count as drafted or proposed by
    this SSM. Rounds that were thinned before keep their counts: the ranks of their tokens are
    gone."""
    db.execute(
        f"UPDATE drafts SET num_tokens = {views_fused.NUM_OWN_TOKENS} WHERE (run, round) IN ("
        " SELECT run, round FROM rounds WHERE thinned = 0 AND coalesce(origins_json, '[]') <> '[]')"
    )
    db.execute("DROP VIEW ssm_scoreboard")
    _create_views(db, views_fused.M019)


@migrations()
def m020_schedules(db: Database) -> None:
    """An index for lists that show how a run's rounds were scheduled."""
    # An index of expressions: both values are inside the JSON of a column.
    rule, live = SCHEDULED_PARTS
    db.execute(
        f"CREATE INDEX rounds_scheduled ON rounds (run, {rule}, {live})"
        " WHERE scheduled_json IS NOT NULL"
    )


@migrations()
def m021_offload(db: Database) -> None:
    """How the layers of a run's LLM were streamed, and when they were read in each round; NULL if
    no layers were streamed, as in older runs."""
    db.execute("ALTER TABLE runs ADD COLUMN offload_json TEXT")
    db.execute("ALTER TABLE rounds ADD COLUMN loads_json TEXT")


@migrations()
def m022_nodes(db: Database) -> None:
    """Each round's requests to drafter nodes; NULL without requests, as in older runs."""
    db.execute("ALTER TABLE rounds ADD COLUMN nodes_json TEXT")


@migrations()
def m023_ranks(db: Database) -> None:
    """How a run's LLM was divided among processes, and their traffic in each round; NULL if one
    process held the whole LLM, as in older runs."""
    db.execute("ALTER TABLE runs ADD COLUMN ranks_json TEXT")
    db.execute("ALTER TABLE rounds ADD COLUMN traffic_json TEXT")


@migrations()
def m024_blocks(db: Database) -> None:
    """Pairs of speeds, plain decoding's and the run's, if the two were measured in turns."""
    db.execute("ALTER TABLE runs ADD COLUMN baseline_blocks_json TEXT")


@migrations()
def m025_same_text(db: Database) -> None:
    """Whether plain decoding wrote the same text as the run; 0 also if the texts were not
    compared, as for older runs."""
    db.execute("ALTER TABLE runs ADD COLUMN baseline_same_text INTEGER NOT NULL DEFAULT 0")


@migrations()
def m026_regret(db: Database) -> None:
    """A routed run's regret; NULL if it was not counted, as for older runs."""
    db.execute("ALTER TABLE runs ADD COLUMN regret_json TEXT")
