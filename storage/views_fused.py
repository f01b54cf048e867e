"""SQL for the view of drafters; it takes fused drafts into account.

In a round with fused drafts, each SSM's draft has the entire fused chain. Rank 0 marks the tokens
that the SSM itself proposed; only these count as its own.
"""

from __future__ import annotations

from storage.views import SCOREBOARD_FIGURES_010
from storage.views_shared import SCOREBOARD_TIMED

__all__ = ["M019", "NUM_OWN_TOKENS", "OWN_PROPOSAL"]

OWN_PROPOSAL = "({proposals}.rank = 0 OR coalesce(rounds.origins_json, '[]') = '[]')"

# For a row of `drafts` in a round with fused drafts. JSON with a NaN score is not valid for SQLite.
NUM_OWN_TOKENS = """CASE WHEN json_valid(tokens_json)
    THEN (SELECT count(*) FROM json_each(tokens_json, '$.ranks') WHERE value = 0)
    ELSE num_tokens END"""

SCOREBOARD_COUNTED = """
WITH told AS (
    SELECT proposals.run, proposals.model, proposals.score, rounds.thinned,
        coalesce(nodes.outcome = 'accepted' AND nodes.depth <= rounds.num_accepted, 0) AS emitted,
        NOT EXISTS (SELECT 1 FROM proposals AS other
            WHERE other.run = proposals.run AND other.round = proposals.round
            AND other.node = proposals.node AND other.model <> proposals.model
            AND (other.rank = 0 OR coalesce(rounds.origins_json, '[]') = '[]')) AS alone,
        row_number() OVER (
            PARTITION BY proposals.run, proposals.round, proposals.node, proposals.model) AS place
    FROM proposals
    JOIN nodes USING (run, round, node)
    JOIN rounds USING (run, round)
    WHERE (proposals.rank = 0 OR coalesce(rounds.origins_json, '[]') = '[]')
), proposed AS (
    SELECT run, model, sum(NOT thinned) AS num_nodes, sum(emitted) AS num_accepted,
        sum(emitted AND alone) AS num_accepted_alone,
        count(score) FILTER (WHERE NOT thinned) AS num_scored,
        sum(score) FILTER (WHERE NOT thinned) AS sum_scores
    FROM told WHERE place = 1 GROUP BY run, model
), drafted AS (
    SELECT run, model, sum(num_tokens > 0) AS num_rounds, sum(num_tokens) AS num_drafted_tokens,
        coalesce(sum(num_nodes), 0) AS num_nodes, coalesce(sum(num_scored), 0) AS num_scored,
        coalesce(sum(sum_scores), 0.0) AS sum_scores
    FROM drafts GROUP BY run, model
), timed AS ("""

SSM_SCOREBOARD = f"{SCOREBOARD_COUNTED}{SCOREBOARD_TIMED}{SCOREBOARD_FIGURES_010}"

M019 = (("ssm_scoreboard", SSM_SCOREBOARD.strip()),)
