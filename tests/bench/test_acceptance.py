"""Suite `acceptance`, from made-up samples and a tiny run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.context import Context
from bench.suites.acceptance import Acceptance, _measure_row, distinct_share
from bench.suites.acceptance_rows import PAPER, WIDTHS, AcceptanceRow, acceptance_rows
from core.engine.engine import Engine
from core.models.loading.load import LoadedModels
from tests.family import SSMS

Samples = list[dict[str, Any]]


def sample(accepted: int, nodes: int, name: str = "p0", distinct: float = 0.9) -> dict[str, Any]:
    """A continuation of ten rounds."""
    figures = {"rounds": 10, "accepted": accepted, "nodes": nodes, "distinct_4_grams": distinct}
    return {"id": name, "domain": "stories", "seed": 1, **figures}


def acceptance_lines(
    context: Context, parts: str, made_up: Callable[[AcceptanceRow], Samples], table: int
) -> list[str]:
    """The lines of the report's table number `table` if rows have the samples `made_up(row)`.
    `parts`: names separated by blanks."""
    suite = Acceptance(parts=tuple(parts.split()))
    for row in suite.rows(context):
        context.results.add({**row.key, "prompts": made_up(row)})
    return suite.report(context).tables[table].splitlines()


class TestAcceptance:
    def test_budgets_are_fixed_and_single_ssms_and_widths_have_their_shapes(self) -> None:
        rows = acceptance_rows(("a", "b", "c"))
        for row in rows:
            assert row.speculation.max_tree_nodes != "auto"  # `auto` differs between runs
        greedy = [row for row in rows if row.kind.verify == "greedy"]
        same = {row.name: row.speculation for row in greedy if row.part == "same"}
        assert set(same) == {"a", "b", "c", "union of 3"}
        assert {config.expansion for config in same.values()} == {PAPER}
        widths = [row.speculation.expansion for row in greedy if row.part == "width"]
        assert widths == [(width, 1, 1, 1, 1, 1, 1, 1) for width in WIDTHS]

    def test_drafters_that_look_up_learn_from_their_own_row_alone(
        self, make_context: Any, family: LoadedModels
    ) -> None:
        context = make_context(tokens=24)
        engine, prompts = Engine(family), context.prompts
        rows = {row.name: row for row in acceptance_rows(SSMS) if row.part == "lookup"}
        row = rows["suffix, 16 nodes"]
        first, again = (_measure_row(engine, context.settings, prompts, row) for _ in range(2))
        assert first == again and sum(each["nodes"] for each in first) > 0

    def test_no_drafter_that_looks_up_is_in_the_best_tree_of_ssms(self, make_context: Any) -> None:
        def made_up(row: AcceptanceRow) -> Samples:
            return [sample(row.most_nodes, 10)]

        lines = acceptance_lines(make_context(), "lookup", made_up, 1)
        assert not any("| best tree" in line for line in lines)

    def test_chains_of_all_ssms_by_length(self, make_context: Any) -> None:
        def made_up(row: AcceptanceRow) -> Samples:
            return [sample(5 * len(row.speculation.expansion), 10 * row.most_nodes)]

        lines = acceptance_lines(make_context(), "length", made_up, 4)
        of_12 = [line for line in lines if "| 12 | 60.0 | 7.00 (7.00 to 7.00) |" in line]
        names = [line.split(" | ")[0] for line in of_12]
        assert names == ["| topk, greedy, T = 0", "| coupled, match, T = 0.8"]

    def test_only_trees_of_at_most_64_nodes_are_called_the_best(self, make_context: Any) -> None:
        """Without the limit, width 5 would be the best."""

        def made_up(row: AcceptanceRow) -> Samples:
            return [sample(row.most_nodes, 10)]

        lines = acceptance_lines(make_context(), "chain width", made_up, 1)
        best = [line for line in lines if "| best tree" in line]
        assert "best tree (union, width 1 <1,1,1,1,1,1,1,1>) / best single chain" in best[0]

    def test_combine_rules_are_compared_with_unions_of_similar_size(
        self, make_context: Any
    ) -> None:
        sizes = {"union": 40, "vote": 8, "vote_tree": 38, "log_pool": 41}

        def made_up(row: AcceptanceRow) -> Samples:
            combine = row.speculation.combine
            return [sample(30 if combine == "log_pool" else 20, 10 * sizes[combine])]

        lines = acceptance_lines(make_context(), "combine", made_up, 5)
        pools, unions = ([x for x in lines if name in x] for name in ("log_pool", "| union,"))
        assert pools and all("1.33x (1.33 to 1.33) (40.0 nodes)" in line for line in pools)
        assert unions and all(line.endswith("| - |") for line in unions)

    def test_traversal_is_compared_with_mss(self, make_context: Any) -> None:
        """`mss` accepts 20 tokens in every row. `traversal` accepts 30 tokens in the single SSMs'
        rows and 10 in the union's row."""

        def made_up(row: AcceptanceRow) -> Samples:
            by_traversal = 10 if "union" in row.name else 30
            accepted = by_traversal if row.kind.verify == "traversal" else 20
            return [sample(accepted, 80, f"p{i}") for i in range(3)]

        result = acceptance_lines(make_context(), "same", made_up, -1)
        lines = [line for line in result if "traversal / mss" in line]
        assert sum("1.33x (1.33 to 1.33) | reached" in line for line in lines) == len(SSMS)
        assert sum("0.67x (0.67 to 0.67) | not reached, by 0.33" in line for line in lines) == 1
        # (1 + (5 x 30 + 10) / 60) / (1 + 20 / 10)
        assert "all of these rows" in lines[-1] and "1.22x (1.22 to 1.22) | reached" in lines[-1]

    def test_tokens_per_pass_that_fall_with_width_are_reported(self, make_context: Any) -> None:
        """Trees of width w accept w tokens a round (9 - w under `topk, match`). p0 repeats itself
        and does not count."""

        def made_up(row: AcceptanceRow) -> Samples:
            width, falls = row.speculation.expansion[0], str(row.kind).startswith("topk, match")
            accepted = 10 * (9 - width if falls else width)
            counted = [sample(accepted, 80, name) for name in ("p1", "p2")]
            return [sample(700, 80, "p0", distinct=0.2), *counted]

        lines = acceptance_lines(make_context(), "width", made_up, 2)
        coupled, falling = (
            next(line for line in lines if line.startswith(name))
            for name in ("| coupled", "| topk, match")
        )
        assert "2.00 (2.00 to 2.00)" in coupled and "6.00 (6.00 to 6.00)" in coupled
        assert coupled.endswith("| yes | yes |") and falling.endswith("| NO | NO |")

    def test_distinct_share(self) -> None:
        assert distinct_share([1, 2, 3, 4, 5, 6]) == 1.0
        assert distinct_share([1, 1, 1, 1, 1, 1, 1]) == 0.25
        assert distinct_share([1, 2, 1, 2, 1, 2, 1, 2]) == pytest.approx(2 / 5)
        assert distinct_share([1, 2]) == 1.0
