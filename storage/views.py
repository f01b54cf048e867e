"""SQL of views in the log. Figures that core.metrics counts have the same names as there.

A released view is never edited: a new migration drops it and creates its replacement.
"""

from __future__ import annotations

__all__ = [
    "M004",
    "M006",
    "M009",
    "M010",
    "SCOREBOARD_COUNTED_010",
    "SCOREBOARD_FIGURES_010",
]

# Time covered by the spans of a run, by kind. If spans of one round overlap, their common time
# counts once in `busy_ms` and for each span in `sum_ms`. Kind `both`: all spans of kinds `llm` and
# `draft`. `reached`: the latest end of the spans before this span.
SPAN_TIMES = """
WITH labelled AS (
    SELECT run, round, start_ms, end_ms,
        CASE WHEN name = 'prefill' THEN 'prefill'
             WHEN lane = 'llm' THEN 'llm'
             WHEN lane IN ('combine', 'verify', 'commit') THEN 'other'
             ELSE 'draft' END AS kind
    FROM spans
), counted AS (
    SELECT * FROM labelled
    UNION ALL
    SELECT run, round, start_ms, end_ms, 'both' FROM labelled WHERE kind IN ('llm', 'draft')
), reaching AS (
    SELECT *, max(end_ms) OVER (
        PARTITION BY run, round, kind ORDER BY start_ms, end_ms
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM counted
)
SELECT run, kind, sum(end_ms - start_ms) AS sum_ms, max(end_ms) AS last_ms,
    sum(max(0.0, end_ms - max(start_ms, coalesce(reached, start_ms)))) AS busy_ms
FROM reaching GROUP BY run, kind
"""

SUMMARY_COUNTS = """
WITH counted AS (
    SELECT run, count(*) AS num_rounds, sum(num_new_tokens) AS num_new_tokens,
        sum(num_accepted) AS num_accepted_tokens,
        sum(max(0, tree_depth - num_cut)) AS num_draft_tokens,
        sum(num_nodes) AS num_verified_nodes,
        min(CASE WHEN num_new_tokens > 0 THEN completed_at_ms END) AS ttft_ms,
        max(completed_at_ms) AS last_ms
    FROM rounds WHERE completed_seq IS NOT NULL GROUP BY run
), timed AS (
    SELECT run,
        max(sum_ms) FILTER (WHERE kind = 'draft') AS draft_ms,
        max(sum_ms) FILTER (WHERE kind = 'llm') AS verify_ms,
        max(busy_ms) FILTER (WHERE kind = 'prefill') AS prefill_ms,
        max(last_ms) FILTER (WHERE kind = 'prefill') AS prefill_end_ms,
        max(busy_ms) FILTER (WHERE kind = 'draft') AS draft_busy_ms,
        max(busy_ms) FILTER (WHERE kind = 'llm') AS llm_busy_ms,
        max(busy_ms) FILTER (WHERE kind = 'both') AS both_busy_ms
    FROM span_times GROUP BY run
), figures AS (
"""

SUMMARY_OF_ALL = "    SELECT runs.*, counted.*, timed.*,"

SUMMARY_FIGURES = """ coalesce(runs.end_at_ms, counted.last_ms) AS stands_ms
    FROM runs LEFT JOIN counted ON counted.run = runs.id LEFT JOIN timed ON timed.run = runs.id
)
SELECT run_id, created_utc, status, prompt, output,
"""

SUMMARY_COLUMNS = """    (SELECT name FROM run_models JOIN models ON models.id = run_models.model
     WHERE run_models.run = figures.id AND role = 'llm' ORDER BY ordinal LIMIT 1) AS llm,
    drafters_json, dtype, device, seed, finish_reason, error, num_lost_events,
    coalesce(num_new_tokens, 0) AS num_new_tokens,
    coalesce(num_rounds, 0) AS num_rounds,
    coalesce(num_accepted_tokens, 0) AS num_accepted_tokens,
    coalesce(num_draft_tokens, 0) AS num_draft_tokens,
    coalesce(num_verified_nodes, 0) AS num_verified_nodes,
    coalesce(1.0 * num_accepted_tokens / nullif(num_draft_tokens, 0), 0.0)
        AS draft_acceptance_rate,
    coalesce(1.0 + 1.0 * num_accepted_tokens / num_rounds, 0.0) AS mean_acceptance_length,
    coalesce(draft_ms, 0.0) AS draft_ms,
    coalesce(verify_ms, 0.0) AS verify_ms,
    coalesce(prefill_ms, 0.0) AS prefill_ms,
"""

SUMMARY_HEAD = f"{SUMMARY_COUNTS}{SUMMARY_OF_ALL}{SUMMARY_FIGURES}{SUMMARY_COLUMNS}"

SUMMARY_REST = """    coalesce(ttft_ms, 0.0) AS ttft_ms,
    queue_ms,
    stands_ms AS total_ms
FROM figures
"""

