"""`goodput` in simulated worlds whose best fixed length is known."""

import functools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from core.config import SpeculationConfig
from core.speculation_length import Auditions, Choice, DraftOutcome, RoundOutcome
from core.speculation_length.base import StopLimits
from core.speculation_length.cost_model import Costs, VerifyCosts
from core.speculation_length.cost_model.backoff import MAX_FAILED_RUNS
from core.speculation_length.goodput import MAX_DEFICIT, PROBE_LENGTH, ROUNDS_PER_PLAN, Goodput
from core.speculation_length.stop_rule import StopRule, step_limits
from tests.core.cuda.test_draft_graph import COLD, WARM
from tests.core.drafters.test_compiled import FOLLOWING, run_rounds, two_pools
from tests.core.speculation_length.world import (
    Result,
    Simulated,
    World,
    best_fixed,
    config_of,
    constant,
    run_fixed,
    simulate,
)

TOKENS = 1500


def drafter(name: str, chance: float, start: float, step: float, source: str = "") -> Simulated:
    return Simulated(name, constant(chance), constant(start), constant(step), source)


def linear(plain: float, node: float) -> functools.partial[float]:
    return functools.partial(lambda a, b, n: a + b * n, plain, node)


def chance_at(position: int) -> float:
    """Chances of 0.95, 0.3, 0.6 and 0.9 in turn."""
    return (0.95, 0.9, 0.6, 0.3)[position * 7919 % 4]


CHEAP = World((drafter("a", 0.8, 0.3, 0.3),), linear(5, 0.05))
EXPENSIVE = World((drafter("a", 0.7, 2.0, 1.8),), linear(5, 0.1))
STEEP = World((drafter("a", 0.85, 0.2, 0.2),), lambda n: 5 + max(0, n - 4))
UNCALIBRATED = World(
    (Simulated("a", chance_at, constant(0.6), constant(0.6), error=2.0),), linear(5, 0.1)
)
INDEPENDENT = World((drafter("a", 0.6, 0.4, 0.4), drafter("b", 0.6, 0.4, 0.4)), linear(5, 0.1))
TWINS = World(tuple(drafter(x, 0.75, 0.8, 0.8, "x") for x in "ab"), linear(5, 0.1))
HOPELESS = World((drafter("a", 0.08, 1.0, 1.0),), linear(5, 0.1))
SURE = World((drafter("a", 0.96, 0.4, 0.4),), linear(5, 0.05))
WORLDS = {
    "cheap": CHEAP, "sure": SURE, "expensive": EXPENSIVE, "steep": STEEP,
    "uncalibrated": UNCALIBRATED, "independent": INDEPENDENT, "twins": TWINS, "hopeless": HOPELESS,
}  # fmt: skip
# The longest fixed length that the first test tries, by world; in other worlds 8.
LONGEST = {"sure": 16, "hopeless": 2, "expensive": 4, "steep": 6}


# Rounds after which a change is followed: for a drafter that drafts, and for a drafter that is only
# probed.
FOLLOWS = 50
PROBED = 128 + FOLLOWS


def jump(before: float, after: float, change: int) -> Callable[[int], float]:
    return lambda number: before if number < change else after


def first_round_at(result: Result, position: int) -> int:
    positions = accumulate(outcome.num_tokens for outcome in result.outcomes)
    return next(i for i, reached in enumerate(positions, 1) if reached >= position)


# Acceptance and milliseconds of a step; a pass of the LLM takes about 20 ms.
DRAFTING = [(0.4, 4.0), (0.7, 5.0), (0.7, 3.0), (0.5, 8.0), (0.8, 2.0)]


class Across(World):
    """A world in which a pass over other requests hides drafting."""

    def round(
        self, number: int, position: int, choice: Choice, timing: random.Random
    ) -> tuple[RoundOutcome, float]:
        outcome, true_ms = super().round(number, position, choice, timing)
        hidden = min(sum(draft.ms for draft in outcome.drafts.values()), outcome.verify_ms)
        measured = replace(outcome, round_ms=outcome.round_ms - hidden, hidden_ms=hidden)
        return measured, max(0.01, true_ms - min(hidden, true_ms))


