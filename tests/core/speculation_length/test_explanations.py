"""The policies' explanations of a round's length."""

import dataclasses
import re
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import pytest

from core.config import LENGTHS, Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import implementation_of, length_policy
from core.events import Combined, Drafted, DraftRecord, Estimate, Event, RoundCompleted
from core.speculation_length.cost_model import NODE_COUNTS, VerifyCosts
from core.speculation_length.goodput import DEEPER
from core.speculation_length.history import LengthHistory
from tests.core.engines import engine_of
from tests.golden.record import PassClock, TimedTable

LLM_MS, SSM_MS = (10.0, 0.5), (1.0, 0.1)


@dataclass
class RoundLine:
    number: int
    length: int
    length_reason: str = ""
    next_length: int | None = None  # type: ignore[assignment]
    estimates: tuple[Estimate, ...] = ()
    depth: int = 0
    draft_depths: tuple[tuple[str, int], ...] = ()


def rounds_of(*records: tuple[int, str]) -> list[RoundLine]:
    """Rounds from pairs (length, reason of the next round's length)."""
    lengths = [length for length, _ in records]
    followed = zip(records, [*lengths[1:], lengths[-1]], strict=True)
    return [
        RoundLine(number, length, reason, following)
        for number, ((length, reason), following) in enumerate(followed)
    ]


def chain(name: str, *scores: float) -> DraftRecord:
    count = len(scores)
    tokens, ones = tuple(range(count)), (1.0,) * count
    parents, depths = tuple(range(-1, count - 1)), tuple(range(1, count + 1))
    return DraftRecord(
        name, tokens, ("x",) * count, parents, depths, scores, ones, tokens, False, ()
    )


def explain(policy: str, history: LengthHistory) -> str:
    return str(implementation_of(length_policy(policy).explain)(history))


