"""Pending: what a model's row holds behind its committed text, as a trie, with the logits after it.

A place is an index among the row's pending nodes; ROOT is the last committed token. Knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import torch

from core.trees.tree import ROOT

__all__ = ["Pending"]


class Pending:
    """Starts with nothing fed; `root` are the logits (V,) after the last committed token."""

    def __init__(self, root: torch.Tensor | None = None) -> None:
        self.logits: dict[int, torch.Tensor] = {} if root is None else {ROOT: root}
        self._parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    @property
    def root(self) -> torch.Tensor | None:
        """The logits (V,) after the last committed token; None as long as the row lacks text."""
        return self.logits.get(ROOT)

    def __len__(self) -> int:
        return len(self._parents)

    def add(self, token_ids: Many[int], parents: Many[int], logits: torch.Tensor) -> list[int]:
        """Nodes that were fed, with their logits (n, V); returns their places."""
        first = len(self)
        places = list(range(first, first + len(token_ids)))
        for place, token_id, parent in zip(places, token_ids, parents, strict=True):
            self._parents.append(parent)
            # A token drawn twice is fed twice: the first is followed.
            self._children.setdefault((parent, token_id), place)
        self.logits.update(zip(places, logits, strict=True))
        return places

    def child(self, place: int, token_id: int) -> int | None:
        """Where `token_id` under `place` is; None if it was not fed."""
        return self._children.get((place, token_id))

    def walk(self, token_ids: Many[int]) -> list[int]:
        """The places along `token_ids` from the root down, as far as they were fed."""
        places = [ROOT]
        for token_id in token_ids:
            place = self._children.get((places[-1], token_id))
            if place is None:
                break
            places.append(place)
        return places[1:]

    def missing(self, paths: Many[Many[int]]) -> tuple[list[int], list[int], list[int]]:
        """What must be fed to have been fed all of `paths`: token ids and parents' places, as
        `add` takes them; and where each path will end."""
        token_ids: list[int] = []
        parents: list[int] = []
        ends = []
        planned: dict[tuple[int, int], int] = {}
        for path in paths:
            place = ROOT
            for token_id in path:
                found = self._children.get((place, token_id), planned.get((place, token_id)))
                if found is None:
                    found = planned[place, token_id] = len(self) + len(token_ids)
                    token_ids.append(token_id)
                    parents.append(place)
                place = found
            ends.append(place)
        return token_ids, parents, ends

    def behind(self, path: Many[int]) -> tuple[list[int], dict[int, int], Pending]:
        """What hangs under the last node of `path`, once the path is committed: the places that
        stay, each old place's new one (the path's last becomes ROOT), and the trie of them."""
        number = {path[-1]: ROOT}
        stay: list[int] = []
        for place, parent in enumerate(self._parents):
            if parent in number:
                number[place] = len(stay)
                stay.append(place)
        rest = Pending(self.logits[path[-1]])
        rest._parents = [number[self._parents[place]] for place in stay]
        rest.logits.update({number[place]: self.logits[place] for place in stay})
        rest._children = {
            (number[parent], token_id): number[place]
            for (parent, token_id), place in self._children.items()
            if place in number and parent in number
        }
        return stay, number, rest
