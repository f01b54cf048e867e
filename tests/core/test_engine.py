"""Engine: the order of events, what they add up to, and that nothing is left behind."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import pytest
import torch
from tokenizers import normalizers

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.costs import NODE_COUNTS, VerifyCosts, measure_verify_costs
from core.engine import PREFILL_CHUNK
from core.errors import ConfigError, ContextLengthError, EngineBusyError
from core.events import (
    Combined,
    Drafted,
    Event,
    RoundCompleted,
    RunCompleted,
    RunStarted,
    Verified,
)
from core.metrics import StatsFold
from core.models.language_model import Feed
from core.outcome import Outcome
from tests.fakes import TableModel, loaded_tables, random_table, word_tokenizer

VOCAB = 8
GREEDY = SamplingParams(12, seed=1)
WARM = SamplingParams(12, temperature=0.8, seed=1)
TREE = SpeculationConfig(expansion=(2, 2), speculation_length=3, max_tree_nodes="uncut")


def tables(count: int = 2, context: int = 64) -> tuple[TableModel, list[TableModel]]:
    llm = TableModel("llm", VOCAB, random_table(VOCAB, 1, sharpness=2.5), context)
    same = TableModel("same", VOCAB, llm._table, context)
    others = [TableModel(f"ssm-{i}", VOCAB, random_table(VOCAB, i), context) for i in range(2, 9)]
    return llm, [same, *others][:count]


def engine_of(llm: TableModel, ssms: Sequence[TableModel], eos: tuple[int, ...] = ()) -> Engine:
    return Engine(loaded_tables(llm, ssms, eos))


def open_rows(engine: Engine) -> list[tuple[int, ...]]:
    models = [engine.models.llm, *engine.models.ssms.values()]
    return [model.open_rows for model in models]


def request(
    text: str = "w1 w2 w3", sampling: SamplingParams = GREEDY, config: SpeculationConfig = TREE
) -> Request:
    return Request(text, sampling, config)


# -- the events of a run --


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
    for drafted, combined, verified, done in zip(
        *(events[1 + i : -1 : 4] for i in range(4)), strict=True
    ):
        assert combined.root_token_id == tokens[-1]
        assert done.position == len(tokens)
        proposed = sum(len(draft.token_ids) for draft in drafted.drafts)
        assert proposed == sum(map(len, combined.proposals)) + len(combined.dropped)
        path = [combined.token_ids[node] for node in verified.path]
        own = [] if verified.own_token_id is None else [verified.own_token_id]
        assert list(done.token_ids) == [*path, *own][: len(done.token_ids)]
        assert done.num_accepted == len(path) - done.num_cut
        assert len(verified.outcomes) == len(verified.llm_probabilities) == len(combined.token_ids)
        assert [i for i, o in enumerate(verified.outcomes) if o == "accepted"] == sorted(
            verified.path
        )
        assert all(0.0 <= p <= 1.0 for p in (*verified.llm_probabilities, verified.own_probability))
        tokens += done.token_ids
        assert done.kv_used == len(tokens) - 1


def test_llm_probabilities_are_the_models() -> None:
    llm, ssms = tables()
    events = list(engine_of(llm, ssms).generate(request(sampling=WARM)))
    context = list(events[0].prompt_token_ids)
    for combined, verified, done in zip(*(events[2 + i : -1 : 4] for i in range(3)), strict=True):
        for node, parent in enumerate(combined.parents):
            above: list[int] = []
            while parent != -1:
                above.append(combined.token_ids[parent])
                parent = combined.parents[parent]
            p = (llm.logits((*context, *reversed(above))) / 0.8).softmax(-1)
            token_id = combined.token_ids[node]
            assert verified.llm_probabilities[node] == pytest.approx(float(p[token_id]), rel=1e-5)
        context += done.token_ids


def test_the_last_event_counts_what_the_events_say() -> None:
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


def test_spans_lie_within_their_round_and_name_every_stage() -> None:
    events = list(engine_of(*tables()).generate(request()))
    ends = [event.at_ms for event in events if isinstance(event, RoundCompleted)]
    for done, begin in zip(
        (e for e in events if isinstance(e, RoundCompleted)), [0.0, *ends], strict=False
    ):
        first = done.round == 0
        for span in done.spans:
            assert begin - 1e-6 <= span.start_ms <= span.end_ms <= done.at_ms
        names = {(span.lane, span.name) for span in done.spans}
        stages = {
            ("llm", "forward"),
            ("combine", "combine"),
            ("verify", "verify"),
            ("commit", "commit"),
        }
        assert stages <= names
        assert (("llm", "prefill") in names) == first
        assert (("same", "prefill") in names) == first


def test_the_start_tells_the_whole_request_resolved() -> None:
    engine = engine_of(*tables())
    asked = Request("w1 w2", SamplingParams(4, temperature=0.7))
    started = next(iter(engine.generate(asked)))
    assert isinstance(started, RunStarted)
    assert started.asked == asked.to_plain()
    assert started.drafters == ("same", "ssm-2")
    config = started.config
    assert config["sampling"]["seed"] == started.seed
    assert isinstance(config["speculation"]["max_tree_nodes"], int)
    assert "auto" not in config["speculation"].values()
    assert [model.name for model in started.models] == ["llm", "same", "ssm-2"]
    assert started.prompt_texts == ("w1", "w2")
    assert set(started.versions) == {"python", "torch", "transformers", "tokenizers"}
    assert started.versions["torch"] == torch.__version__


def test_a_run_can_be_repeated_from_what_it_recorded() -> None:
    engine = engine_of(*tables())
    for draft in ("coupled", "sampled", "sampled_iid"):
        config = SpeculationConfig(draft=draft, expansion=(2, 1), max_tree_nodes=9)
        first, again = Outcome(), Outcome()
        for event in engine.generate(Request("w1 w2", SamplingParams(20, temperature=1.0), config)):
            first.observe(event)
        for event in engine.generate(Request.from_plain(first.to_plain()["config"])):
            again.observe(event)
        assert first.token_ids == again.token_ids
        assert len(first.token_ids) == 20


def test_seeds_are_drawn_anew_where_none_is_given() -> None:
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
    wanted = ssms[1].logits((1, 2, 3)).softmax(-1).topk(3)
    assert of_ssm[0].node == -1
    assert of_ssm[0].probabilities == pytest.approx(wanted.values.tolist(), rel=1e-5)
    plain = list(engine_of(llm, ssms).generate(request()))[3]
    assert isinstance(plain, Verified) and plain.top_k == ()


def test_texts_joined_are_the_decoded_continuation() -> None:
    outcome = Outcome()
    for event in engine_of(*tables()).generate(request()):
        outcome.observe(event)
    plain = outcome.to_plain()
    assert plain["text"] == word_tokenizer().decode(plain["token_ids"])
    assert plain["summary"]["finish_reason"] == "length"
    assert plain["prompt_token_ids"] == [1, 2, 3]
    assert plain["error"] == ""


# -- many at once --


def test_many_runs_are_told_apart_and_do_not_disturb_each_other() -> None:
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
    together: dict[str, list[Event]] = {}
    for event in engine.generate_many(requests):
        together.setdefault(event.run_id, []).append(event)
    assert len(together) == 4
    for events, one in zip(together.values(), requests, strict=True):
        one = Request.from_plain(events[0].config)
        alone = list(engine.generate(one))
        assert [type(e) for e in events] == [type(e) for e in alone]
        for left, right in zip(events, alone, strict=True):
            assert content(left) == content(right)


def content(event: Event) -> dict[str, object]:
    """What does not depend on the clock, nor on who asked."""
    plain = dataclasses.asdict(event)
    for name in ("run_id", "at_ms", "created_utc", "spans", "stats", "kv_capacity", "asked"):
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
    # Each drafter opens three rows, then works in lock-step.
    assert ssms[0].passes - drafted == 3 + 3
    for live in lives:
        engine.release(live)


def test_drafts_stand_in_the_drafters_order_also_in_a_batch() -> None:
    engine = engine_of(*tables(count=3))
    one = SpeculationConfig(drafters=("ssm-3",), max_tree_nodes=9)
    two = SpeculationConfig(drafters=("same", "ssm-3", "ngram"), max_tree_nodes=9)
    three = SpeculationConfig(drafters=("ssm-3", "same"), max_tree_nodes=9)
    requests = [request("w1 w1 w1", config=config) for config in (one, two, three)]
    orders: dict[str, tuple[str, ...]] = {}
    for event in engine.generate_many(requests):
        if isinstance(event, RunStarted):
            orders[event.run_id] = event.drafters
        elif isinstance(event, Drafted):
            order = orders[event.run_id]
            made = [order.index(draft.drafter) for draft in event.drafts]
            assert made == sorted(made)


# -- plain decoding --


def test_without_drafters_no_drafter_runs() -> None:
    llm, ssms = tables()
    config = SpeculationConfig(speculation_length=0)
    for settings in (config, SpeculationConfig.preset("autoregressive")):
        events = list(engine_of(llm, ssms).generate(request(config=settings)))
        assert sum(ssm.passes for ssm in ssms) == 0
        kinds = {event.own_kind for event in events if isinstance(event, Verified)}
        assert kinds == {"plain"}
        assert events[-1].stats.num_rounds == 12


def test_plain_decoding_says_so() -> None:
    started = next(
        iter(
            engine_of(*tables()).generate(
                request(config=SpeculationConfig.preset("autoregressive"))
            )
        )
    )
    assert started.warnings == ("no drafters: this is plain decoding",)


# -- busy, closed, broken --


def test_one_call_at_a_time() -> None:
    engine = engine_of(*tables())
    first = engine.generate(request())
    next(first)
    with pytest.raises(EngineBusyError, match=r"^engine is busy: one call at a time; use a Worker"):
        next(engine.generate(request()))
    first.close()
    assert len(list(engine.generate(request()))) > 2


@pytest.mark.parametrize("steps", range(1, 12))
def test_closing_the_iterator_gives_everything_back(steps: int) -> None:
    engine = engine_of(*tables())
    events = engine.generate_many([request(), request("w4")])
    for _ in range(steps):
        next(events)
    events.close()
    assert open_rows(engine) == [(), (), ()]
    assert not engine.busy.locked()
    assert all(not drafter._states for drafter in engine._drafters.values())


@pytest.mark.parametrize("place", ["llm", "same"])
def test_an_error_of_a_model_gives_everything_back(place: str) -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    broken = llm if place == "llm" else ssms[0]
    forward = broken.forward

    def failing(feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if broken.passes >= 3:
            raise RuntimeError("out of memory")
        return forward(feeds)

    broken.forward = failing  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of memory"):
        list(engine.generate(request()))
    assert open_rows(engine) == [(), (), ()]
    broken.forward = forward  # type: ignore[method-assign]
    assert isinstance(list(engine.generate(request()))[-1], RunCompleted)


def test_a_bad_request_among_good_ones_is_refused_before_any_work() -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    with pytest.raises(ContextLengthError):
        next(engine.generate_many([request(), request("w1 " * 80)]))
    assert llm.passes == 0 and not engine.busy.locked()


# -- what a prompt may be --


@pytest.mark.parametrize(("words", "fits"), [(62, True), (63, True), (64, False), (90, False)])
def test_a_prompt_must_leave_room_for_a_token(words: int, fits: bool) -> None:
    engine = engine_of(*tables())
    long = request("w1 " * words)
    if fits:
        assert engine.prepare(long).context_length == 64
        events = list(engine.generate(long))
        assert events[-1].stats.num_new_tokens == min(12, 64 - words)
    else:
        with pytest.raises(ContextLengthError) as caught:
            engine.prepare(long)
        message = str(caught.value)
        assert f"prompt is {words} tokens long" in message
        assert "the context of llm is 64 tokens, and one must be left" in message


def test_a_prompt_of_one_token_needs_no_prefill() -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    live = engine.admit(engine.prepare(request("w1")))
    assert list(engine.prefill(live)) == [] and llm.passes == 0
    engine.release(live)
    assert list(engine.generate(request("w1")))[-1].stats.num_new_tokens == 12


def test_a_long_prompt_is_read_in_pieces() -> None:
    llm, ssms = tables(context=5 * PREFILL_CHUNK)
    engine = engine_of(llm, ssms)
    live = engine.admit(engine.prepare(request("w1 " * (2 * PREFILL_CHUNK + 2))))
    sizes = []
    for _ in engine.prefill(live):
        sizes.append(llm.length(live.row))
    assert sizes == [PREFILL_CHUNK, 2 * PREFILL_CHUNK, 2 * PREFILL_CHUNK + 1]
    engine.release(live)


def test_a_chat_is_wrapped_as_the_model_wants_it() -> None:
    engine = engine_of(*tables())
    with pytest.raises(ConfigError, match=r"^chat is True: false: llm has no chat template$"):
        engine.prepare(Request("w1", chat=True))
    engine.models.tokenizer.chat_template = (
        "{% for m in messages %}w7 {{ m['content'] }} w6 {% endfor %}"
        "{% if add_generation_prompt %}w5{% endif %}"
    )
    assert engine.prepare(Request("w1 w2", chat=True)).prompt_ids == (7, 1, 2, 6, 5)
    assert engine.prepare(Request("w1 w2")).prompt_ids == (1, 2)


def test_a_prompt_without_a_token_is_refused() -> None:
    engine = engine_of(*tables())
    engine.models.tokenizer.backend_tokenizer.normalizer = normalizers.Replace("_", "")
    with pytest.raises(ConfigError, match=r"^prompt is '_': a text of at least one token$"):
        engine.prepare(Request("_"))


def test_unknown_drafters_are_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"one of all, first, same, ssm-2, ngram$"):
        engine_of(*tables()).prepare(request(config=SpeculationConfig(drafters=("nobody",))))
    with pytest.raises(ConfigError, match="no SSM is loaded"):
        engine_of(tables()[0], []).prepare(request())


# -- what verification costs --


def test_the_affordable_tree_is_the_largest_within_half_as_much_again() -> None:
    costs = VerifyCosts({0: 2.0, 1: 2.1, 2: 2.2, 4: 3.1, 8: 2.9, 16: 4.0}, 64)
    assert costs.affordable_nodes() == 8
    assert VerifyCosts({0: 2.0, 1: 9.0}, 64).affordable_nodes() == 1


def test_costs_are_measured_for_every_size_that_fits_and_once() -> None:
    llm, ssms = tables(context=100)
    costs = measure_verify_costs(llm)
    assert costs.context == 25
    assert set(costs.ms) == set(NODE_COUNTS)
    assert all(ms > 0 for ms in costs.ms.values())
    assert llm.open_rows == ()
    short, _ = tables(context=20)
    assert set(measure_verify_costs(short).ms) == {n for n in NODE_COUNTS if 5 + n + 1 <= 20}
    engine = engine_of(llm, ssms)
    assert engine.costs is engine.costs


def test_an_automatic_budget_follows_the_costs() -> None:
    llm, ssms = tables()
    forward = llm.forward

    def slower(feeds: Sequence[Feed]) -> list[torch.Tensor]:
        nodes = sum(len(feed.token_ids) for feed in feeds) - 1
        time.sleep(0.002 * (1 + (nodes > 8)))
        return forward(feeds)

    llm.forward = slower  # type: ignore[method-assign]
    engine = engine_of(llm, ssms)
    started = next(iter(engine.generate(Request("w1", SamplingParams(2)))))
    assert started.config["speculation"]["max_tree_nodes"] == 8