CUT = "drafts are at most 3 deep (max_tree_nodes is 24, for 5 drafters)"
ENDS = "drafts are at most 2 deep (the text ends after 3 more)"
COUNTED = "8 stays: {} of 16 verifications made with it"
FIRST = "8 -> 9: nothing to compare with yet (at 8 it is 0.78 ms)"
FALLS = (
    "9 -> 10: the LLM's time per token falls with the length (at 9 it is 0.70 ms, -0.080 ms a step)"
)
RISES = (
    "9 -> 7: the LLM's time per token rises with the length (at 9 it is 0.90 ms, +0.120 ms a step)"
)
EXPLAINED: Mapping[str, tuple[str, list[RoundLine], str]] = {
    "fixed": (
        "fixed",
        rounds_of((8, CUT), (8, CUT)),
        f"speculation_length is 8 in every round; {CUT}.",
    ),
    "trend waits": (
        "trend",
        rounds_of((8, COUNTED.format(1)), (8, COUNTED.format(2)), (8, COUNTED.format(3))),
        "8 in every round so far: it is judged after 16 LLM passes, of which 2 were measured.",
    ),
    "trend tries": (
        "trend",
        rounds_of((8, FIRST), (9, "9 stays: 1 of 16 verifications made with it")),
        "9, up from 8 in round 1: with 8 the LLM's passes took 0.78 ms for each token written, "
        "and no other length is known yet, so 1 more is tried.",
    ),
    "trend rises": (
        "trend",
        rounds_of((9, FALLS), (10, ""), (10, "")),
        "10 since round 2, up from 9: with 9 the LLM's passes took 0.70 ms for each token "
        "written, 0.080 ms less for each step of length, so 1 more is tried.",
    ),
    "trend falls": (
        "trend",
        rounds_of((9, RISES), (7, "")),
        "7, down from 9 in round 1: with 9 the LLM's passes took 0.90 ms for each token "
        "written, 0.120 ms more for each step of length, so 2 fewer are tried.",
    ),
    "the end of the text": (
        "trend",
        rounds_of((9, f"{COUNTED.format(4)}; {ENDS}"), (2, "")),
        f"2, down from 9 in round 1: {ENDS}.",
    ),
    "the scheduler": (
        "trend",
        rounds_of((9, f"{COUNTED.format(4)}; the batch grants 3"), (3, "")),
        "3, down from 9 in round 1: the scheduler grants 3.",
    ),
    "nothing granted": (
        "goodput",
        rounds_of((9, "the batch grants no draft"), (0, "")),
        "no SSM drafted. At most 0, down from 9 in round 1: the scheduler grants no draft.",
    ),
    "plain": (
        "goodput",
        rounds_of(
            (9, "9 -> 0: no draft beats plain decoding at 215 tokens a second; ssm-a stops "
            "drafting: it is 4 tokens behind"),
            (0, ""), (0, ""),
        ),
        "no SSM drafted. At most 0 since round 2, down from 9: no draft beats plain decoding at "
        "215 tokens a second; ssm-a stops drafting: it is 4 tokens behind.",
    ),
    "no deep tree": (
        "goodput",
        rounds_of((9, "10 -> 9: a second step takes 0.50 ms, a token 4.00 ms"), (8, "")),
        "no SSM drafted. At most 8, down from 9 in round 1: 8 more than the deepest recent tree, "
        "whose depth counts one less with each new plan.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXPLAINED)
def test_a_change_of_the_length_is_explained_by_its_recorded_reason(case: str) -> None:
    policy, rounds, expected = EXPLAINED[case]
    assert explain(policy, LengthHistory(rounds)) == expected


def test_a_choice_that_was_changed_after_it_was_recorded_has_no_reason() -> None:
    """An audition (see `speculation_length.Auditions`) or a new grant of the scheduler may change a
    choice."""
    rounds = rounds_of((8, FIRST), (9, ""))
    rounds[0] = dataclasses.replace(rounds[0], next_length=8)
    text = explain("trend", LengthHistory(rounds))
    assert "0.78" not in text and text.startswith("9, up from 8 in round 1")


def test_confidence_names_the_token_and_its_score() -> None:
    speculation = {"confidence_threshold": 0.4}
    rounds = rounds_of((8, ""), (8, ""))
    rounds[0].draft_depths = (("ssm-a", 5), ("ssm-b", 1))
    drafts = (chain("ssm-b", 0.2), chain("ssm-a", 0.9, 0.5, 0.31), chain("ngram", *[0.9] * 6))
    assert explain("confidence", LengthHistory(rounds, drafts, speculation)) == (
        "ssm-a drafted 3 deep (5 in round 1): the score of token 3 is 0.31, under "
        "confidence_threshold=0.4; at most 8 in every round."
    )
    sure = (chain("ssm-a", *[0.9] * 8),)
    assert explain("confidence", LengthHistory(rounds, sure, speculation)) == (
        "ssm-a drafted 8 deep (5 in round 1): no score was under confidence_threshold=0.4; "
        "at most 8 in every round."
    )
    assert explain("confidence", LengthHistory(rounds, (), speculation)) == (
        "No SSM drafted; at most 8 in every round."
    )


def test_goodput_compares_the_next_tokens_worth_with_its_time() -> None:
    reason = "4 -> 10: a second step takes 0.50 ms, a token 4.00 ms, so a draft goes on while"
    # 80 % of drafted tokens are accepted; each step takes 0.50 ms.
    times = [Estimate(0, 0, 1.0, 4.0)]
    times += [Estimate(n, n, 1 + 0.8 * n, 4 + 0.5 * n) for n in (1, 2, 3)]
    rounds = rounds_of((4, reason), (10, ""))
    rounds[0].estimates, rounds[0].depth = tuple(times), 2
    rounds[0].draft_depths = (("ssm-a", 3),)
    draft = chain("ssm-a", 0.5, 0.2)  # token 3 is right with probability 0.8 * 0.5 * 0.2
    assert explain("goodput", LengthHistory(rounds, (draft,))) == (
        "ssm-a drafted 2 deep (3 in round 1): token 3 would be right with a chance of 8.0 %, worth "
        "0.32 ms at 4.00 ms a token, and would cost 0.50 ms. At most 10, up from 4 in round 1: the "
        "tree of round 1 was 2 deep, and a draft may go 8 steps deeper than the deepest recent "
        "tree."
    )
    probable = chain("ssm-a", 0.9, 0.9)  # a longer draft would have paid: no reason is given
    assert explain("goodput", LengthHistory(rounds, (probable,))).startswith(
        "ssm-a drafted 2 deep (3 in round 1). At most 10"
    )


WORTH = re.compile(
    r"drafted (\d+) deep.*: token (\d+) would be right with a chance of ([\d.]+) %, worth "
    r"([\d.]+) ms at ([\d.]+) ms a token, and would cost ([\d.]+) ms"
)
ROSE = re.compile(r"up from \d+(?: in round \d+)?: the tree of round (\d+) was (\d+) deep")


WITH_REASONS = tuple(name for name in LENGTHS if length_policy(name).explain)


@pytest.fixture(scope="module", params=WITH_REASONS)
def run(request: pytest.FixtureRequest) -> tuple[str, list[Event]]:
    clock, table = PassClock(), VerifyCosts({n: 10.5 + 0.5 * n for n in NODE_COUNTS}, 64)
    with pytest.MonkeyPatch.context() as patch:
        measure = "core.speculation_length.cost_model.ledger.measure_verify_costs"
        patch.setattr(measure, lambda llm: table)
        patch.setattr(time, "perf_counter", clock)
        llm = TimedTable("llm", 1, clock, LLM_MS)
        ssms = [TimedTable(f"ssm-{seed}", seed, clock, SSM_MS) for seed in (1, 2)]
        config = SpeculationConfig(
            length=request.param, expansion=(1,), speculation_length=4, max_tree_nodes=40
        )
        sampling = SamplingParams(90, temperature=0.7, seed=3)
        with closing(engine_of(llm, ssms)) as engine:  # type: ignore[arg-type]
            return request.param, list(engine.generate(Request("w1 w2 w3", sampling, config)))


def test_every_round_is_explained_by_its_events(run: tuple[str, list[Event]]) -> None:
    policy, events = run
    completed = [event for event in events if isinstance(event, RoundCompleted)]
    drafted = [event for event in events if isinstance(event, Drafted)]
    trees = [event for event in events if isinstance(event, Combined)]
    records = [
        RoundLine(
            one.round,
            one.speculation_length,
            one.length_reason,
            one.next_speculation_length,
            one.estimates,
            max(tree.depths, default=0),
            tuple((draft.drafter, max(draft.depths)) for draft in event.drafts if draft.depths),
        )
        for one, tree, event in zip(completed, trees, drafted, strict=True)
    ]
    speculation = {"confidence_threshold": 0.4}
    num_worth = num_rises = 0
    for number, record in enumerate(records):
        history = LengthHistory(records[: number + 1], drafted[number].drafts, speculation)
        text = explain(policy, history)
        assert text.endswith(".") and f"{record.length}" in text
        changed = number and record.length != records[number - 1].length
        assert bool(changed) == bool(re.search(r"(up|down) from \d+ in round", text)), text
        if found := WORTH.search(text):
            num_worth += 1
            check_worth(found, records[number - 1], drafted[number].drafts)
        if found := ROSE.search(text):
            num_rises += 1
            assert max(trees[int(found[1]) - 1].depths) == int(found[2])
            assert record.length <= int(found[2]) + DEEPER
    if policy == "goodput":
        assert num_worth > len(records) / 3 and num_rises, "otherwise nothing was checked"


def check_worth(found: re.Match[str], before: RoundLine, drafts: tuple[DraftRecord, ...]) -> None:
    depth, following, percent, worth_ms, token_ms, cost_ms = (float(one) for one in found.groups())
    assert following == depth + 1
    assert f"a token {found[5]} ms" in before.length_reason
    draft = next(one for one in drafts if one.depths and max(one.depths) == depth)
    chances: dict[int, float] = {-1: 1.0}
    for node, (parent, score) in enumerate(zip(draft.parents, draft.scores, strict=True)):
        chances[node] = chances[parent] * score
    frontier = sum(chances[node] for node, d in enumerate(draft.depths) if d == depth)
    right = min(1.0, frontier) * (before.estimates[1].tokens - 1)
    assert percent == pytest.approx(100 * right, abs=0.051)
    assert worth_ms == pytest.approx(right * token_ms, abs=0.0051)
    step = before.estimates[int(following)].ms - before.estimates[int(depth)].ms
    assert cost_ms == pytest.approx(step, abs=0.0051) and worth_ms <= cost_ms
