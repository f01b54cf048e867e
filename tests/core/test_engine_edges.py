"""Edge cases of the engine."""

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters.ssm import PREFILL_CHUNK
from core.engine.engine import STAGES_CHUNK
from core.engine.worker import Worker
from core.errors import ConfigError, ContextLengthError, EngineBusyError
from core.events import RanksInfo, RunCompleted, RunFailed, RunStarted
from core.models.protocol import Feed
from core.speculation_length.cost_model import NODE_COUNTS, Costs, VerifyCosts, measure_verify_costs
from tests.core.engines import (
    GREEDY,
    engine_of,
    failing_from,
    ids_of_events,
    open_rows,
    request,
    tables,
    texts_of,
)  # fmt: skip
from tests.fakes import TableModel, loaded_tables, note_results, word_tokenizer


def test_a_second_call_at_the_same_time_is_refused() -> None:
    engine = engine_of(*tables())
    first = engine.generate(request())
    next(first)
    with pytest.raises(EngineBusyError, match=r"^engine is busy: one call at a time; use a Worker"):
        next(engine.generate(request()))
    first.close()
    assert len(list(engine.generate(request()))) > 2


def test_a_request_that_is_not_admitted_leaves_no_row_and_no_thread() -> None:
    """`goodput` begins by timing passes of the LLM."""
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    forward, llm.forward = llm.forward, lambda feeds: memory_is_out()  # type: ignore[method-assign]
    config = SpeculationConfig(length="goodput", max_tree_nodes=16)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(engine.generate(request(config=config)))
    assert open_rows(engine) == [(), (), ()] and not engine._live_ids
    llm.forward = forward  # type: ignore[method-assign]
    ahead = SpeculationConfig(pipeline="ahead", max_tree_nodes=16)
    assert isinstance(list(engine.generate(request(config=ahead)))[-1], RunCompleted)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("drafting_")]


def memory_is_out() -> list[torch.Tensor]:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize("steps", range(1, 12))
def test_closing_the_iterator_closes_all_rows(steps: int) -> None:
    engine = engine_of(*tables())
    events = engine.generate_many([request(), request("w4")])
    for _ in range(steps):
        next(events)
    events.close()
    assert open_rows(engine) == [(), (), ()]
    assert not engine.busy.locked()
    assert all(not ssm._states for ssm in engine._drafting.ssm_pool.ssms.values())


