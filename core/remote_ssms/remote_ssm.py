"""RemoteSsm: the engine's Drafter for an SSM on a drafter node."""

from __future__ import annotations

from collections.abc import Sequence

from core.drafters.base import DraftRequest
from core.errors import EngineError
from core.events import ModelInfo
from core.events.parts import Timed
from core.remote_ssms.messages import MOST_TOKENS
from core.sequence import TokenSequence
from core.trees.draft import Draft

__all__ = ["RemoteSsm"]


class RemoteSsm:
    """See Drafter (core/drafters/base.py)."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        # The node's reports, by run, so that no event waits for a round trip.
        self._temperatures: dict[str, float] = {}
        self._likelihoods: dict[str, list[float]] = {}

    @property
    def name(self) -> str:
        return self.info.name

    def open(self, sequence: TokenSequence) -> tuple[Timed, ...]:
        """Sends nothing: the first draft request brings the text."""
        self._temperatures[sequence.run_id] = 1.0
        return ()

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Raises EngineError."""
        raise EngineError(f"drafter {self.name} is on a node: RemotePool.begin requests its drafts")

    def commit(
        self, sequence: TokenSequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        """Sends nothing: the next request brings the tokens."""

    def close(self, sequence: TokenSequence) -> None:
        """Sends nothing: the text stays on the node until RemotePool.free."""
        self._temperatures.pop(sequence.run_id, None)
        self._likelihoods.pop(sequence.run_id, None)

    def temperature(self, sequence: TokenSequence) -> float:
        return self._temperatures.get(sequence.run_id, 1.0)

    def likelihoods(self, sequence: TokenSequence) -> list[float]:
        return self._likelihoods.pop(sequence.run_id, [])

    def observe(self, run: str, temperature: float, likelihoods: list[float]) -> None:
        """Records the node's report on a draft."""
        # The run of a late report may have ended.
        if run in self._temperatures:
            self._temperatures[run] = temperature
            so_far = self._likelihoods.setdefault(run, [])
            so_far += likelihoods
            # Bounded: not every run calls `likelihoods`.
            del so_far[:-MOST_TOKENS]
