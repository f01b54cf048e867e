"""BatchTimes: predicts the time of passes and drafts for several requests at once, and whether a
pass fits in memory."""

from __future__ import annotations

import math

from core.models.kv_cache import UNCHECKED_BYTES
from core.models.machine import available_bytes
from core.scheduling.base import BatchOutcome
from core.speculation_length.cost_model import TINY_MS, Costs, LinearFit, Meter

__all__ = ["BatchTimes", "size_class"]

# A line is fitted to about this many of the last passes.
HORIZON = 64.0
# The latency table of a single request's passes is read up to this many nodes, and extrapolated
# beyond.
TABLE = 64
# A new line starts from the table's values for these numbers of nodes per request, each added PRIOR
# times.
PRIOR, PRIOR_NODES = 2, (0, 2, 4)
# The time of a pass counts as at most this many times its prediction.
OUTLIER = 2.0


def size_class(requests: int) -> int:
    """The class of a batch: 0 for 1 request, 1 for 2 requests, 2 for 3 to 4, 3 for 5 to 8, ..."""
    return (requests - 1).bit_length()


class BatchTimes:
    """See scheduling.base.BatchCosts. Each size class of batches has its own fitted line: a pass's
    milliseconds by its number of tokens. A line starts from a single request's latency table, which
    lacks the attention cost of other requests' KV rows. The cost of the context is added from the
    table."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._lines: dict[int, LinearFit] = {}
        # Milliseconds of one drafted step of one request.
        self._step = Meter()
        # Free bytes for the coming pass, read only for a large pass; None: not read, or unknown.
        self._free_bytes: int | None = None

    def verify_ms(self, requests: int, nodes: int, context: int) -> float:
        """See BatchCosts."""
        tokens = nodes + requests
        return max(TINY_MS, self._line(requests).at(tokens) + self._context_ms(tokens, context))

    def draft_ms(self, requests: int, length: int) -> float:
        """See BatchCosts; 0 before the first draft."""
        return requests * length * self._step.get()

    def fits(self, requests: int, width: int, extent: int) -> bool:
        """See BatchCosts. Without `pass_bytes` in the model every pass fits."""
        # With `getattr`, since `pass_bytes` is no part of the LanguageModel protocol.
        pass_bytes = getattr(self._costs.llm, "pass_bytes", None)
        if pass_bytes is None:
            return True
        needed = pass_bytes(requests, width, extent)
        if needed <= UNCHECKED_BYTES:
            return True
        if self._free_bytes is None:
            self._free_bytes = available_bytes(self._costs.llm.device)
        return self._free_bytes is None or needed <= self._free_bytes

    def observe(self, outcome: BatchOutcome) -> None:
        """Adds a measured round."""
        self._free_bytes = None
        if outcome.llm_ms > 0 and math.isfinite(outcome.llm_ms):
            requests, nodes, context = outcome.requests, outcome.nodes, outcome.context
            ms = min(outcome.llm_ms, OUTLIER * self.verify_ms(requests, nodes, context))
            tokens = nodes + requests
            self._line(requests).add(tokens, ms - self._context_ms(tokens, context))
        if outcome.steps:
            self._step.add(outcome.draft_ms / (outcome.requests * outcome.steps))

    def _line(self, requests: int) -> LinearFit:
        """The fitted line, at context length 0."""
        size = size_class(requests)
        if size not in self._lines:
            self._lines[size] = line = LinearFit(HORIZON)
            for nodes in (n * requests for n in PRIOR_NODES for _ in range(PRIOR)):
                line.add(nodes + requests, self._table_ms(nodes + requests - 1, 0))
        return self._lines[size]

    def _context_ms(self, tokens: int, context: int) -> float:
        """Milliseconds that `context` cached tokens add to a pass over `tokens` tokens."""
        return self._table_ms(tokens - 1, context) - self._table_ms(tokens - 1, 0)

    def _table_ms(self, nodes: int, context: int) -> float:
        """Milliseconds of a single request's pass over its root and `nodes` nodes."""
        ms = self._costs.table_ms
        if nodes <= TABLE:
            return ms(nodes, context)
        last, half = ms(TABLE, context), ms(TABLE // 2, context)
        return last + (last - half) / (TABLE - TABLE // 2) * (nodes - TABLE)
