"""The SQL of the scoreboard that knows of fused drafts.

There every SSM is fed the whole trunk; only what it proposed itself, with rank 0, is its own.
"""

from __future__ import annotations

from storage.views import SCOREBOARD_COUNTED_010, SCOREBOARD_FIGURES_010
from storage.views_shared import SCOREBOARD_TIMED

__all__ = ["M019", "NUM_OWN_TOKENS", "OWN_PROPOSAL"]

OWN_PROPOSAL = "({proposals}.rank = 0 OR coalesce(rounds.origins_json, '[]') = '[]')"

# Of a row of `drafts` in a round with fused drafts. A score that is no number is no valid JSON.
NUM_OWN_TOKENS = """CASE WHEN json_valid(tokens_json)
    THEN (SELECT count(*) FROM json_each(tokens_json, '$.ranks') WHERE value = 0)
    ELSE num_tokens END"""

_OTHER = "AND other.node = proposals.node AND other.model <> proposals.model"
_JOINED = "JOIN rounds USING (run, round)\n"

SCOREBOARD_COUNTED = SCOREBOARD_COUNTED_010.replace(
    _OTHER, f"{_OTHER}\n            AND {OWN_PROPOSAL.format(proposals='other')}"
).replace(_JOINED, f"{_JOINED}    WHERE {OWN_PROPOSAL.format(proposals='proposals')}\n")

SSM_SCOREBOARD = f"{SCOREBOARD_COUNTED}{SCOREBOARD_TIMED}{SCOREBOARD_FIGURES_010}"

M019 = (("ssm_scoreboard", SSM_SCOREBOARD.strip()),)
