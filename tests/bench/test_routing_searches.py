"""How suite `routing` counts the changes of domain that a router follows; the suite's claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.results import Results
from bench.suites.routing import ALL, ALONE, COSINE, CREDIT, CREDIT_ONE, routing_tables
from bench.suites.routing_searches import (
    Search,
    count_searches,
    first_routed,
    search_good_ssm,
)
from bench.tables import Group

# "a" is right in the first domain, "b" in the second ..., "e" nowhere.
SSMS = ("a", "b", "c", "d", "e")
SEGMENTS = [(10 * i, 10 * i + 10) for i in range(4)]
CHANGES = SEGMENTS[1:]
FOUND_BY_NO_FIXED_PAIR: tuple[Search, ...] = (
    {"good": ["d"], "after": 0},
    {"good": ["e"], "after": 16},
)
HITS = {name: [i // 10 == index for i in range(40)] for index, name in enumerate(SSMS)}


def searches_of(*routes: str) -> list[Search]:
    """The search at each change. `routes`: for each token, one letter per SSM that drafts; a single
    route is for all tokens."""
    sets = [frozenset(one) for one in (routes * 40 if len(routes) == 1 else routes)]
    return [search_good_ssm(sets, HITS, *part) for part in CHANGES]


@pytest.mark.parametrize("pair", ["ab", "bc", "cd", "ae", "de"])
def test_a_pair_that_never_changes_follows_no_change(pair: str) -> None:
    counts = count_searches(searches_of(pair), 24, SSMS, 2)
    assert counts.at_once == len({*pair} & {*"bcd"}) and counts.late == 3 - counts.at_once > 0
    assert counts.followed == 0


def test_a_change_is_followed_within_its_number_of_tokens() -> None:
    """The SSM that is good after the third change already drafts before this change."""
    routes = ["ae"] * 13 + ["be"] * 7 + ["be"] * 9 + ["cd"] * 11
    searches = searches_of(*routes)
    assert [one["after"] for one in searches] == [3, 9, 0]
    assert [one["good"] for one in searches] == [["b"], ["c"], ["d"]]
    for limit, followed in ((2, 0), (3, 1), (8, 1), (9, 2)):
        counts = count_searches(searches, limit, SSMS, 2)
        assert (counts.followed, counts.late, counts.within) == (followed, 2, followed + 1)


def test_an_ssm_that_never_drafts_is_not_found_however_short_the_part() -> None:
    hits = {"a": [False] * 4, "b": [True] * 4}
    search = search_good_ssm([frozenset("a")] * 4, hits, 0, 4)
    counts = count_searches([search], 24, ("a", "b"), 1)
    assert (counts.within, counts.late) == (0, 1)


def test_an_ssm_that_is_nearly_the_best_is_good() -> None:
    hits = {"a": [True] * 100, "b": [True] * 95 + [False] * 5, "c": [True] * 94 + [False] * 6}
    assert search_good_ssm([frozenset("b")] * 100, hits, 0, 100) == {"good": ["a", "b"], "after": 0}


def test_the_base_rate_is_that_of_sets_that_never_change() -> None:
    """Of ten pairs, three (of b, c, d) contain the good SSM of two of the three changes, six that
    of one, and ae that of none."""
    counts = count_searches(searches_of("ae"), 24, SSMS, 2)
    assert (counts.fixed, counts.fixed_parts) == (("b", "c"), 2)
    assert counts.mean_parts == pytest.approx((3 * 2 + 6 * 1) / 10)
    assert count_searches(searches_of("a"), 24, SSMS, 1).fixed_parts == 1


def search_for_a_or_b(after: int | None) -> Search:
    return {"good": ["a", "b"], "after": after}


def claims(tmp_path: Path, kind: str, samples: list[dict[str, Any]]) -> dict[str, list[str]]:
    tables = routing_tables(
        Results(tmp_path / "r.json", {}, [{**s, "text": kind} for s in samples])
    )
    lines = [line[2:-2].split(" | ") for line in tables[-1].splitlines() if line.startswith("| ")]
    return {first.removeprefix(f"{kind}: "): rest for first, *rest in lines}


def test_notes_of_the_tables_say_what_is_compared(tmp_path: Path) -> None:
    samples = [{**sample("one", 16, searches_of("ab")), "text": "own"}]
    figures_table, searches_table, _ = routing_tables(Results(tmp_path / "r.json", {}, samples))
    assert "after the comma: the ratio to all SSMs, on the same texts." in figures_table
    assert "fixed sets of as many SSMs as the router lets draft; the best" in searches_table


def figures(
    rounds: int, searches: list[Search] | None = None, seconds: float = 1.0
) -> dict[str, Any]:
    run: dict[str, Any] = {"tokens": 96, "rounds": rounds, "seconds": seconds, "audition": 0.0}
    if searches is not None:
        run |= {"searches": searches, "to_fixed": 0.0, "to_oracle": 0.0, "best_fixed_after": 0}
    return run


def sample(prompt: str, passes: int, searches: list[Search], **changes: Any) -> dict[str, Any]:
    """96 tokens, in `passes` passes with two SSMs chosen by credit, in 16 with all SSMs. `changes`
    override figures of the run CREDIT."""
    routed = {CREDIT: passes, CREDIT_ONE: 20, COSINE: 20}
    contest = {ALL: figures(16)} | {n: figures(r, searches) for n, r in routed.items()}
    contest[CREDIT] |= changes
    contest |= {f"{ALONE}{name}": figures(30) for name in SSMS}
    return {"prompt": prompt, "repeat": 0, "figures": contest}


class TestClaims:
    def test_a_router_that_never_changes_follows_nothing(self, tmp_path: Path) -> None:
        """A change does not count as followed if its good SSM already drafted before the change."""
        by_claim = claims(tmp_path, "spliced", [sample("one", 16, searches_of("bc"))])
        target, measured, verdict = by_claim[f"`{CREDIT}` follows a change within 24 tokens"]
        assert target == "at least 90 %" and measured == (
            "0 of 1 (0 %); a good SSM before the change: 2 of 3; b + c without a change: 2 of 3"
        )
        assert verdict.startswith("not reached")

    def test_without_a_change_to_follow_there_is_no_claim(self, tmp_path: Path) -> None:
        by_claim = claims(tmp_path, "spliced", [sample("one", 16, searches_of("bcd"))])
        assert not [claim for claim in by_claim if "follows" in claim]

    def test_finding_is_no_claim_if_a_set_that_never_changes_finds_as_many(
        self, tmp_path: Path
    ) -> None:
        both, late, never = map(search_for_a_or_b, (0, 3, None))
        other = {"good": ["c"], "after": 0}
        cases: tuple[tuple[list[Search], str, str], ...] = (
            ([both, late], "2 of 2 (100 %)", "says nothing: reached without a change"),
            ([both, other], "2 of 2 (100 %)", "says nothing: reached without a change"),
            ([both, never], "1 of 2 (50 %)", "not reached, by 40 %"),
            ([both, other, *FOUND_BY_NO_FIXED_PAIR], "4 of 4 (100 %)", "reached"),
        )
        for searches, measured, verdict in cases:
            samples = [sample(str(i), 16, [one]) for i, one in enumerate(searches)]
            row = claims(tmp_path, "own", samples)[f"`{CREDIT}`: a good SSM found within 16 tokens"]
            assert row[1].startswith(f"{measured}; ") and row[2] == verdict

    def test_the_claim_of_tokens_per_pass_is_about_all_tokens_over_all_passes(
        self, tmp_path: Path
    ) -> None:
        """With two SSMs, three of five texts take 16 passes, and two take 24."""
        one = searches_of("ab")
        samples = [sample(str(i), 24 if i < 2 else 16, one) for i in range(5)]
        _, measured, verdict = claims(tmp_path, "own", samples)[
            "`credit` with 2 against all, all tokens over all passes"
        ]
        assert measured.startswith("0.83x (") and "the median text 1.00x (" in measured
        assert verdict == "not reached, by 0.17"

    @pytest.mark.parametrize("kind", ["turning", "spliced"])
    def test_regret_is_claimed_only_of_texts_that_change_their_domain(
        self, tmp_path: Path, kind: str
    ) -> None:
        """Regret: extra passes as a share of the passes with the best fixed SSM or with the
        oracle."""
        regrets = [(-0.2, 0.05), (-0.1, 0.125), (0.3, 0.2)]
        samples = [
            sample(str(i), 16, searches_of("ab"), to_fixed=fixed, to_oracle=oracle)
            for i, (fixed, oracle) in enumerate(regrets)
        ]
        by_claim = claims(tmp_path, kind, samples)
        fixed, oracle = (
            by_claim[f"regret of `{CREDIT}` to {other}"]
            for other in ("the best fixed SSM", "the oracle")
        )
        assert fixed == ["at most 0 %", "-10.0 % (-20.0 % to +30.0 %)", "reached"]
        assert oracle == ["at most 10 %", "+12.5 % (+5.0 % to +20.0 %)", "not reached, by 2.5 %"]
        assert not [claim for claim in claims(tmp_path, "own", samples) if "regret" in claim]

    def test_the_best_fixed_ssm_must_draft_by_token_16(self, tmp_path: Path) -> None:
        """In the last text the best fixed SSM never drafts."""
        claim = f"`{CREDIT}`: the best fixed SSM drafts by token 16"
        for late, verdict in ((0, "reached"), (17, "not reached, by 10 %")):
            firsts = [0, 3, 16, 0, 0, 0, 0, 0, late, None]
            samples = [
                sample(str(i), 16, searches_of("ab"), best_fixed_after=first)
                for i, first in enumerate(firsts)
            ]
            target, measured, result = claims(tmp_path, "own", samples)[claim]
            found = 9 if late <= 16 else 8
            assert (target, measured) == ("at least 90 %", f"{found} of 10 ({10 * found} %)")
            assert result == verdict


def test_first_routed_is_the_first_token_of_any_of_the_ssms() -> None:
    routes = [frozenset("ab"), frozenset("ac"), frozenset("cd")]
    assert [first_routed(routes, each) for each in ("a", "c", "dc", "d", "e")] == [0, 1, 1, 2, None]


def test_a_pooled_ratio_is_over_blocks_that_have_both() -> None:
    counts = (("a", "x", 10, 2), ("a", "y", 10, 4), ("b", "x", 30, 10), ("b", "y", 30, 6),
              ("c", "x", 7, 7))  # fmt: skip
    names = ("prompt", "contestant", "tokens", "rounds")
    rows = [dict(zip(names, one, strict=True)) for one in counts]
    group = Group(rows, rows).of(contestant="x")
    ratio, pooled = group.tokens_per_pass_ratio(contestant="y"), group.tokens_per_pass()
    assert ratio is not None and ratio.value == pytest.approx((40 / 12) / (40 / 10))
    assert pooled is not None and pooled.value == pytest.approx(47 / 19)
    assert group.tokens_per_pass_ratio(contestant="z") is None
