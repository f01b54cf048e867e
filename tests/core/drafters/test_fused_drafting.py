"""CoSine's confidence-based token fusion. The trunk is the chain of the winning tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from core.config import SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.fused_drafting import draft_fused
from core.drafters.pooled_drafting import PooledRequest
from core.drafters.ssm import SsmDrafter
from core.errors import DrafterError
from core.models.protocol import Feed
from core.speculation_length.base import Stop
from core.speculation_length.confidence import Confidence
from core.trees.combine import combine
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from core.trees.sampling import process_logits
from tests.fakes import TableModel, random_table, sequence_of

VOCAB = 6
PROMPT = (0, 3, 1)
STEPS = 4


def ssms(count: int = 3, sharpness: Sequence[float] = (1.5, 1.5, 1.5)) -> dict[str, SsmDrafter]:
    results = {}
    for i, sharp in enumerate(sharpness[:count]):
        model = TableModel(f"ssm-{i}", VOCAB, random_table(VOCAB, i, sharp), 64)
        results[f"ssm-{i}"] = SsmDrafter(f"ssm-{i}", model, VOCAB)
    return results


def pool(
    drafters: Mapping[str, SsmDrafter],
    *,
    budget: int = 99,
    temperature: float = 0.0,
    weights: Sequence[float] = (1.0, 1.0, 1.0),
    eos_ids: frozenset[int] = frozenset(),
    stop: Stop | None = None,
) -> PooledRequest:
    sampling = SamplingParams(50, temperature=temperature, seed=3)
    config = SpeculationConfig(draft="fused")
    sequence = sequence_of(PROMPT, config, sampling, SeededNoise(3, VOCAB), eos_ids=eos_ids)
    for drafter in drafters.values():
        drafter.open(sequence)
    several = [
        DraftRequest(sequence, i, "fused", (1,) * STEPS, budget, name, stop)
        for i, name in enumerate(drafters)
    ]
    return PooledRequest(tuple(several), tuple(weights[: len(several)]))


def confident(threshold: float) -> Stop:
    config = SpeculationConfig(length="confidence", confidence_threshold=threshold)
    stop = Confidence(config).choose().stop
    assert stop is not None
    return stop


def scores(drafter: SsmDrafter, path: Sequence[int], request: DraftRequest) -> torch.Tensor:
    sequence = request.sequence
    logits = drafter.feeder.model.logits((*PROMPT, *path))[None]
    if sequence.sampling.greedy:
        return logits.softmax(-1)[0]
    log_q = process_logits(logits, sequence.sampling).double().log_softmax(-1)
    return (log_q + sequence.noise.gumbel(request.root_position + len(path) + 1)).softmax(-1)[0]


def by_the_rule(drafters: Mapping[str, SsmDrafter], asked: PooledRequest, *, weighted: bool):
    """CoSine's rule. Returns (trunk tokens, index of each trunk token's SSM, value by path)."""
    trunk: tuple[int, ...] = ()
    winners: list[int] = []
    values: dict[tuple[int, ...], float] = {(): 1.0}

    def propose(path: tuple[int, ...], score: float) -> None:
        values[path] = max(values.get(path, 0.0), score * values[path[:-1]])

    own: dict[str, tuple[int, ...]] = dict.fromkeys(drafters, ())
    for _ in range(STEPS):
        offers = []
        for i, (name, drafter) in enumerate(drafters.items()):
            result = scores(drafter, trunk, asked.requests[i])
            token = int(result.argmax())
            weight = asked.weights[i] / max(asked.weights) if weighted else 1.0
            offers.append((float(result[token]) * weight, -i, token))
            propose((*trunk, token), float(result[token]) * weight)
            own_scores = scores(drafter, own[name], asked.requests[i])
            own[name] = (*own[name], int(own_scores.argmax()))
            propose(own[name], float(own_scores.max()) * weight)
        _, index, token = max(offers)
        trunk, winners = (*trunk, token), [*winners, -index]
    del values[()]
    return trunk, winners, values


def paths_of(drafts: Sequence[Draft]) -> set[tuple[int, ...]]:
    tree = combine("union", dict(enumerate(drafts))).tree
    return {tree.tokens_to(node) for node in range(len(tree))}


def draft_one(
    drafters: Mapping[str, SsmDrafter], request: PooledRequest, *, weighted: bool
) -> list[Draft]:
    kind = "fused_credit" if weighted else "fused"
    requests = tuple(replace(one, kind=kind) for one in request.requests)
    (drafts,) = draft_fused(drafters, [replace(request, requests=requests)])
    if isinstance(drafts, DrafterError):
        raise drafts
    return drafts


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("weights", [(0.3, 2.0, 0.7), (2.0, 0.3, 0.2), (0.9, 1.0, 1.1)])
def test_the_trunk_has_the_tokens_with_the_highest_scores(
    temperature: float, weighted: bool, weights: tuple[float, ...]
) -> None:
    drafters = ssms()
    requests = pool(drafters, temperature=temperature, weights=weights)
    drafts = draft_one(drafters, requests, weighted=weighted)
    trunk, winners, paths = by_the_rule(drafters, requests, weighted=weighted)
    max_nodes = STEPS * (len(drafters) + 1)
    assert paths_of(drafts) <= {*paths} and len(paths_of(drafts)) == min(max_nodes, len(paths))
    for draft in drafts:
        nodes = draft.walk(trunk)
        assert len(nodes) == STEPS, "every SSM's draft has the trunk"
        assert [draft.origins[node] for node in nodes] == winners
        assert draft.passes == STEPS


def test_scores_are_each_ssms_own() -> None:
    drafters = ssms()
    requests = pool(drafters)
    drafts = draft_one(drafters, requests, weighted=False)
    assert len(drafts) == len(drafters) and all(map(len, drafts))
    for i, draft in enumerate(drafts):
        drafter, path = drafters[f"ssm-{i}"], []
        for parent, token, score in zip(draft.parents, draft.token_ids, draft.scores, strict=True):
            before = () if parent < 0 else path[parent]
            path.append((*before, token))
            own = scores(drafter, before, requests.requests[i])
            assert score == pytest.approx(float(own[token]), rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("budget", [1, 3, 5, 9])
def test_the_most_probable_paths_are_kept_within_the_budget(budget: int, weighted: bool) -> None:
    drafters = ssms()
    requests = pool(drafters, budget=budget, weights=(0.2, 0.6, 1.5))
    paths_kept = paths_of(draft_one(drafters, requests, weighted=weighted))
    _, _, values = by_the_rule(drafters, requests, weighted=weighted)
    assert paths_kept == {*sorted(values, key=lambda path: -values[path])[:budget]}


def test_there_are_at_most_as_many_nodes_as_published() -> None:
    drafters = ssms()
    drafts = draft_one(drafters, pool(drafters), weighted=False)
    assert len(paths_of(drafts)) <= STEPS * (len(drafters) + 1)


def test_one_ssm_alone_drafts_its_chain() -> None:
    drafters = ssms(count=1)
    (draft,) = draft_one(drafters, pool(drafters), weighted=False)
    assert draft.parents == [-1, 0, 1, 2] and set(draft.origins) == {0}


@pytest.mark.parametrize("threshold", [0.2, 0.3, 0.5])
def test_one_ssm_alone_is_as_confident_as_its_chain(threshold: float) -> None:
    """`confidence` compares the threshold with a token's own score, not with the score of its
    path."""
    (drafter,) = ssms(count=1).values()
    stop = confident(threshold)
    (fused,) = draft_one({"ssm-0": drafter}, pool({"ssm-0": drafter}, stop=stop), weighted=False)
    drafter._states.clear()
    (request,) = pool({"ssm-0": drafter}, stop=stop).requests
    (chain,) = drafter.draft([replace(request, kind="topk")])
    assert fused.token_ids == chain.token_ids
    assert fused.scores == pytest.approx(chain.scores)


@pytest.mark.parametrize("threshold", [0.4, 0.6])
def test_no_token_is_drafted_after_one_that_all_ssms_are_unsure_of(threshold: float) -> None:
    drafters = ssms()
    requests = pool(drafters, stop=confident(threshold))

    def highest_score(path: tuple[int, ...]) -> float:
        pairs = zip(drafters.values(), requests.requests, strict=True)
        return max(float(scores(one, path[:-1], request)[path[-1]]) for one, request in pairs)

    paths = paths_of(draft_one(drafters, requests, weighted=False))
    assert max(map(len, paths)) > 1
    assert len(paths) < len(paths_of(draft_one(drafters, pool(drafters), weighted=False)))
    for path in paths:
        assert all(highest_score(path[:end]) >= threshold for end in range(1, len(path)))


def test_a_trunk_ends_with_the_text() -> None:
    drafters = ssms()
    trunk, _, _ = by_the_rule(drafters, pool(drafters), weighted=False)
    for drafter in drafters.values():
        drafter._states.clear()
    ended = pool(drafters, eos_ids=frozenset({trunk[1]}))
    drafts = draft_one(drafters, ended, weighted=False)
    assert max(len(path) for path in paths_of(drafts)) <= 2


def test_an_ssms_own_chain_ends_with_the_text() -> None:
    drafters = ssms()
    trunk, _, values = by_the_rule(drafters, pool(drafters), weighted=False)
    ends = {token for path in values for token in path[:-1]} - {*trunk}
    assert ends
    for end in ends:
        for drafter in drafters.values():
            drafter._states.clear()
        ended = pool(drafters, eos_ids=frozenset({end}))
        paths = paths_of(draft_one(drafters, ended, weighted=False))
        assert any(path[-1] == end for path in paths)
        assert all(end not in path[:-1] for path in paths)
        assert max(len(path) for path in paths) == STEPS, "the trunk continues"


@pytest.mark.parametrize("budget", [99, 8, 4])
def test_a_confident_ssm_without_credit_does_not_win(budget: int) -> None:
    drafters = ssms(sharpness=(9.0, 1.0, 1.0))
    plain = draft_one(drafters, pool(drafters, budget=budget), weighted=False)[0]
    assert {plain.origins[node] for node in plain.walk(plain.token_ids)} == {0}
    for drafter in drafters.values():
        drafter._states.clear()
    requests = pool(drafters, weights=(0.01, 1.0, 1.0), budget=budget)
    by_credit = draft_one(drafters, requests, weighted=True)
    trunk, winners, _ = by_the_rule(drafters, requests, weighted=True)
    assert 0 not in winners
    first_walk = by_credit[1].walk(trunk)
    assert [by_credit[1].origins[node] for node in first_walk] == winners[: len(first_walk)]
    assert len(first_walk) == STEPS if budget == 99 else first_walk
    assert budget == 99 or all(0 not in draft.origins for draft in by_credit)


@pytest.mark.parametrize("weighted", [False, True])
def test_of_equal_proposals_the_first_ssms_is_taken(weighted: bool) -> None:
    tables = {n: TableModel(n, VOCAB, random_table(VOCAB, 0, 1.5), 64) for n in ("x", "y", "z")}
    drafters = {name: SsmDrafter(name, table, VOCAB) for name, table in tables.items()}
    drafts = draft_one(drafters, pool(drafters), weighted=weighted)
    assert [draft.parents for draft in drafts] == [[-1, 0, 1, 2]] * 3
    assert {origin for draft in drafts for origin in draft.origins} == {0}


def test_an_ssm_that_fails_is_named_and_the_others_keep_their_text() -> None:
    drafters = ssms()
    requests = pool(drafters)
    broken = drafters["ssm-1"].feeder.model

    def fails(feeds: object) -> None:
        raise RuntimeError("out of order")

    broken.forward = fails
    with pytest.raises(DrafterError, match="ssm-1"):
        draft_one(drafters, requests, weighted=False)
    model = drafters["ssm-0"].feeder.model
    assert all(model.pending(row) == 0 for row in model.open_rows)


def test_rank_0_is_what_an_ssm_proposed_itself() -> None:
    """CoSine's routing scores an SSM by its own tokens, not by the trunk's tokens."""
    drafters = ssms()
    requests = pool(drafters)
    drafts = draft_one(drafters, requests, weighted=False)
    assert len(drafts) == len(drafters)
    for i, draft in enumerate(drafts):
        firsts = [n for n, parent in enumerate(draft.parents) if parent < 0]
        (own,) = [n for n in firsts if draft.ranks[n] == 0]
        expected = scores(drafters[f"ssm-{i}"], (), requests.requests[i]).argmax()
        assert draft.token_ids[own] == int(expected)


PROMPTS = (PROMPT, (2, 2, 5, 1), (4, 0))


def shared_pools(
    drafters: Mapping[str, SsmDrafter], temperature: float
) -> tuple[PooledRequest, ...]:
    """The third request uses only two SSMs."""
    pools = []
    for number, prompt in enumerate(PROMPTS):
        sampling = SamplingParams(50, temperature=temperature, seed=number)
        config, noise = SpeculationConfig(draft="fused"), SeededNoise(number, VOCAB)
        sequence = sequence_of(prompt, config, sampling, noise)
        sequence.run_id = f"run-{number}"
        names = tuple(drafters)[: 3 if number < 2 else 2]
        for name in names:
            drafters[name].open(sequence)
        kind, shape = ("fused", "fused_credit", "fused")[number], (1,) * (STEPS - number)
        requests = tuple(
            DraftRequest(sequence, i, kind, shape, 5 + number, name) for i, name in enumerate(names)
        )
        pools.append(PooledRequest(requests, (0.3, 2.0, 0.7)[: len(names)]))
    return tuple(pools)


def values_of(drafts: list[Draft] | DrafterError) -> list[tuple[object, ...]]:
    assert not isinstance(drafts, DrafterError)
    return [
        (one.token_ids, one.parents, one.scores, one.ranks, one.rows, one.origins, one.passes)
        for one in drafts
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_requests_share_each_ssms_passes(temperature: float) -> None:
    apart, together = ssms(), ssms()
    alone = [draft_fused(apart, [pool])[0] for pool in shared_pools(apart, temperature)]
    pools = shared_pools(together, temperature)
    passes_made: dict[str, int] = dict.fromkeys(together, 0)
    for name, drafter in together.items():
        count_passes(drafter, name, passes_made)
    shared = draft_fused(together, pools)
    assert [values_of(one) for one in shared] == [values_of(one) for one in alone]
    assert passes_made == dict.fromkeys(together, STEPS)


def count_passes(drafter: SsmDrafter, name: str, passes_made: dict[str, int]) -> None:
    model = drafter.feeder.model
    forward = model.forward

    def count_pass(feeds: Sequence[Feed]) -> list[torch.Tensor]:
        passes_made[name] += 1
        return forward(feeds)

    model.forward = count_pass  # type: ignore[method-assign]


def test_an_ssm_that_fails_ends_the_drafts_of_its_own_requests_only() -> None:
    drafters = ssms()
    pools = shared_pools(drafters, 0.0)
    broken = drafters["ssm-2"].feeder.model

    def fails(feeds: object) -> None:
        raise RuntimeError("out of order")

    broken.forward = fails  # type: ignore[assignment]
    *failed, unaffected = draft_fused(drafters, pools)
    for pool, error in zip(pools, failed, strict=False):
        assert isinstance(error, DrafterError) and error.name == "ssm-2"
        assert [one.name for one in pool.failed_requests(error)] == ["ssm-2"]
    others = ssms()
    assert values_of(unaffected) == values_of(draft_fused(others, shared_pools(others, 0.0)[2:])[0])
    model = drafters["ssm-0"].feeder.model
    rows = [drafters["ssm-0"].state(pool.requests[0]).row for pool in pools]
    assert [bool(model.pending(row)) for row in rows] == [False, False, True]
