"""Events of the engine, and several runs at once."""

import dataclasses

import pytest
import torch

from core import Request, SamplingParams, SpeculationConfig
from core.events import Combined, Drafted, Event, RoundCompleted, RunCompleted, RunStarted, Verified
from core.metrics import StatsFold
from tests.core.engines import GREEDY, TREE, WARM, by_run, engine_of, outcome_of, request, tables
from tests.fakes import word_tokenizer


def test_events_come_in_their_order_and_are_numbered() -> None:
    events = list(engine_of(*tables()).generate(request()))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunCompleted)
    four = [Drafted, Combined, Verified, RoundCompleted]
    assert [type(event) for event in events[1:-1]] == four * (len(events[1:-1]) // 4)
    assert [event.seq for event in events] == list(range(len(events)))
    assert len({event.run_id for event in events}) == 1
    times = [event.at_ms for event in events]
    assert times == sorted(times) and times[0] >= 0.0
    rounds = [event.round for event in events[1:-1]]
    assert rounds == [i // 4 for i in range(len(rounds))]


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_events_of_a_round_agree_with_each_other(sampling: SamplingParams) -> None:
    events = list(engine_of(*tables()).generate(request(sampling=sampling)))
    tokens = list(events[0].prompt_token_ids)
    for drafted, combined, verified, round_event in zip(
        *(events[1 + i : -1 : 4] for i in range(4)), strict=True
    ):
        assert combined.root_token_id == tokens[-1]
        assert round_event.position == len(tokens)
        proposed = sum(len(draft.token_ids) for draft in drafted.drafts)
        assert proposed == sum(map(len, combined.proposals)) + len(combined.dropped)
        path = [combined.token_ids[node] for node in verified.path]
        own = [] if verified.own_token_id is None else [verified.own_token_id]
        assert list(round_event.token_ids) == [*path, *own][: len(round_event.token_ids)]
        assert round_event.num_accepted == len(path) - round_event.num_cut
        assert len(verified.outcomes) == len(verified.llm_probabilities) == len(combined.token_ids)
        accepted = [i for i, o in enumerate(verified.outcomes) if o == "accepted"]
        assert accepted == sorted(verified.path)
        assert all(0.0 <= p <= 1.0 for p in (*verified.llm_probabilities, verified.own_probability))
        tokens += round_event.token_ids
        assert round_event.kv_used == len(tokens) - 1
    assert len(tokens) == len(events[0].prompt_token_ids) + sampling.max_new_tokens


def test_llm_probabilities_are_the_models() -> None:
    llm, ssms = tables()
    events = list(engine_of(llm, ssms).generate(request(sampling=WARM)))
    context = list(events[0].prompt_token_ids)
    for combined, verified, round_event in zip(
        *(events[2 + i : -1 : 4] for i in range(3)), strict=True
    ):
        for node, parent in enumerate(combined.parents):
            above: list[int] = []
            while parent != -1:
                above.append(combined.token_ids[parent])
                parent = combined.parents[parent]
            p = (llm.logits((*context, *reversed(above))) / 0.8).softmax(-1)
            token_id = combined.token_ids[node]
            assert verified.llm_probabilities[node] == pytest.approx(float(p[token_id]), rel=1e-5)
        context += round_event.token_ids
    assert len(context) == len(events[0].prompt_token_ids) + WARM.max_new_tokens


def test_the_last_events_figures_are_those_of_all_events() -> None:
    config = dataclasses.replace(TREE, draft="topk")
    events = list(engine_of(*tables()).generate(request(sampling=WARM, config=config)))
    fold = StatsFold()
    for event in events:
        fold.observe(event)
    last = events[-1]
    assert isinstance(last, RunCompleted)
    assert last.stats == fold.stats(last.at_ms)
    assert last.stats.num_new_tokens == 12
    assert 0 < last.stats.num_accepted_tokens < last.stats.num_draft_tokens


def test_spans_are_within_their_round_and_name_every_stage() -> None:
    events = list(engine_of(*tables()).generate(request()))
    ends = [event.at_ms for event in events if isinstance(event, RoundCompleted)]
    assert len(ends) > 1
    for round_event, begin in zip(
        (e for e in events if isinstance(e, RoundCompleted)), [0.0, *ends], strict=False
    ):
        first = round_event.round == 0
        for span in round_event.spans:
            assert begin - 1e-6 <= span.start_ms <= span.end_ms <= round_event.at_ms
        names = {(span.lane, span.name) for span in round_event.spans}
        assert {("llm", "forward"), *((s, s) for s in ("combine", "verify", "commit"))} <= names
        assert (("llm", "prefill") in names) == first
        assert (("same", "prefill") in names) == first


def test_the_start_reports_the_full_resolved_request() -> None:
    engine = engine_of(*tables())
    run_request = Request("w1 w2", SamplingParams(4, temperature=0.7))
    started = next(iter(engine.generate(run_request)))
    assert started.asked == run_request.to_plain()
    assert started.drafters == ("same", "ssm-2")
    config = started.config
    assert config["sampling"]["seed"] == started.seed
    assert isinstance(config["speculation"]["max_tree_nodes"], int)
    assert "auto" not in config["speculation"].values()
    assert [model.name for model in started.models] == ["llm", "same", "ssm-2"]
    assert started.prompt_texts == ("w1", "w2")
    assert set(started.versions) == {"python", "torch", "transformers", "tokenizers"}
    assert started.versions["torch"] == torch.__version__


def test_a_run_can_be_repeated_from_its_recorded_configuration() -> None:
    engine = engine_of(*tables())
    for draft in ("coupled", "sampled", "sampled_iid"):
        config = SpeculationConfig(draft=draft, expansion=(2, 1), max_tree_nodes=9)
        run_request = Request("w1 w2", SamplingParams(20, temperature=1.0), config)
        first = outcome_of(engine, run_request)
        repeated = outcome_of(engine, Request.from_plain(first.to_plain()["config"]))
        assert first.token_ids == repeated.token_ids
        assert len(first.token_ids) == 20


def test_a_seed_is_drawn_if_none_is_given() -> None:
    engine = engine_of(*tables())
    seeds = {next(iter(engine.generate(Request("w1", SamplingParams(1))))).seed for _ in range(8)}
    assert len(seeds) == 8


def test_top_k_lists_are_recorded_on_request() -> None:
    llm, ssms = tables()
    config = dataclasses.replace(TREE, record_top_k=3)
    events = list(engine_of(llm, ssms).generate(request(sampling=WARM, config=config)))
    combined, verified = events[2], events[3]
    assert isinstance(combined, Combined) and isinstance(verified, Verified)
    of_llm = [top for top in verified.top_k if top.source == "llm"]
    assert [top.node for top in of_llm] == list(range(-1, len(combined.token_ids)))
    p = (llm.logits((1, 2, 3)) / 0.8).softmax(-1).topk(3)
    assert of_llm[0].token_ids == tuple(p.indices.tolist())
    assert of_llm[0].probabilities == pytest.approx(p.values.tolist(), rel=1e-5)
    of_ssm = [top for top in verified.top_k if top.source == "ssm-2"]
    expected = ssms[1].logits((1, 2, 3)).softmax(-1).topk(3)
    assert of_ssm[0].node == -1
    assert of_ssm[0].probabilities == pytest.approx(expected.values.tolist(), rel=1e-5)
    plain = list(engine_of(llm, ssms).generate(request()))[3]
    assert isinstance(plain, Verified) and plain.top_k == ()


def test_texts_joined_are_the_decoded_continuation() -> None:
    plain = outcome_of(engine_of(*tables()), request()).to_plain()
    assert plain["text"] == word_tokenizer().decode(plain["token_ids"])
    assert plain["summary"]["finish_reason"] == "length"
    assert plain["prompt_token_ids"] == [1, 2, 3]
    assert plain["error"] == ""


def test_many_runs_are_distinguished_and_do_not_disturb_each_other() -> None:
    engine = engine_of(*tables(count=3))
    requests = [
        request("w1 w2 w3"),
        request("w5", WARM, SpeculationConfig(drafters=("ssm-3", "same"), draft="coupled")),
        request("w7 w7 w7 w7 w7", SamplingParams(5), SpeculationConfig.preset("autoregressive")),
        request(
            "w2 w1",
            WARM,
            SpeculationConfig(drafters=("ngram", "ssm-2"), draft="sampled", max_tree_nodes=6),
        ),
    ]
    for events, one in zip(by_run(engine.generate_many(requests)), requests, strict=True):
        one = Request.from_plain(events[0].config)
        alone = list(engine.generate(one))
        assert [type(e) for e in events] == [type(e) for e in alone]
        for left, right in zip(events, alone, strict=True):
            assert content(left) == content(right)


def content(event: Event) -> dict[str, object]:
    plain = dataclasses.asdict(event)
    clocked = ("at_ms", "created_utc", "spans", "stats", "between_ms")
    for name in ("run_id", "kv_capacity", "asked", *clocked):
        plain.pop(name, None)
    for draft in plain.get("drafts", ()):
        draft.pop("spans")
    return plain


def test_one_pass_of_the_llm_serves_all_of_a_round() -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    lives = [engine.admit(engine.prepare(request())) for _ in range(3)]
    for live in lives:
        assert len(list(engine.prefill(live))) == 1
    before, drafted = llm.passes, ssms[0].passes
    list(engine.round(lives))
    assert llm.passes - before == 1
    # Each drafter reads three prompts in three passes, then drafts three steps in lock-step.
    assert ssms[0].passes - drafted == 3 + 3
    for live in lives:
        engine.release(live)


def test_drafts_are_in_the_drafters_order_also_in_a_batch() -> None:
    engine = engine_of(*tables(count=3))
    one = SpeculationConfig(drafters=("ssm-3",), max_tree_nodes=9)
    two = SpeculationConfig(drafters=("same", "ssm-3", "ngram"), max_tree_nodes=9)
    three = SpeculationConfig(drafters=("ssm-3", "same"), max_tree_nodes=9)
    requests = [request("w1 w1 w1", config=config) for config in (one, two, three)]
    orders: dict[str, tuple[str, ...]] = {}
    num_drafts = set[int]()
    for event in engine.generate_many(requests):
        if isinstance(event, RunStarted):
            orders[event.run_id] = event.drafters
        elif isinstance(event, Drafted):
            order = orders[event.run_id]
            indices = [order.index(draft.drafter) for draft in event.drafts]
            assert indices == sorted(indices)
            num_drafts.add(len(indices))
    assert {1, 2, 3} <= num_drafts


def test_without_drafters_no_drafter_runs() -> None:
    llm, ssms = tables()
    config = SpeculationConfig(speculation_length=0)
    for settings in (config, SpeculationConfig.preset("autoregressive")):
        events = list(engine_of(llm, ssms).generate(request(config=settings)))
        assert sum(ssm.passes for ssm in ssms) == 0
        expected = ("no drafters: this is plain decoding",) if not settings.drafters else ()
        assert events[0].warnings == expected
        kinds = {event.own_kind for event in events if isinstance(event, Verified)}
        assert kinds == {"plain"}
        assert events[-1].stats.num_rounds == 12