SUMMARY_RATES = """    coalesce((llm_busy_ms + coalesce(draft_busy_ms, 0.0) - both_busy_ms)
        / nullif(llm_busy_ms, 0.0), 0.0) AS overlap_ratio,
    coalesce(1000.0 * num_new_tokens / nullif(
        max(0.0, stands_ms - coalesce(prefill_end_ms, 0.0)), 0.0), 0.0) AS tokens_per_second,
"""

RUN_SUMMARY = f"{SUMMARY_HEAD}{SUMMARY_RATES}{SUMMARY_REST}"

# `overlap_ratio` as in `core.metrics`: it includes drafting during LLM passes for other requests.
# `$[1]`, `$[3]`, `$[4]`: `outcomes`, `hit` and `saved_ms` of an Ahead (core/events/parts.py).
OVERLAP = """
WITH early AS (
    SELECT run, sum(json_extract(value, '$[4]')) AS saved_ms
    FROM rounds, json_each(rounds.ahead_json)
    WHERE completed_seq IS NOT NULL AND json_extract(value, '$[1]') = 0
        AND json_extract(value, '$[3]')
    GROUP BY run
), busy AS (
    SELECT run,
        coalesce(max(busy_ms) FILTER (WHERE kind = 'llm'), 0.0) AS llm_ms,
        coalesce(max(busy_ms) FILTER (WHERE kind = 'draft'), 0.0) AS draft_ms,
        coalesce(max(busy_ms) FILTER (WHERE kind = 'both'), 0.0) AS either_ms,
        max(sum_ms) FILTER (WHERE kind = 'draft') AS drafted_ms
    FROM span_times GROUP BY run
), shared AS (
    SELECT busy.run, llm_ms, llm_ms + draft_ms - either_ms AS own_ms, either_ms - llm_ms AS most_ms,
        coalesce(saved_ms * draft_ms / nullif(drafted_ms, 0.0), 0.0) AS others_ms
    FROM busy LEFT JOIN early ON early.run = busy.run
)
SELECT run,
    coalesce(min(1.0, (own_ms + max(0.0, min(others_ms, most_ms))) / nullif(llm_ms, 0.0)), 0.0)
        AS overlap_ratio
FROM shared
"""

ACCEPTANCE_BY_POSITION = """
WITH RECURSIVE counted AS (
    SELECT run, count(*) AS num_rounds, max(num_accepted) AS longest
    FROM rounds WHERE completed_seq IS NOT NULL GROUP BY run
), places AS (
    SELECT run, num_rounds, longest, 0 AS place FROM counted WHERE longest > 0
    UNION ALL
    SELECT run, num_rounds, longest, place + 1 FROM places WHERE place + 1 < longest
)
SELECT runs.run_id, place AS position, sum(rounds.num_accepted > place) AS num_accepted,
    places.num_rounds,
    1.0 * sum(rounds.num_accepted > place) / places.num_rounds AS acceptance_rate
FROM places
JOIN runs ON runs.id = places.run
JOIN rounds ON rounds.run = places.run AND rounds.completed_seq IS NOT NULL
GROUP BY places.run, place ORDER BY places.run, place
"""

# `num_accepted`: emitted tokens that this drafter proposed; `num_accepted_alone`: emitted tokens
# that only this drafter proposed.
SSM_SCOREBOARD = """
WITH told AS (
    SELECT proposals.run, proposals.model, proposals.score,
        coalesce(nodes.outcome = 'accepted' AND nodes.depth <= rounds.num_accepted, 0) AS emitted,
        NOT EXISTS (SELECT 1 FROM proposals AS other
            WHERE other.run = proposals.run AND other.round = proposals.round
            AND other.node = proposals.node AND other.model <> proposals.model) AS alone,
        row_number() OVER (
            PARTITION BY proposals.run, proposals.round, proposals.node, proposals.model) AS place
    FROM proposals
    JOIN nodes USING (run, round, node)
    JOIN rounds USING (run, round)
), proposed AS (
    SELECT run, model, count(*) AS num_nodes, sum(emitted) AS num_accepted,
        sum(emitted AND alone) AS num_accepted_alone, avg(score) AS mean_score
    FROM told WHERE place = 1 GROUP BY run, model
), drafted AS (
    SELECT run, model, sum(num_tokens > 0) AS num_rounds, sum(num_tokens) AS num_drafted_tokens
    FROM drafts GROUP BY run, model
), timed AS (
    SELECT run, lane, sum(end_ms - start_ms) AS draft_ms FROM spans GROUP BY run, lane
)
SELECT runs.run_id, models.name AS drafter, drafted.num_rounds, drafted.num_drafted_tokens,
    coalesce(num_nodes, 0) AS num_nodes,
    coalesce(num_accepted, 0) AS num_accepted,
    coalesce(num_accepted_alone, 0) AS num_accepted_alone,
    coalesce(1.0 * num_accepted / num_nodes, 0.0) AS acceptance_rate,
    mean_score,
    coalesce(draft_ms, 0.0) AS draft_ms
FROM drafted
JOIN runs ON runs.id = drafted.run
JOIN models ON models.id = drafted.model
LEFT JOIN proposed ON proposed.run = drafted.run AND proposed.model = drafted.model
LEFT JOIN timed ON timed.run = drafted.run AND timed.lane = models.name
ORDER BY drafted.run, num_accepted DESC, models.name
"""