class Ahead(World):
    """A world in which the drafts of seven of ten rounds were made ahead and take no time."""

    def round(
        self, number: int, position: int, choice: Choice, timing: random.Random
    ) -> tuple[RoundOutcome, float]:
        outcome, true_ms = super().round(number, position, choice, timing)
        if not outcome.drafts or random.Random(f"{position}").random() > 0.7:
            return outcome, true_ms
        saved = sum(draft.ms for draft in outcome.drafts.values())
        drafts = {
            name: replace(draft, ms=0.0, start_ms=0.0, steps=0, was_ahead=True)
            for name, draft in outcome.drafts.items()
        }
        measured = replace(outcome, round_ms=outcome.round_ms - saved, drafts=drafts)
        return measured, max(0.01, true_ms - saved)


# In `independent`, two drafters together are best, but `goodput` lets one SSM draft.
# In `uncalibrated`, the scores are wrong.
ONE_SSM = sorted(WORLDS.keys() - {"independent", "uncalibrated"})


def run(world: World, tokens: int, costs: Costs | None = None) -> Result:
    costs = costs or world.costs()
    return simulate(world, tokens, Goodput(config_of(world), costs), costs)


@pytest.mark.parametrize("name", ONE_SSM)
def test_goodput_reaches_the_best_fixed_length(name: str) -> None:
    _, goodput = best_fixed(WORLDS[name], TOKENS, longest=LONGEST.get(name, 8))
    assert run(WORLDS[name], TOKENS).goodput() >= 0.97 * goodput


def test_goodput_beats_every_fixed_length_on_easy_and_hard_parts() -> None:
    def chance(position: int) -> float:
        return 0.95 if position // 60 % 2 == 0 else 0.25

    world = World((Simulated("a", chance, constant(0.6), constant(0.6)),), linear(5, 0.1))
    assert run(world, TOKENS).goodput() >= 1.1 * best_fixed(world, TOKENS, longest=9)[1]


@pytest.mark.parametrize("kind", [World, Across, Ahead])
@pytest.mark.parametrize(("acceptance", "step"), DRAFTING)
def test_goodput_counts_only_drafting_time_that_is_not_hidden(kind, acceptance, step):
    noise = 0.05 if kind is Across else 0.0
    world = kind((drafter("a", acceptance, step, step),), linear(20, 0.05), noise=noise)
    _, goodput = best_fixed(world, TOKENS, longest=12)
    share = 0.91 if step == 8.0 and kind is World else 0.96
    assert run(world, TOKENS).goodput(150) >= share * goodput


def test_goodput_follows_steps_that_become_slow() -> None:
    step = jump(0.3, 3.0, 300)
    world = World((Simulated("a", constant(0.8), step, step),), linear(5, 0.05))
    _, goodput = best_fixed(World((drafter("a", 0.8, 3.0, 3.0),), world.verify), 2000, longest=8)
    assert run(world, 3000).goodput(300 + FOLLOWS) >= 0.95 * goodput


def test_goodput_follows_steps_that_become_fast() -> None:
    step = jump(3.0, 0.3, 300)
    world = World((Simulated("a", constant(0.8), step, step),), linear(5, 0.05))
    assert run(world, 3000).goodput(300 + FOLLOWS) >= 0.95 * best_fixed(CHEAP, 2000, longest=9)[1]


def test_a_first_timing_that_is_far_too_long_does_not_end_further_steps() -> None:
    step = jump(60.0, 0.3, 1)
    world = World((Simulated("a", constant(0.85), constant(0.3), step),), linear(5, 0.05))
    costs = world.costs()
    late = run(world, 600, costs).outcomes[20:]
    assert costs.draft_costs("a").step.get() < 1.0
    assert sum(outcome.drafts["a"].steps for outcome in late) > 2 * len(late)


def test_goodput_follows_drafts_that_become_worthless() -> None:
    chance = jump(0.85, 0.05, 1000)
    world = World((Simulated("a", chance, constant(1), constant(1)),), linear(5, 0.1))
    result = run(world, 1600)
    change = first_round_at(result, 1000)
    assert min(result.lengths[20:change]) > 0
    late = result.lengths[change + FOLLOWS :]
    assert late.count(0) >= 0.95 * len(late)
    assert result.goodput(change + FOLLOWS) >= 0.97 * run_fixed(world, 10, 0).goodput()


def test_goodput_follows_drafts_that_become_good() -> None:
    world = World((Simulated("a", jump(0.05, 0.9, 800), constant(1), constant(1)),), linear(5, 0.1))
    result = run(world, 2400)
    plain = result.lengths[100:790]
    assert plain.count(0) >= 0.95 * len(plain)
    good = World((drafter("a", 0.9, 1.0, 1.0),), linear(5, 0.1))
    late = result.goodput(first_round_at(result, 800) + PROBED)
    assert late >= 0.95 * best_fixed(good, TOKENS, longest=9)[1]


