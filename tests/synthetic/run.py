"""Makes SYNTHETIC runs. The same arguments give the same events."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import torch

from bench.table_model import Context, TableModel
from core.config import Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import NGRAM, combine_rule, length_policy
from core.engine.engine import Engine
from core.events import (
    Estimate,
    Event,
    ModelInfo,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from core.metrics import StatsFold
from core.models.detokenize import Detokenizer
from core.models.loading.load import LoadedModels
from core.models.protocol import Feed
from core.speculation_length import Choice, LengthPolicy, RoundOutcome
from tests.synthetic.text import HOSTILE_TEXTS, Language, tokenizer, vocabulary
from tests.synthetic.times import Mechanisms, on_a_clock

DRAFTERS = ("ssm-code", "ssm-dialogue", "ssm-stories")
ENDINGS = ("completed", "cancelled", "failed", "cut")

EXPANSION = (1, 1, 3, 1)
VOTE_LENGTH = 5
MAX_NODES = 24  # the drafts of three drafters: 1 + 1 + 3 + 3 nodes each
PLAIN_EVERY = 7
CONTEXT = 1 << 14
BEST, TINY = 0.5, 1e-9  # probabilities in `plain_twin`
END_MS = 0.05  # from the last round to the end
WARNING = "SYNTHETIC run: made by tests/synthetic, no model ran."

Logits = Callable[[Context], torch.Tensor]


class SyntheticFailure(RuntimeError): ...


def synthetic_run(
    rounds: int = 8,
    seed: int = 0,
    drafters: tuple[str, ...] = DRAFTERS,
    run_id: str | None = None,
    end: str = "completed",
    hostile: bool = False,
    mechanisms: Mechanisms | None = None,
    stop: tuple[str, ...] = (),
) -> list[Event]:
    """The events of `rounds` rounds, or fewer if a `stop` string ends the run.

    `end` is one of ENDINGS: `cut` has no last event, as after a crash. `hostile` puts HOSTILE_TEXTS
    into the prompt, the text and error messages. Every seventh round is plain.
    """
    if end not in ENDINGS:
        raise ValueError(f"end is {end!r}: one of {', '.join(ENDINGS)}")
    uses = mechanisms or Mechanisms()
    events = _run(rounds, seed, drafters, end, hostile, uses, stop)
    return [replace(event, run_id=run_id or f"synthetic-{seed}") for event in events]


@lru_cache(maxsize=256)
def _run(
    rounds: int,
    seed: int,
    drafters: tuple[str, ...],
    end: str,
    hostile: bool,
    uses: Mechanisms,
    stop: tuple[str, ...],
) -> tuple[Event, ...]:
    tape = _tape(seed, drafters, hostile, uses, stop)
    events = on_a_clock(tape.events(rounds), uses, seed)
    limit = sum(len(e.token_ids) for e in events if isinstance(e, RoundCompleted))
    limit = limit if end == "completed" and not stop else rounds * 8 + 1
    events[0] = _label(events[0], seed, uses.pipeline, limit)
    failure = f"SYNTHETIC failure {_hostile_text(hostile)}"
    return (*events, *_end_event(events, hostile, end, failure))


def plain_twin(
    events: Sequence[Event], margin: float = 3.0, change: int | None = None
) -> list[Event]:
    """A run of plain decoding that writes a SYNTHETIC run's tokens, one per round.

    Another token replaces token number `change`. `margin`: the log ratio of the two largest
    probabilities.
    """
    started = events[0]
    size, first = started.models[0].vocab_size, len(started.prompt_token_ids)
    rounds = (event.token_ids for event in events if isinstance(event, RoundCompleted))
    tokens = [token_id for token_ids in rounds for token_id in token_ids]
    if change is not None:
        tokens[change] = (tokens[change] + 1) % size

    def logits(context: Context) -> torch.Tensor:
        number = min(len(context) - first, len(tokens) - 1)
        best = tokens[number]
        other = best - 1 if number == change else (best + 1) % size
        second = BEST * math.exp(-margin)
        rest = max(1 - BEST - second, TINY) / (size - 2)
        row = torch.full((size,), rest, dtype=torch.float64)
        row[[best, other]] = torch.tensor([BEST, second], dtype=torch.float64)
        return row.log().float()

    hostile = size == len(vocabulary(True))
    prompt = tokenizer(hostile).decode(started.prompt_token_ids)
    plain = replace(_speculation((), Mechanisms()), record_top_k=2)
    request = Request(prompt, SamplingParams(CONTEXT), plain)
    tape = Tape(_models(hostile, logits, {}), request)
    twin = on_a_clock(tape.events(len(tokens)), Mechanisms(), started.seed)
    twin = [replace(started, drafters=()), *twin[1:]]
    twin += _end_event(twin, hostile, "completed")
    return [replace(event, run_id=started.run_id) for event in twin]


class Tape:
    """`loses`: the round in which the last SSM fails, and the error's message."""

    def __init__(
        self,
        models: LoadedModels,
        request: Request,
        policy: LengthPolicy | None = None,
        loses: tuple[int, str] = (-1, ""),
    ) -> None:
        self._models, self._request = models, request
        self._policy, self._loses = policy, loses
        self._events: list[Event] = []
        self._source = self._decode()
        self._lock = threading.Lock()

    def events(self, rounds: int) -> list[Event]:
        """RunStarted and `rounds` rounds, or fewer if the text ends."""
        expected = 1 + 4 * rounds
        with self._lock:
            missing = max(0, expected - len(self._events))
            self._events += itertools.islice(self._source, missing)
        result = self._events[:expected]
        return result[:-1] if isinstance(result[-1], RunCompleted) else result

    def _decode(self) -> Iterator[Event]:
        engine = Engine(self._models)
        sequence = engine.prepare(self._request)
        live = engine.admit(sequence)
        live.policy = self._policy or live.policy
        try:
            yield engine.run_started_event(live)
            for _ in engine.prefill(live):
                pass
            while not sequence.finish_reason:
                if sequence.round == self._loses[0]:
                    for ssm in list(self._models.ssms.values())[-1:]:
                        ssm.failure = self._loses[1]
                yield from engine.round([live])
        finally:
            engine.release(live)