def test_an_error_of_the_llm_closes_all_rows() -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    forward = llm.forward
    failing_from(llm, 3, RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        list(engine.generate(request()))
    assert open_rows(engine) == [(), (), ()]
    llm.forward = forward  # type: ignore[method-assign]
    assert isinstance(list(engine.generate(request()))[-1], RunCompleted)


def test_a_bad_request_among_good_ones_is_refused_before_any_work() -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    with pytest.raises(ContextLengthError):
        next(engine.generate_many([request(), request("w1 " * 80)]))
    assert llm.passes == 0 and not engine.busy.locked()


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


def test_pipeline_stages_read_a_prompt_in_small_pieces() -> None:
    """Each rank waits only a limited time for the other ranks' passes."""
    llm, ssms = tables(context=5 * PREFILL_CHUNK)
    llm.ranks = RanksInfo("pp", (1, 1))  # type: ignore[attr-defined]
    engine = engine_of(llm, ssms)
    live = engine.admit(engine.prepare(request("w1 " * (2 * STAGES_CHUNK + 2))))
    sizes = [llm.length(live.row) for _ in engine.prefill(live)]
    assert sizes == [STAGES_CHUNK, 2 * STAGES_CHUNK, 2 * STAGES_CHUNK + 1]
    engine.release(live)


def test_given_prompt_tokens_replace_the_prompts() -> None:
    engine = engine_of(*tables())
    run_request = dataclasses.replace(request("w1"), prompt_token_ids=(3, 2, 5))
    events = list(engine.generate(run_request))
    assert events[0].prompt_token_ids == (3, 2, 5)  # type: ignore[union-attr]
    assert ids_of_events(events) == ids_of_events(engine.generate(request("w3 w2 w5")))
    for wrong in ((3, 8), (-1,), (True,)):
        with pytest.raises(ConfigError, match="^prompt_token_ids is "):
            engine.prepare(dataclasses.replace(request("w1"), prompt_token_ids=wrong))


class CountingTokenizer:
    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.calls = tokenizer, 0
        self.backend_tokenizer = SimpleNamespace(model=models.BPE())

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return self._tokenizer(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def get_vocab(self) -> dict[str, int]:
        return {"a": 0, "abc": 1}


@pytest.mark.parametrize("count", [64 * 3 + 1, 8_000_000])
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(count: int) -> None:
    loaded = engine_of(*tables()).models
    tokenizer = CountingTokenizer(loaded.tokenizer)
    engine = Engine(dataclasses.replace(loaded, tokenizer=tokenizer))
    with pytest.raises(ContextLengthError, match=f"prompt is {count} characters long: .* 192$"):
        engine.prepare(Request("a" * count))
    assert tokenizer.calls == 0


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("word", ["w1 ", "w3\n", "."])
def test_of_a_prompt_that_cannot_fit_only_the_beginning_is_tokenized(
    word: str, chat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of a word-level tokenizer may have any length."""
    engine = engine_of(*tables())
    tokenizer = engine.models.tokenizer
    tokenizer.chat_template = "{{ messages[0].content }}"
    splits = [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenized = note_results(
        monkeypatch, type(tokenizer), "__call__", lambda ids: len(ids["input_ids"])
    )
    with pytest.raises(ContextLengthError, match=r"^prompt is more than \d+ tokens long: .* 64 to"):
        engine.prepare(Request(word * 2_000_000, chat=chat))
    assert len(tokenized) == 1 and tokenized[0] <= 8 * 64
    with pytest.raises(ContextLengthError, match=r"^prompt is 70 tokens long: .* is 64 tokens"):
        engine.prepare(Request(word * 70, chat=chat))


def test_a_long_prompt_of_few_tokens_fits() -> None:
    prompt = Request("w1" + " " * 100_000 + "w2")
    assert engine_of(*tables()).prepare(prompt).prompt_ids == (1, 2)


def test_a_huge_prompt_is_refused_without_waiting_for_the_tokenizer() -> None:
    loaded = engine_of(*tables()).models
    with (
        closing(
            Worker(
                Engine(dataclasses.replace(loaded, tokenizer=CountingTokenizer(loaded.tokenizer)))
            )
        ) as worker,
        loaded.tokenizing,
        pytest.raises(ContextLengthError),
    ):
        worker.submit(Request("a" * 1000))


def test_a_chat_message_is_rendered_with_the_models_template() -> None:
    engine = engine_of(*tables())
    with pytest.raises(
        ConfigError, match=r"^chat is True: it must be false, since llm has no chat template$"
    ):
        engine.prepare(Request("w1", chat=True))
    engine.models.tokenizer.chat_template = (
        "{% for m in messages %}w7 {{ m['content'] }} w6 {% endfor %}"
        "{% if add_generation_prompt %}w5{% endif %}"
    )
    assert engine.prepare(Request("w1 w2", chat=True)).prompt_ids == (7, 1, 2, 6, 5)
    assert engine.prepare(Request("w1 w2")).prompt_ids == (1, 2)


FAILING = {
    "a type": "{{ messages[0].content + 1 }}",
    "a name": "{{ messages[0].nothing.more }}",
    "a number": "{{ 1 // 0 }}",
    "a depth": "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "an encoding": "{{ 'é'.encode('ascii') }}",
    "an exception": "{{ raise_exception('no system role') }}",
    "a syntax": "{% if %}",
    "none by default": {"tools": "{{ messages }}", "rag": "{{ messages }}"},
}


@pytest.mark.parametrize("kind", FAILING)
def test_a_chat_template_that_fails_is_named(kind: str) -> None:
    engine = engine_of(*tables())
    engine.models.tokenizer.chat_template = FAILING[kind]
    with pytest.raises(
        ConfigError, match=r"^chat is True: it must be false, since the chat template of llm fails"
    ):
        engine.prepare(Request("w1", chat=True))


@pytest.mark.parametrize("template", ["{# nothing #}", "{% if false %}w1{% endif %}"])
def test_a_chat_template_that_renders_nothing_is_named(template: str) -> None:
    engine = engine_of(*tables())
    engine.models.tokenizer.chat_template = template
    with pytest.raises(ConfigError, match=r"the chat template of llm renders nothing$"):
        engine.prepare(Request("w1 w2", chat=True))


@pytest.mark.parametrize(
    ("message", "chat", "reported"),
    [
        ("w1 w6", True, ("w6",)),
        ("w6 w3 w6", True, ("w3", "w6")),
        ("w1 w2", True, ()),
        ("w1 w6", False, ()),
    ],
)
def test_control_tokens_in_a_chat_message_are_reported(
    message: str, chat: bool, reported: tuple[str, ...]
) -> None:
    engine = engine_of(*tables())
    tokenizer = word_tokenizer(8)
    tokenizer.add_tokens(["w3", "w6"], special_tokens=True)
    tokenizer.chat_template = "{{ messages[0].content }} w5"
    engine = Engine(dataclasses.replace(engine.models, tokenizer=tokenizer))
    request = Request(message, SamplingParams(2), SpeculationConfig(drafters=()), chat=chat)
    (started,) = (e for e in engine.generate(request) if isinstance(e, RunStarted))
    warned = [one for one in started.warnings if "control tokens" in one]
    assert len(warned) == bool(reported)
    assert all(f"({', '.join(reported)})" in one for one in warned)


class OneToken(TableModel):
    def __init__(self, token_id: int) -> None:
        row = [float(i == token_id) * 0.98 + 0.02 / 8 for i in range(8)]
        super().__init__("llm", 8, lambda context: tuple(row), 64)


class FailsAtToken7(OneToken):
    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if any(7 in feed.token_ids for feed in feeds):
            raise NameError("no such token")
        return super().forward(feeds)


def test_a_prompt_that_the_pass_cannot_read_ends_only_its_request() -> None:
    engine = engine_of(FailsAtToken7(1), [])
    config = SpeculationConfig(drafters=())
    requests = [Request(text, SamplingParams(4), config) for text in ("w1 w2", "w7 w1", "w1 w7")]
    events = list(engine.generate_many(requests))
    failed = [event for event in events if isinstance(event, RunFailed)]
    assert [event.message for event in failed] == ["no such token"] * 2
    assert texts_of(events) == [[1] * 4, [], []]
    assert open_rows(engine) == [()]


@pytest.mark.parametrize("role", ["", "pad_token", "eos_token"])
@pytest.mark.parametrize(
    ("stop", "after"),
    [("<|im_end|>", 1), ("im_end", 1), ("|><|", 2), ("<x>", GREEDY.max_new_tokens)],
)
def test_a_special_token_may_be_a_stop_string(stop: str, after: int, role: str) -> None:
    tokenizer = word_tokenizer(7)
    tokenizer.add_tokens([AddedToken("<|im_end|>", special=True)])
    if role:
        setattr(tokenizer, role, "<|im_end|>")
    engine = Engine(dataclasses.replace(engine_of(OneToken(7), []).models, tokenizer=tokenizer))
    sampling = dataclasses.replace(GREEDY, stop=(stop,))
    last = list(engine.generate(Request("w1 w2", sampling, SpeculationConfig(drafters=()))))[-1]
    assert isinstance(last, RunCompleted)
    assert last.finish_reason == ("stop" if after < GREEDY.max_new_tokens else "length")
    assert last.stats.num_new_tokens == after


def test_a_prompt_without_a_token_is_refused() -> None:
    engine = engine_of(*tables())
    engine.models.tokenizer.backend_tokenizer.normalizer = normalizers.Replace("_", "")
    with pytest.raises(
        ConfigError, match=r"^prompt is '_': it must be a text of at least one token$"
    ):
        engine.prepare(Request("_"))


def test_unknown_drafters_are_refused_with_the_names_of_all_drafters() -> None:
    with pytest.raises(ConfigError, match=r"one of all, first, same, ssm-2, ngram, suffix, table$"):
        engine_of(*tables()).prepare(request(config=SpeculationConfig(drafters=("nobody",))))
    prepared = engine_of(tables()[0], []).prepare(request())
    assert prepared.speculation.drafters == ("suffix", "table")


def test_the_affordable_tree_takes_at_most_1_5_plain_passes() -> None:
    costs = VerifyCosts({0: 2.0, 1: 2.1, 2: 2.2, 4: 3.1, 8: 2.9, 16: 4.0}, 64)
    assert costs.affordable_nodes() == 8
    assert VerifyCosts({0: 2.0, 1: 9.0}, 64).affordable_nodes() == 1


def test_costs_are_measured_once_for_every_size_that_fits() -> None:
    llm, ssms = tables(context=100)
    costs = measure_verify_costs(llm)
    assert costs.context == 25
    assert set(costs.ms) == set(NODE_COUNTS)
    assert all(ms > 0 for ms in costs.ms.values())
    assert llm.open_rows == ()
    short, _ = tables(context=20)
    assert set(measure_verify_costs(short).ms) == {n for n in NODE_COUNTS if 5 + n + 1 <= 20}
    engine = engine_of(llm, ssms)
    assert engine.costs.verify is engine.costs.verify


def owners_of_costs(owner: Any, visited: dict[int, Any]) -> Iterator[tuple[str, Costs]]:
    """Yields the class name and the Costs of each object that has Costs."""
    if isinstance(owner, Mapping):
        values = list(owner.values())
    elif isinstance(owner, (list, tuple, set)):
        values = list(owner)
    else:
        values = list(vars(owner).values()) if hasattr(owner, "__dict__") else []
    for value in values:
        if isinstance(value, Costs):
            yield type(owner).__name__, value
        elif id(value) not in visited and type(value).__module__.startswith(("core.", "builtins")):
            visited[id(value)] = value
            yield from owners_of_costs(value, visited)


def test_all_parts_of_an_engine_share_the_costs_it_is_given() -> None:
    llm, ssms = tables()
    costs = Costs(llm, VerifyCosts({0: 1.0, 8: 2.0}, 64))
    engine = Engine(loaded_tables(llm, ssms), schedule="shared", costs=costs)
    engine.schedule = "cosine"
    found = list(owners_of_costs(engine, {}))
    assert {owner for owner, _ in found} >= {"Engine", "RoundSteps", "AuditionStep", "BatchTimes"}
    assert all(one is costs for _, one in found)


def test_slow_passes_do_not_raise_a_sizes_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, _ = tables(context=100)
    now, forward, calls = [0.0], llm.forward, Counter[int]()

    def timed_forward(feeds: Sequence[Feed]) -> list[torch.Tensor]:
        size = len(feeds[0].token_ids)
        calls[size] += 1
        now[0] += 0.002 if calls[size] % 3 == 0 else 0.100
        return forward(feeds)

    llm.forward = timed_forward  # type: ignore[method-assign]
    monkeypatch.setattr(
        "core.speculation_length.cost_model.verify_costs.time.perf_counter", lambda: now[0]
    )
    costs = measure_verify_costs(llm)
    assert list(costs.ms.values()) == pytest.approx([2.0] * len(NODE_COUNTS))
    assert costs.affordable_nodes() == max(NODE_COUNTS)


def test_torch_has_one_thread_while_costs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """More torch threads would slow down the passes' own threads."""
    llm, _ = tables(context=100)
    forward, thread_counts, before = llm.forward, set(), torch.get_num_threads()

    def note_threads(feeds: Sequence[Feed]) -> list[torch.Tensor]:
        thread_counts.add(torch.get_num_threads())
        return forward(feeds)

    llm.forward = note_threads  # type: ignore[method-assign]
    llm.own_threads = True  # type: ignore[attr-defined]
    torch.set_num_threads(2)
    try:
        measure_verify_costs(llm)
        assert thread_counts == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_slow_model_is_measured_at_fewer_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, _ = tables(context=100)
    now, forward, calls = [0.0], llm.forward, Counter[int]()

    def timed_forward(feeds: Sequence[Feed]) -> list[torch.Tensor]:
        size = len(feeds[0].token_ids)
        calls[size] += not feeds[0].last_only
        # In the second sweep, passes over large sizes are slower.
        now[0] += (0.1 + 0.1 * size) * (1.5 if calls[size] % 2 == 0 and size > 8 else 1.0)
        return forward(feeds)

    llm.forward = timed_forward  # type: ignore[method-assign]
    monkeypatch.setattr(
        "core.speculation_length.cost_model.verify_costs.time.perf_counter", lambda: now[0]
    )
    costs = measure_verify_costs(llm)
    assert set(costs.ms) == {n for n in NODE_COUNTS if n <= 12}
    assert costs.ms[12] == pytest.approx(2100.0)
    contexts, warm_up_and_measure = 2, 2
    assert {calls[n + 1] for n in costs.ms} == {contexts * warm_up_and_measure}
    assert sum(calls.values()) == len(costs.ms) * contexts * warm_up_and_measure


def test_an_automatic_budget_follows_the_measured_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[object] = []

    def measure(llm: object) -> VerifyCosts:
        measured.append(llm)
        return VerifyCosts({0: 2.0, 1: 2.0, 8: 2.9, 12: 3.1}, 64)

    monkeypatch.setattr("core.speculation_length.cost_model.ledger.measure_verify_costs", measure)
    engine = engine_of(*tables())
    for _ in range(2):
        started = next(iter(engine.generate(Request("w1", SamplingParams(2)))))
        assert started.config["speculation"]["max_tree_nodes"] == 8
    assert len(measured) == 1
    plain = request(config=SpeculationConfig.preset("autoregressive"))
    next(iter(engine_of(*tables()).generate(plain)))
    assert len(measured) == 1, "plain decoding measures nothing"
