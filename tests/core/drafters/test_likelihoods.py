"""Likelihoods of committed tokens, and the weights that drafters get from them."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters import ssm as ssm_module
from core.drafters.calibration import Calibration
from core.drafters.drafter_weights import FLOOR, FORGETTING, LikelihoodHistory, LikelihoodWeights
from core.drafters.ssm_state import SsmState
from core.engine import round as round_module
from core.engine.round_state import ActiveRequest
from core.events import Event, RoundCompleted
from core.models.protocol import Feed
from core.trees.verify import Verdict, VerifyInput
from tests.core.engines import ids_of_events
from tests.fakes import TableModel, loaded_tables, random_table

VOCAB = 8
SETTINGS = (
    {"combine": "vote", "expansion": (1,)},
    {"combine": "vote_tree", "vote_nodes": 3, "expansion": (2, 1)},
    {"combine": "vote_tree", "draft": "best_first", "expansion": (3,), "max_tree_nodes": 6},
    {"combine": "log_pool", "expansion": (2, 2)},
    {"combine": "log_pool", "draft": "best_first", "expansion": (3,), "max_tree_nodes": 5},
    {"combine": "vote", "drafters": ("ngram", "all")},
)


@pytest.fixture
def observations(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[float]]]:
    results: dict[str, list[float]] = {}
    real = LikelihoodWeights.observe_likelihoods

    def observe_and_note(
        self: LikelihoodWeights,
        by_drafter: Mapping[str, Sequence[float]],
        text: LikelihoodHistory,
    ) -> None:
        for name, probabilities in by_drafter.items():
            results.setdefault(name, []).extend(probabilities)
        real(self, by_drafter, text)

    monkeypatch.setattr(LikelihoodWeights, "observe_likelihoods", observe_and_note)
    yield results


def tables() -> tuple[TableModel, list[TableModel]]:
    llm = TableModel("llm", VOCAB, random_table(VOCAB, 1), 96)
    return llm, [TableModel(f"ssm-{i}", VOCAB, random_table(VOCAB, i + 1), 96) for i in range(3)]


def own_probabilities(ssm: TableModel, tokens: Sequence[int]) -> list[float]:
    """The SSM's probability of each token but the first, given the tokens before it."""
    distributions = (ssm.logits(tuple(tokens[:i])).softmax(-1) for i in range(1, len(tokens)))
    return [float(p[token]) for p, token in zip(distributions, tokens[1:], strict=True)]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_each_likelihood_is_reported_once_with_its_true_value(
    observations, settings: dict[str, object], temperature: float
):
    llm, ssms = tables()
    prompt = "w3 w1 w4 w1 w5"
    config = SpeculationConfig(speculation_length=4, **settings)  # type: ignore[arg-type]
    request = Request(prompt, SamplingParams(40, temperature, seed=5), config)
    new = ids_of_events(Engine(loaded_tables(llm, ssms)).generate(request))
    tokens = [3, 1, 4, 1, 5, *new]
    for ssm in ssms:
        expected = own_probabilities(ssm, tokens)
        got = observations[ssm.info.name]
        # A round's likelihoods are reported with the next draft; no draft follows the last round.
        assert len(expected) - 6 <= len(got) <= len(expected)
        assert got == pytest.approx(expected[: len(got)], rel=1e-4)