def test_a_slower_machine_changes_no_decision() -> None:
    world = World(CHEAP.drafters, CHEAP.verify, pace=jump(1.0, 4.0, 200))
    result = run(world, 2500)
    assert min(result.lengths[200:]) > 0
    assert result.goodput(200 + FOLLOWS) >= 0.97 * best_fixed(CHEAP, 2000, longest=9)[1] / 4
    predicted = sum(choice.predicted_ms for choice in result.choices[-20:])
    assert predicted == pytest.approx(sum(result.true_ms[-20:]), rel=0.15)


def test_a_hopeless_drafter_hardly_slows_decoding() -> None:
    result = run(HOPELESS, TOKENS)
    assert result.goodput() >= 0.97 * run_fixed(HOPELESS, TOKENS, 0).goodput()
    # Here, each draft loses 0.1 to 0.2 tokens.
    first = result.lengths.index(0)
    assert MAX_DEFICIT / 0.2 <= first <= MAX_DEFICIT / 0.1
    assert "a stops drafting: it is 4 tokens behind" in result.choices[first].reason
    assert result.choices[-1].drafters == frozenset()
    assert "0 stays: no draft beats plain decoding at" in result.choices[-1].reason


def test_while_nothing_drafts_a_plan_is_kept() -> None:
    late = run(HOPELESS, TOKENS).choices[100:]
    plans = sum(after is not before for before, after in pairwise(late))
    probes = sum("tried again" in choice.reason for choice in late)
    assert probes >= 2
    assert plans <= len(late) / ROUNDS_PER_PLAN + 20 * probes


def test_probes_are_short_and_their_wait_doubles() -> None:
    result = run(HOPELESS, 3000)
    probes = [i for i, choice in enumerate(result.choices) if "tried again" in choice.reason]
    gaps = [after - before for before, after in pairwise(probes)]
    assert len(probes) >= 8
    # A success by chance resets the wait.
    assert sum(gap < 32 for gap in gaps) <= 3
    assert all(gap >= 16 for gap in gaps)
    assert sum(128 <= gap <= 128 + 2 * ROUNDS_PER_PLAN for gap in gaps) >= len(gaps) / 2
    assert {result.lengths[i] for i in probes} == {PROBE_LENGTH}


def test_probes_stay_within_a_hundredth_of_the_decode_time() -> None:
    expensive = World((drafter("a", 0.05, 12.0, 12.0),), linear(5, 0.1), noise=0.0)
    result = run(expensive, 4000)
    probes = [i for i, length in enumerate(result.lengths) if length and i > 20]
    assert probes
    spent = 0.0
    for i in probes:
        spent += result.true_ms[i] - expensive.verify(0) - expensive.overhead
        assert spent <= 0.0101 * sum(result.true_ms[:i])


def test_three_runs_that_do_not_pay_are_remembered() -> None:
    costs = HOPELESS.costs()
    for _ in range(MAX_FAILED_RUNS):
        assert run(HOPELESS, 100, costs).lengths[0] > 0
    later = [run(HOPELESS, 60, costs) for _ in range(50)]
    assert later[0].lengths[0] == 0
    tokens = sum(o.num_tokens for one in later for o in one.outcomes)
    plain = run_fixed(HOPELESS, 100, 0).goodput()
    assert tokens / sum(sum(one.true_ms) for one in later) >= 0.97 * plain


def test_a_run_that_pays_clears_the_record() -> None:
    costs = CHEAP.costs()
    costs.backoffs.failed_runs["a"] = MAX_FAILED_RUNS - 1
    run(CHEAP, 200, costs)
    assert costs.backoffs.failed_runs == {}


def test_a_drafter_that_fails_is_not_probed_in_every_round() -> None:
    costs = HOPELESS.costs()
    policy = Goodput(config_of(HOPELESS), costs)
    assert simulate(HOPELESS, 200, policy).lengths[-1] == 0
    after = simulate(World((), HOPELESS.verify), 600, policy)
    assert 0 < sum(length > 0 for length in after.lengths) <= 600 / 16