@lru_cache(maxsize=64)
def _tape(
    seed: int, drafters: tuple[str, ...], hostile: bool, uses: Mechanisms, stop: tuple[str, ...]
) -> Tape:
    """One tape for any number of rounds: a short run is the beginning of a longer one."""
    language = Language(seed, hostile)
    models = _models(hostile, language.llm, {n: language.ssm(i) for i, n in enumerate(drafters)})
    request = _request(seed, drafters, hostile, uses, stop)
    policy = ScriptedLength(request.speculation.speculation_length, uses.length)
    failure = HOSTILE_TEXTS[0] if hostile else "SYNTHETIC failure"
    return Tape(models, request, policy, (uses.loses, failure))


class ScriptedLength:
    """The estimates are invented, since real estimates depend on the clock."""

    def __init__(self, length: int, kind: str) -> None:
        self._length, self._has_estimates = length, not length_policy(kind).set_by_user
        self._number = 0

    def choose(self) -> Choice:
        number = self._number
        length = 0 if number % PLAIN_EVERY == PLAIN_EVERY - 1 else self._length
        if not self._has_estimates:
            return Choice(length)
        reason = f"{length} is chosen: SYNTHETIC reason of round {number}"
        predicted_ms = round(9.0 + 0.25 * (number % 4), 6)
        return Choice(length, reason, estimates=_estimates(number), predicted_ms=predicted_ms)

    def observe(self, outcome: RoundOutcome) -> None:
        self._number += 1


def _estimates(number: int) -> tuple[Estimate, ...]:
    best = 3 + number % 3
    return tuple(
        Estimate(s, 3 * s, 1 + 2.5 * (1 - 0.6**s), 6 + 0.5 * s + 0.3 * abs(s - best))
        for s in range(9)
    )