def test_of_a_long_prompt_only_the_end_is_reported(observations, monkeypatch):
    monkeypatch.setattr(ssm_module, "SCORED_PROMPT", 7)
    monkeypatch.setattr(ssm_module, "SCORED_CHUNK", 3)
    monkeypatch.setattr(ssm_module, "PREFILL_CHUNK", 5)
    llm, ssms = tables()
    ids = [(3 * i + i // 4) % VOCAB for i in range(30)]
    words = " ".join(f"w{i}" for i in ids)
    request = Request(words, SamplingParams(1), SpeculationConfig(combine="vote"))
    list(Engine(loaded_tables(llm, ssms)).generate(request))
    # A request for one token drafts nothing and opens no drafter.
    assert not observations
    request = Request(request.prompt, SamplingParams(2), request.speculation)
    tokens = [*ids, *ids_of_events(Engine(loaded_tables(llm, ssms)).generate(request))]
    for ssm in ssms:
        assert observations[ssm.info.name] == pytest.approx(
            own_probabilities(ssm, tokens[:30])[-7:], rel=1e-4
        )


def test_weights_that_read_no_likelihoods_get_none(observations: dict[str, list[float]]) -> None:
    llm, ssms = tables()
    for config in (SpeculationConfig(), SpeculationConfig(combine="vote", weights="paper")):
        list(Engine(loaded_tables(llm, ssms)).generate(Request("w1", SamplingParams(9), config)))
    assert not observations


def test_prompt_lookup_reports_its_score_where_it_drafted(
    observations: dict[str, list[float]],
) -> None:
    def cycle(context: tuple[int, ...]) -> list[float]:
        return [1.0 if i == context[-1] % 3 + 1 else 0.0 for i in range(VOCAB)]

    llm = TableModel("llm", VOCAB, cycle, 96)
    ssm = TableModel("ssm-0", VOCAB, random_table(VOCAB, 2), 96)
    config = SpeculationConfig(drafters=("ngram", "all"), combine="vote", speculation_length=3)
    request = Request("w1", SamplingParams(30), config)
    assert ids_of_events(Engine(loaded_tables(llm, [ssm])).generate(request))[:4] == [2, 3, 1, 2]
    known = [p for p in observations["ngram"] if not math.isnan(p)]
    assert math.isnan(observations["ngram"][0])
    assert len(known) >= 15 and known[0] <= 0.5 and known[-1] > 0.75


def by_hand(ssms: Sequence[TableModel], text: Sequence[int]) -> dict[str, float]:
    """Each SSM's log weight after a text, by w <- w^FORGETTING P(token)."""
    logs = {}
    for ssm in ssms:
        results = [math.log(max(FLOOR, p)) for p in own_probabilities(ssm, text)]
        logs[ssm.info.name] = sum(FORGETTING**i * log for i, log in enumerate(reversed(results)))
    return logs


def rounds_with_texts(
    events: Sequence[Event], prompt: Sequence[int]
) -> Iterator[tuple[RoundCompleted, list[int]]]:
    text = list(prompt)
    for event in events:
        if isinstance(event, RoundCompleted):
            yield event, list(text)
            text += event.token_ids


PROMPT = (3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 7)


def run_of(settings: dict[str, object], temperature: float) -> tuple[list[Event], list[TableModel]]:
    llm, ssms = tables()
    config = SpeculationConfig(speculation_length=2, **settings)  # type: ignore[arg-type]
    words = " ".join(f"w{i}" for i in PROMPT)
    request = Request(words, SamplingParams(24, temperature, seed=5), config)
    return list(Engine(loaded_tables(llm, ssms)).generate(request)), ssms


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("combine", ["vote", "vote_tree"])
def test_a_drafter_without_likelihoods_begins_with_the_others_mean(combine, temperature):
    events, ssms = run_of({"combine": combine, "drafters": ("ngram", "all")}, temperature)
    first, text = next(rounds_with_texts(events, PROMPT))
    logs = by_hand(ssms, text)
    logs["ngram"] = sum(logs.values()) / len(logs)
    mean = sum(map(math.exp, logs.values())) / len(logs)
    expected = {name: math.exp(log) / mean for name, log in logs.items()}
    assert first.weights == pytest.approx(expected, rel=1e-4)


def with_time_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    verify = round_module.verify

    def slowly(rule: str, case: VerifyInput) -> Verdict:
        time.sleep(0.01)
        return verify(rule, case)

    monkeypatch.setattr(round_module, "verify", slowly)


@pytest.mark.parametrize("pipeline", ["off", "ahead"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "drafts_in", [lambda i, n: n >= 3 * i, lambda i, n: n % (i + 1) == 0], ids=["late", "by turns"]
)
def test_drafters_that_draft_seldom_are_weighted_by_the_same_tokens(
    drafts_in: Callable[[int, int], bool],
    temperature: float,
    pipeline: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`drafts_in(i, n)`: whether drafter i drafts in round n."""

    def drafters_for(self: ActiveRequest, choice: object) -> list[int]:
        return [i for i in range(3) if drafts_in(i, self.sequence.round)]

    monkeypatch.setattr(ActiveRequest, "drafters_for", drafters_for)
    with_time_ahead(monkeypatch)
    events, ssms = run_of({"combine": "vote_tree", "pipeline": pipeline}, temperature)
    compared = 0
    for event, text in rounds_with_texts(events, PROMPT):
        if not all(drafts_in(i, event.round) for i in range(3)):
            continue
        logs = by_hand(ssms, text)
        mean = sum(map(math.exp, logs.values())) / 3
        expected = {name: math.exp(log) / mean for name, log in logs.items()}
        assert event.weights == pytest.approx(expected, rel=1e-4)
        compared += 1
    assert compared >= 2


@pytest.mark.loses_drafters
def test_after_a_pooled_ssm_is_lost_the_others_likelihoods_are_reported(observations, monkeypatch):
    calls = itertools.count()
    forward = TableModel.forward

    def failing(self: TableModel, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if self.info.name == "ssm-2" and next(calls) == 12:
            raise RuntimeError("once")
        return forward(self, feeds)

    monkeypatch.setattr(TableModel, "forward", failing)
    events, _ = run_of({"combine": "log_pool", "expansion": (1,)}, 0.8)
    lost = [e.round for e in events if isinstance(e, RoundCompleted) and e.notes]
    committed = ids_of_events(e for e in events if isinstance(e, RoundCompleted))
    assert lost and 0 < lost[0] < 8
    for name in ("ssm-0", "ssm-1"):
        assert len(observations[name]) >= len(PROMPT) - 1 + len(committed) - 6, (
            "all likelihoods, except in the last rounds"
        )
        unknown = sum(map(math.isnan, observations[name]))
        assert unknown <= 3, "only likelihoods of the round in which the SSM failed"


def test_tokens_without_logits_have_unknown_likelihoods() -> None:
    """No logits predict position 2."""
    state = SsmState(0, Calibration(), scored_until=2)
    logits = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    state.record_likelihoods(logits, [1, 0, 1, 1, 0], first=3)
    expected = logits.softmax(-1)[[0, 1], [1, 0]].tolist()
    assert math.isnan(state.likelihoods[0]) and state.likelihoods[1:] == pytest.approx(expected)
    state.record_likelihoods(logits, [1, 0, 1, 1, 0], first=3)
    assert (state.scored_until, len(state.likelihoods)) == (5, 3), "each likelihood is kept once"