def test_another_runs_success_brings_a_drafter_back() -> None:
    costs = HOPELESS.costs()
    costs.backoffs.failed_runs["a"] = MAX_FAILED_RUNS - 1
    policies = [Goodput(config_of(HOPELESS), costs) for _ in range(2)]
    rng = random.Random(1)
    for number in range(60):
        for policy in policies:
            policy.observe(HOPELESS.round(number, 3 * number, policy.choose(), rng)[0])
    assert [policy.choose().length for policy in policies] == [0, 0]
    costs.backoffs.disabled_for_all_runs.clear()  # like a third run's successful probe
    for number in range(ROUNDS_PER_PLAN):
        policies[0].observe(HOPELESS.round(number, 180 + number, policies[0].choose(), rng)[0])
    assert policies[0].choose().length > 0


def policy_of(**fields: object) -> Goodput:
    defaults = {"drafters": ("x", "y", "ngram"), "expansion": (1,), "length": "goodput"}
    return Goodput(SpeculationConfig(**{**defaults, **fields}), CHEAP.costs())  # type: ignore[arg-type]


def test_the_audition_picks_the_one_ssm_that_drafts() -> None:
    policy = policy_of()
    assert isinstance(policy, Auditions) and policy.chooses
    policy.observe_audition({"x": -3.0, "y": -1.0})
    assert policy.choose().drafters == {"y", "ngram"}


def test_without_an_audition_the_first_ssm_drafts() -> None:
    policy = policy_of()
    policy.observe_audition({})
    assert policy.choose().drafters == {"x", "ngram"}
    assert not policy_of(drafters=("x", "ngram")).chooses
    assert policy_of(drafters=("ngram",)).choose().drafters == {"ngram"}


@pytest.mark.parametrize("combine", ["vote", "log_pool"])
def test_drafters_of_a_vote_or_pool_are_one_group(combine: str) -> None:
    worthless = World((*HOPELESS.drafters, drafter("b", 0.1, 1, 1)), linear(5, 0.1))
    for world in (INDEPENDENT, worthless):
        costs = world.costs()
        policy = Goodput(config_of(world, combine=combine), costs)
        assert not policy.chooses
        result = simulate(world, 400, policy, costs)
        assert {choice.drafters for choice in result.choices} <= {frozenset("ab"), frozenset()}
        assert (result.lengths[-1] == 0) == (world is worthless)


def test_the_reason_reports_the_stop_of_the_drafter_that_drafts() -> None:
    ssm, lookup = drafter("a", 0.02, 3.0, 3.0), drafter("ngram", 0.85, 0.1, 0.1)
    late = run(World((ssm, lookup), linear(5, 0.1)), 600).choices[-40:]
    lookups = [choice for choice in late if choice.drafters == {"ngram"} and choice.length > 1]
    assert lookups
    for choice in lookups:
        limits = choice.stop.limits("ngram") if choice.stop else None
        assert limits is not None and limits.scores is not None
        assert f"while its score is at least {limits.scores[1]:.2f}" in choice.reason


def test_an_ngram_lookup_that_does_not_pay_is_switched_off_alone() -> None:
    world = World((drafter("a", 0.85, 0.3, 0.3), drafter("ngram", 0.02, 3.0, 0.0)), linear(5, 0.1))
    late = run(world, 400).choices[-10:]
    assert {choice.drafters for choice in late} == {frozenset("a")}


def test_without_drafters_goodput_is_plain_decoding() -> None:
    choice = policy_of(drafters=()).choose()
    assert choice.length == 0 and choice.drafters is None
    assert choice.reason == "plain decoding: there is no drafter"


@pytest.mark.parametrize("name", ["cheap", "expensive", "steep"])
def test_estimates_agree_with_the_worlds_averages(name: str) -> None:
    world = WORLDS[name]
    (only,) = world.drafters
    long_choices = [
        choice for choice in run(world, TOKENS).choices[50:] if choice.length > PROBE_LENGTH
    ]
    estimates = [choice.estimates for choice in long_choices]
    for length in (1, 2, 4):
        tokens = sum(only.chance(0) ** depth for depth in range(length + 1))
        ms = world.verify(length) + world.overhead + only.start(0) + (length - 1) * only.step(0)
        results = [one[length] for one in estimates]
        assert sum(e.tokens for e in results) / len(results) == pytest.approx(tokens, rel=0.1)
        assert sum(e.ms for e in results) / len(results) == pytest.approx(ms, rel=0.1)


def test_a_budget_bounds_the_length() -> None:
    costs = CHEAP.costs()
    policy = Goodput(config_of(CHEAP, max_tree_nodes=3), costs)
    result = simulate(CHEAP, 200, policy, costs)
    assert set(result.lengths) == {3}
    assert [e.length for e in result.choices[-1].estimates] == [0, 1, 2, 3]
    one = Goodput(config_of(CHEAP, max_tree_nodes=1), costs)
    assert one.choose().reason.endswith("the node budget allows one step")