M004 = (
    ("span_times", SPAN_TIMES.strip()),
    ("run_summary", RUN_SUMMARY.strip()),
    ("acceptance_by_position", ACCEPTANCE_BY_POSITION.strip()),
    ("ssm_scoreboard", SSM_SCOREBOARD.strip()),
)

# `tokens_per_second` counts from the end of the first round's prefill.
SUMMARY_RATES_006 = """    coalesce(
        (SELECT overlap_ratio FROM overlaps WHERE overlaps.run = figures.id), 0.0
    ) AS overlap_ratio,
    coalesce(1000.0 * num_new_tokens / nullif(max(0.0, stands_ms - coalesce(
        (SELECT max(end_ms) FROM spans WHERE spans.run = figures.id AND name = 'prefill'
         AND round = (SELECT min(round) FROM rounds
            WHERE rounds.run = figures.id AND completed_seq IS NOT NULL)),
        0.0)), 0.0), 0.0) AS tokens_per_second,
"""

RUN_SUMMARY_006 = f"{SUMMARY_HEAD}{SUMMARY_RATES_006}{SUMMARY_REST}"

M006 = (
    ("overlaps", OVERLAP.strip()),
    ("run_summary", RUN_SUMMARY_006.strip()),
)

# Columns of `runs` are listed, not `runs.*`: since m009 some columns have the names of figures that
# this view counts.
SUMMARY_OF_ALL_009 = """    SELECT runs.id, run_id, created_utc, status, prompt, output, note,
        drafters_json, dtype, device, seed, finish_reason, error, num_lost_events, queue_ms,
        counted.*, timed.*,
       """

SUMMARY_HEAD_009 = (
    f"{SUMMARY_COUNTS}{SUMMARY_OF_ALL_009}{SUMMARY_FIGURES}    note,\n{SUMMARY_COLUMNS}"
)

RUN_SUMMARY_009 = f"{SUMMARY_HEAD_009}{SUMMARY_RATES_006}{SUMMARY_REST}"

M009 = (("run_summary", RUN_SUMMARY_009.strip()),)

# For a thinned round, `nodes` and `proposals` have only the accepted nodes. The round's rows of
# `drafts` have counts over all of its nodes.
SCOREBOARD_COUNTED_010 = """
WITH told AS (
    SELECT proposals.run, proposals.model, proposals.score, rounds.thinned,
        coalesce(nodes.outcome = 'accepted' AND nodes.depth <= rounds.num_accepted, 0) AS emitted,
        NOT EXISTS (SELECT 1 FROM proposals AS other
            WHERE other.run = proposals.run AND other.round = proposals.round
            AND other.node = proposals.node AND other.model <> proposals.model) AS alone,
        row_number() OVER (
            PARTITION BY proposals.run, proposals.round, proposals.node, proposals.model) AS place
    FROM proposals
    JOIN nodes USING (run, round, node)
    JOIN rounds USING (run, round)
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

SCOREBOARD_TIMED_010 = """
    SELECT run, lane, sum(end_ms - start_ms) AS draft_ms FROM spans GROUP BY run, lane
"""

SCOREBOARD_FIGURES_010 = """), counted AS (
    SELECT drafted.run, drafted.model, num_rounds, num_drafted_tokens,
        drafted.num_nodes + coalesce(proposed.num_nodes, 0) AS num_nodes,
        coalesce(num_accepted, 0) AS num_accepted,
        coalesce(num_accepted_alone, 0) AS num_accepted_alone,
        drafted.num_scored + coalesce(proposed.num_scored, 0) AS num_scored,
        drafted.sum_scores + coalesce(proposed.sum_scores, 0.0) AS sum_scores
    FROM drafted LEFT JOIN proposed USING (run, model)
)
SELECT runs.run_id, models.name AS drafter, counted.num_rounds, num_drafted_tokens,
    num_nodes, num_accepted, num_accepted_alone,
    coalesce(1.0 * num_accepted / nullif(num_nodes, 0), 0.0) AS acceptance_rate,
    sum_scores / nullif(num_scored, 0) AS mean_score,
    coalesce(draft_ms, 0.0) AS draft_ms
FROM counted
JOIN runs ON runs.id = counted.run
JOIN models ON models.id = counted.model
LEFT JOIN timed ON timed.run = counted.run AND timed.lane = models.name
ORDER BY counted.run, num_accepted DESC, models.name
"""

SSM_SCOREBOARD_010 = f"{SCOREBOARD_COUNTED_010}{SCOREBOARD_TIMED_010}{SCOREBOARD_FIGURES_010}"

M010 = (("ssm_scoreboard", SSM_SCOREBOARD_010.strip()),)
