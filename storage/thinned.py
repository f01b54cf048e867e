"""Makes the rows of thinned rounds readable for round_decoder.py.

A thinned round keeps the nodes on its accepted path with their old numbers and their proposals.
Here the nodes are renumbered from 0, and each draft's tokens on the path are restored from its
proposals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from storage.codec import Fields, decode_number, decode_text, from_json, to_json
from storage.round_encoder import TOKEN_FIELDS

__all__ = ["THINNED", "restore_thinned"]

THINNED = (
    "Only the accepted paths of this run were kept: rejected and unreached nodes, trials and top-k "
    "lists were removed to save space. Figures, text, tokens and times are those of the whole run."
)

Rows = dict[str, list[Fields]]


def restore_thinned(rows: Mapping[str, Iterable[Fields]]) -> Rows:
    """A run's rows by table, with the nodes of its thinned rounds renumbered."""
    all_rows: Rows = {name: list(values) for name, values in rows.items()}
    thinned = {row["round"] for row in all_rows["rounds"] if row["thinned"]}
    if not thinned:
        return all_rows
    rounds = {number: _ThinnedRound() for number in thinned}
    for name, values in all_rows.items():
        for row in values:
            if row["round"] in thinned:
                rounds[row["round"]].rows[name].append(row)
    restored = {number: one_round.restore() for number, one_round in rounds.items()}
    for name, values in all_rows.items():
        full_rows = [row for row in values if row["round"] not in thinned]
        all_rows[name] = full_rows + [
            row for one_round in restored.values() for row in one_round.get(name, ())
        ]
    return all_rows


class _ThinnedRound:
    def __init__(self) -> None:
        self.rows: dict[str, list[Fields]] = defaultdict(list)

    def restore(self) -> Mapping[str, list[Fields]]:
        number = {row["node"]: i for i, row in enumerate(self.rows["nodes"])}
        nodes: list[Fields] = [
            _with(row, node=number[row["node"]], parent=number.get(row["parent"], -1))
            for row in self.rows["nodes"]
        ]
        proposals: list[Fields] = [
            _with(row, node=number[row["node"]]) for row in self.rows["proposals"]
        ]
        changed: dict[str, list[Fields]] = {
            "nodes": nodes,
            "proposals": proposals,
            "drafts": self._drafts(nodes, proposals),
            "rounds": [_path(row, number) for row in self.rows["rounds"]],
        }
        return {**self.rows, **changed}

    def _drafts(self, nodes: list[Fields], proposals: list[Fields]) -> list[Fields]:
        by_model: dict[int, list[Fields]] = defaultdict(list)
        for row in proposals:
            by_model[row["model"]].append(row)
        return [
            _with(row, tokens_json=to_json(_tokens(nodes, by_model.pop(row["model"], []))))
            for row in self.rows["drafts"]
        ]


def _tokens(nodes: list[Fields], proposals: list[Fields]) -> dict[str, list[Any]]:
    """One drafter's remaining proposals, in the form of a draft's tokens."""
    columns: dict[str, list[Any]] = {name: [] for name in TOKEN_FIELDS}
    # By node: the index of its proposal in the draft.
    indices: dict[int, int] = {-1: -1}
    for i, row in enumerate(proposals):
        node = nodes[row["node"]]
        # If a drafter proposed a node several times, its first proposal is the parent of the next
        # tokens.
        indices.setdefault(row["node"], i)
        entry = (
            node["token_id"],
            decode_text(node["text"]),
            indices.get(node["parent"], -1),
            node["depth"],
            decode_number(row["score"]),
            decode_number(row["q"]),
            row["rank"],
        )
        for name, value in zip(TOKEN_FIELDS, entry, strict=True):
            columns[name].append(value)
    return columns


def _path(row: Fields, number: Mapping[int, int]) -> Fields:
    origins = _origins(row, number)
    if row["path_json"] is None:  # the run's end came before the verdict
        return _with(row, origins_json=origins)
    path = [number[node] for node in from_json(row["path_json"]) if node in number]
    return _with(row, path_json=to_json(path), origins_json=origins)


def _origins(row: Fields, number: Mapping[int, int]) -> str:
    # The stored column has an entry for each node of the complete tree.
    origins = from_json(row["origins_json"] or "[]")
    return to_json([origins[node] for node in number if node < len(origins)])


def _with(row: Fields, **changed: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict(row)  # type: ignore[call-overload]
    return values | changed
