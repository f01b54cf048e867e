"""Names and columns of the tables to which a run is written, and statements to write and read them.
Types and constraints are in migrations.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DRAFTS",
    "ROUND_TABLES",
    "RUNS",
    "RUN_DRAFTERS",
    "RUN_MODELS",
    "SCHEDULED_PARTS",
    "Row",
    "Rows",
    "TableColumns",
    "merge_rows",
]

# SQL for the first two values in `scheduled_json` of table `rounds`: the schedule and the number of
# live requests. Never edited: the migration m020_schedules indexes these expressions. NULL for JSON
# with NaN, which is not valid for SQLite.
SCHEDULED_PARTS = tuple(
    f"CASE WHEN json_valid(scheduled_json) THEN json_extract(scheduled_json, '$[{index}]') END"
    for index in (0, 1)
)

Row = tuple[Any, ...]
Rows = dict[str, list[Row]]  # table name -> rows in the table's column order


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table, and the columns that an insertion fills, in the order of the inserted values.

    The first `keys` columns identify a row; rows are read in the order of these columns.
    """

    name: str
    columns: tuple[str, ...]
    keys: int

    def insert(self, num_rows: int = 1) -> str:
        """The statement that inserts `num_rows` rows, their values one after another."""
        row = f"({', '.join('?' * len(self.columns))})"
        rows = ", ".join([row] * num_rows)
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES {rows}"

    @property
    def select(self) -> str:
        """The statement that reads all rows of the run with a given key, in order."""
        order = ", ".join(self.columns[: self.keys])
        return f"SELECT * FROM {self.name} WHERE {self.columns[0]} = ? ORDER BY {order}"

    def row(self, values: Mapping[str, Any]) -> Row:
        """`values` in column order; None for a column without a value. Raises KeyError for an
        unknown column."""
        unknown = values.keys() - set(self.columns)
        if unknown:
            raise KeyError(f"{self.name} has no column {sorted(unknown)[0]}")
        return tuple(values.get(column) for column in self.columns)


def _table(name: str, columns: str, keys: int) -> TableColumns:
    return TableColumns(name, tuple(columns.split()), keys)


RUNS = _table(
    "runs",
    """run_id status created_utc owner prompt seed dtype device queue_ms config_json asked_json
    versions_json warnings_json drafters_json prompt_token_ids_json prompt_texts_json start_seq
    start_at_ms host pid process_start llm offload_json ranks_json""",
    keys=1,
)
RUN_MODELS = _table(
    "run_models",
    "run ordinal model role parameters architecture vocab_size context_length dtype device"
    " fingerprint",
    keys=2,
)
RUN_DRAFTERS = _table("run_drafters", "run ordinal model", keys=2)
ROUNDS = _table(
    "rounds",
    """run round drafted_seq drafted_at_ms combined_seq combined_at_ms verified_seq verified_at_ms
    completed_seq completed_at_ms root_token_id root_text dropped_json num_nodes tree_depth
    rule path_json own_token_id own_text own_kind own_probability position num_new_tokens
    num_accepted num_cut speculation_length next_speculation_length weights_json temperatures_json
    kv_used kv_capacity combine_rule combine_weights_json masses_json dropped_masses_json winner
    length_reason estimates_json predicted_ms ahead_json notes_json between_ms
    routing_json routing_reason origins_json scheduled_json loads_json nodes_json traffic_json""",
    keys=2,
)
DRAFTS = _table(
    "drafts", "run round ordinal model drafted_ahead num_tokens tokens_json spans_json", keys=3
)
NODES = _table("nodes", "run round node parent depth token_id text outcome llm_probability", keys=3)
PROPOSALS = _table("proposals", "run round node ordinal model score q rank", keys=4)
TRIALS = _table("trials", "run round ordinal node model p q accepted", keys=3)
TOP_K = _table(
    "top_k",
    "run round ordinal node source token_ids_json texts_json probabilities_json",
    keys=3,
)
TOKENS = _table("tokens", "run round ordinal position token_id text text_delta source", keys=3)
SPANS = _table("spans", "run round ordinal lane name start_ms end_ms share", keys=3)

# A table comes after the tables that its foreign keys point to.
ROUND_TABLES = (ROUNDS, DRAFTS, NODES, PROPOSALS, TRIALS, TOP_K, TOKENS, SPANS)


def merge_rows(parts: Iterable[Rows]) -> Rows:
    """Concatenates the rows of many rounds table by table, in the order of the rounds."""
    merged: Rows = {table.name: [] for table in ROUND_TABLES}
    for rows in parts:
        for name, values in rows.items():
            merged[name] += values
    return merged