def test_a_length_limit_of_one_step_is_named_as_the_reason() -> None:
    config = config_of(CHEAP, speculation_length=1, max_speculation_length=1)
    reason = Goodput(config, CHEAP.costs()).choose().reason
    assert reason.endswith("max_speculation_length allows one step")


@pytest.mark.parametrize("ms", [0.0, math.nan, math.inf, -1.0])
def test_invalid_times_are_tolerated(ms: float) -> None:
    table = VerifyCosts({0: ms, 1: ms, 8: 0.0}, 64)
    policy = Goodput(config_of(CHEAP), Costs(None, table))  # type: ignore[arg-type]
    for _ in range(40):
        choice = policy.choose()
        if choice.stop is not None:
            choice.stop.continues("a", 2, [math.nan])
            choice.stop.keeps(math.nan)
        count = choice.length
        depths, ones = tuple(range(1, count + 1)), (1,) * count
        draft = DraftOutcome(ms, count, depths, (0,), 1, ms, ms, num_verified=count)
        policy.observe(RoundOutcome(count, 2, count, ms, ms, {"a": draft}, widths=ones))
    assert 0 <= policy.choose().length <= 16
    assert all(math.isfinite(e.ms) and math.isfinite(e.tokens) for e in policy.choose().estimates)


def test_a_step_is_run_while_its_tokens_are_worth_its_time() -> None:
    rule = StopRule({"a": step_limits(1.0, (0.4, 0.8), 3)}, 0.1)
    assert rule.continues("a", 1, [0.0]), "the back-off decides whether there is a draft"
    assert rule.continues("a", 2, [0.41]) and not rule.continues("a", 2, [0.39])
    assert rule.continues("a", 2, [0.21, 0.21]), "the chances of a frontier's nodes are added up"
    assert rule.continues("a", 3, [0.9, 0.9]) and not rule.continues("a", 3, [0.79])
    assert not StopRule({"a": step_limits(1.0, (1.1,), 2)}, 0.1).continues("a", 2, [0.9, 0.9])
    assert not rule.continues("a", 4, [1.0]), "beyond the bound"
    assert not rule.continues("b", 1, [1.0]), "not chosen"
    assert rule.limits("b") == StopLimits(longest=0)


def test_a_probe_is_not_stopped_by_scores() -> None:
    rule = StopRule({"a": StopLimits(longest=2)}, 0.1)
    assert rule.continues("a", 2, [0.001]) and not rule.continues("a", 3, [1.0])


def test_a_node_is_kept_if_its_score_is_worth_its_time() -> None:
    rule = StopRule({}, 0.1)
    assert rule.keeps(0.11) and not rule.keeps(0.09)
    assert rule.grows(0.0)


def test_a_steps_worth_is_scaled_by_the_acceptance_rate() -> None:
    """A step costs the time of 0.4 tokens."""
    assert StopRule({"a": step_limits(0.9, (0.4,), 2)}, 0.1).continues("a", 2, [0.5])
    assert not StopRule({"a": step_limits(0.7, (0.4,), 2)}, 0.1).continues("a", 2, [0.5])
    assert not StopRule({"a": step_limits(0.0, (0.4,), 2)}, 0.1).continues("a", 2, [1.0])


@pytest.mark.parametrize("kind", ["topk", "coupled"])
@pytest.mark.parametrize("cost", [0.02, 0.3])
def test_the_native_kernel_stops_where_the_rule_does(
    cost: float, kind: str, native_calls: list[int]
):
    """`run_rounds` compares the kernel's drafts with drafts that use the rule itself."""
    # The SSM "three" is not chosen, and the SSM "two" is probed.
    limits = step_limits(0.9, (cost, 1.5 * cost, 2 * cost), 4)
    stop = StopRule({"one": limits, "two": StopLimits(longest=2)}, 0.0)
    sampling = WARM if kind == "coupled" else COLD
    drafts = run_rounds(two_pools(), sampling, [(1,) * 6, (2, 1, 1, 1, 1)], stop=stop, kind=kind)
    assert native_calls == [4] * len(FOLLOWING)
    deepest = [max(draft.depths, default=0) for draft in drafts]
    assert 0 in deepest and 2 in deepest
    assert (max(deepest) > 2) == (cost == 0.02), "at the lower cost, drafts are deeper"
