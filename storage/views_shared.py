"""SQL of views that take batched drafting into account.

A span counts in sums with its share, see `core.events.parts.Span`.
"""

from __future__ import annotations

from storage.views import SCOREBOARD_COUNTED_010, SCOREBOARD_FIGURES_010

__all__ = ["M013", "SCOREBOARD_TIMED"]

SPAN_TIMES = """
WITH labelled AS (
    SELECT run, round, start_ms, end_ms, share,
        CASE WHEN name = 'prefill' THEN 'prefill'
             WHEN lane = 'llm' THEN 'llm'
             WHEN lane IN ('combine', 'verify', 'commit') THEN 'other'
             ELSE 'draft' END AS kind
    FROM spans
), counted AS (
    SELECT * FROM labelled
    UNION ALL
    SELECT run, round, start_ms, end_ms, share, 'both' FROM labelled WHERE kind IN ('llm', 'draft')
), reaching AS (
    SELECT *, max(end_ms) OVER (
        PARTITION BY run, round, kind ORDER BY start_ms, end_ms
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM counted
)
SELECT run, kind, sum((end_ms - start_ms) * share) AS sum_ms, max(end_ms) AS last_ms,
    sum(max(0.0, end_ms - max(start_ms, coalesce(reached, start_ms)))) AS busy_ms
FROM reaching GROUP BY run, kind
"""

SCOREBOARD_TIMED = """
    SELECT run, lane, sum((end_ms - start_ms) * share) AS draft_ms
    FROM spans GROUP BY run, lane
"""

SSM_SCOREBOARD = f"{SCOREBOARD_COUNTED_010}{SCOREBOARD_TIMED}{SCOREBOARD_FIGURES_010}"

M013 = (
    ("span_times", SPAN_TIMES.strip()),
    ("ssm_scoreboard", SSM_SCOREBOARD.strip()),
)