class FailingModel(TableModel):
    failure = ""

    def forward(self, feeds: Sequence[Feed]) -> list[torch.Tensor]:
        if self.failure:
            raise SyntheticFailure(self.failure)
        return super().forward(feeds)


def model_infos(drafters: Sequence[str] = DRAFTERS, hostile: bool = False) -> tuple[ModelInfo, ...]:
    shared = ("None", len(vocabulary(hostile)), CONTEXT, "float32", "cpu")
    ssms = (ModelInfo(name, "ssm", 1_000, *shared) for name in drafters)
    return ModelInfo("synthetic-llm", "llm", 31_000, *shared), *ssms


def _models(hostile: bool, llm: Logits, ssms: Mapping[str, Logits]) -> LoadedModels:
    large, *small = model_infos(tuple(ssms), hostile)
    tables = {one.name: FailingModel(one, ssms[one.name]) for one in small if one.name != NGRAM}
    return LoadedModels(TableModel(large, llm), {**tables}, tokenizer(hostile), (0,))


def _speculation(drafters: tuple[str, ...], uses: Mechanisms) -> SpeculationConfig:
    vote = combine_rule(uses.combine).chains
    length = VOTE_LENGTH if vote else len(EXPANSION)
    return SpeculationConfig(
        drafters=drafters, expansion=EXPANSION, max_tree_nodes=MAX_NODES, combine=uses.combine,
        routing=uses.routing, draft=uses.draft,
        weights="paper" if vote else "full_information", length=uses.length,
        speculation_length=length, record_top_k=3,
    )  # fmt: skip


def _request(
    seed: int, drafters: tuple[str, ...], hostile: bool, uses: Mechanisms, stop: tuple[str, ...]
) -> Request:
    """A request without pipelining: `on_a_clock` adds invented pipelining."""
    prompt = (
        f"SYNTHETIC prompt {seed}: Once upon a time — a fox" + " ".join(HOSTILE_TEXTS) * hostile
    )
    sampling = SamplingParams(CONTEXT, seed=seed, stop=stop)
    return Request(prompt, sampling, _speculation(drafters, uses))


def _label(event: Event, seed: int, pipeline: str, limit: int) -> RunStarted:
    config, asked = (_claim(plain, pipeline, limit) for plain in (event.config, event.asked))
    asked["sampling"]["seed"] = None
    return replace(
        event,
        created_utc=(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=seed)).isoformat(),
        config=config,
        asked=asked,
        versions={"specscope": "0.1.0", "synthetic": "tests/synthetic"},
        warnings=(WARNING,),
    )


def _claim(plain: dict[str, Any], pipeline: str, limit: int) -> dict[str, Any]:
    return {
        **plain,
        "sampling": {**plain["sampling"], "max_new_tokens": max(1, limit)},
        "speculation": {**plain["speculation"], "pipeline": pipeline},
    }


def _hostile_text(hostile: bool) -> str:
    return " ".join(HOSTILE_TEXTS) if hostile else ""


def _end_event(
    events: Sequence[Event], hostile: bool, end: str, failure: str = ""
) -> Iterator[Event]:
    started = events[0]
    text, fold = Detokenizer(tokenizer(hostile), started.prompt_token_ids), StatsFold()
    for event in events:
        fold.observe(event)
        for token_id in event.token_ids if isinstance(event, RoundCompleted) else ():
            text.push(token_id)
    now = events[-1].at_ms + END_MS
    common: dict[str, Any] = {"run_id": "", "seq": len(events), "at_ms": now}
    common |= {"text_tail": text.flush(), "stats": fold.stats(now)}
    if end == "completed":
        reason = "stop" if started.config["sampling"]["stop"] else "length"
        yield RunCompleted(finish_reason=reason, **common)
    elif end == "cancelled":
        yield RunCancelled(**common)
    elif end == "failed":
        yield RunFailed(error="DrafterError", message=failure, **common)
