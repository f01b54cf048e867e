"""`weights=paper` in complete runs, compared with a second implementation."""

from collections.abc import Iterator

import pytest

from core import Engine, SamplingParams, SpeculationConfig
from core.events import Combined, Event, RoundCompleted, Verified
from tests.core.engines import VOCAB, by_run, engine_of, request, rounds_of
from tests.fakes import Table, TableModel, random_table

NAMES = ("left", "right")
ETA, LOW, HIGH = 0.3, 0.5, 1.6
CONFIG = SpeculationConfig(
    combine="vote", weights="paper", eta=ETA, weight_bounds=(LOW, HIGH), speculation_length=3,
    max_tree_nodes=3,
)  # fmt: skip
Win = tuple[str, float]  # (winner of a round, share of the tree's nodes that were accepted)


def half(llm: Table, other: Table, low: bool) -> Table:
    """`llm` after tokens of one half of the vocabulary, else `other`."""
    return lambda context: (llm if (context[-1] < VOCAB // 2) == low else other)(context)


def engine() -> Engine:
    llm, other = random_table(VOCAB, 1, sharpness=2.5), random_table(VOCAB, 2)
    models = [TableModel(n, VOCAB, half(llm, other, n == "left"), 512) for n in NAMES]
    return engine_of(TableModel("llm", VOCAB, llm, 512), models)


def rounds(run: list[Event]) -> Iterator[tuple[Combined, Verified, RoundCompleted]]:
    combined = [event for event in run if isinstance(event, Combined)]
    verified = [event for event in run if isinstance(event, Verified)]
    completed = rounds_of(run)
    return zip(combined, verified, completed, strict=True)


class Reference:
    """A second implementation of Minions' rewards (arXiv 2402.15678)."""

    def __init__(self) -> None:
        self.weights = dict.fromkeys(NAMES, 1.0)
        self.shares: list[float] = []

    def observe(self, wins: list[Win]) -> None:
        # After 64 wins, the engine's mean gradually forgets old wins.
        assert len(self.shares) + len(wins) <= 64
        if wins and self.shares:
            theta = sum(self.shares) / len(self.shares)
            for name in {name for name, _ in wins}:
                own = [share for winner, share in wins if winner == name]
                mean = sum(own) / len(own)
                if abs(mean - theta) > 1e-12:
                    self.weights[name] *= 1 + ETA if mean > theta else 1 / (1 + ETA)
        self.shares += [share for _, share in wins]
        average = sum(self.weights.values()) / len(NAMES)
        for name in NAMES:
            self.weights[name] = min(max(self.weights[name] / average, LOW), HIGH)


def win(combined: Combined, verified: Verified) -> list[Win]:
    if not combined.token_ids:
        return []
    return [(combined.winner, len(verified.path) / len(combined.token_ids))]


def test_a_runs_weights_are_the_papers_round_by_round() -> None:
    sampling = SamplingParams(100, temperature=0.8, seed=1)
    (run,) = by_run(list(engine().generate(request(sampling=sampling, config=CONFIG))))
    reference = Reference()
    winners = []
    for combined, verified, completed in rounds(run):
        assert combined.weights == pytest.approx(reference.weights), "the vote uses these weights"
        reference.observe(win(combined, verified))
        assert completed.weights == pytest.approx(reference.weights)
        winners.append(combined.winner)
    assert min(winners.count(name) for name in NAMES) >= 5, "both SSMs win several rounds"
    assert len(set(reference.shares)) > 2
    assert max(abs(weight - 1) for weight in completed.weights.values()) > 0.05


def test_requests_that_share_their_weights_are_one_batch() -> None:
    config = SpeculationConfig(**{**CONFIG.to_plain(), "carry_over": True})
    requests = [
        request(text, SamplingParams(40, temperature=0.8, seed=seed), config)
        for seed, text in enumerate(("w1 w2", "w6 w7 w3"))
    ]
    runs = [list(rounds(run)) for run in by_run(list(engine().generate_many(requests)))]
    reference = Reference()
    shared_wins = 0
    for number in range(max(map(len, runs))):
        together = [run[number] for run in runs if number < len(run)]
        wins = [one for combined, verified, _ in together for one in win(combined, verified)]
        shared_wins += len({name for name, _ in wins}) < len(wins)
        reference.observe(wins)
        for _, _, completed in together:
            assert completed.weights == pytest.approx(reference.weights)
    assert shared_wins, "in some round the same SSM wins for both requests"


@pytest.mark.parametrize("other", [{"eta": 0.7}, {"weight_bounds": [0.8, 1.2]}], ids=str)
def test_weights_are_carried_over_to_runs_of_the_same_rule_only(other: dict[str, object]) -> None:
    carried = SpeculationConfig(**{**CONFIG.to_plain(), "carry_over": True})
    changed = SpeculationConfig(**{**carried.to_plain(), **other})

    def last_weights(engine_used: Engine, config: SpeculationConfig, text: str) -> dict[str, float]:
        run_request = request(text, SamplingParams(40, temperature=0.8, seed=3), config)
        return [
            round_event for _, _, round_event in rounds(list(engine_used.generate(run_request)))
        ][-1].weights

    one = engine()
    first = last_weights(one, carried, "w1 w2")
    alone = last_weights(engine(), changed, "w6 w7 w3")
    assert last_weights(one, changed, "w6 w7 w3") == alone, "as in a new engine"
    again = engine()
    assert last_weights(again, carried, "w1 w2") == first
    assert (
        last_weights(one, carried, "w6 w7 w3")
        == last_weights(again, carried, "w6 w7 w3")
        != last_weights(engine(), carried, "w6 w7 w3")
    )
