"""One SYNTHETIC run of the `sessions` suite, event by event: plausible shapes, invented figures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from core.events import (
    Combined,
    Drafted,
    DraftRecord,
    Event,
    ModelInfo,
    ProposalRecord,
    RoundCompleted,
    RunCompleted,
    RunStarted,
    Span,
    TopK,
    Trial,
    Verified,
)
from core.metrics import StatsFold

__all__ = ["DRAFTERS", "SHAPES", "synthetic_events"]

DRAFTERS = ("synthetic-ssm-a", "synthetic-ssm-b", "synthetic-ssm-c")
SHAPES = (2, 4, 6, 8, 12, 16, 20, 24, 40, 500)  # rounds; that of 500 is for a few runs
DEPTH = 4
SIDES = 2  # nodes beside each node of the main path
KEPT_TOP_K = 5
WORD = " token"


def synthetic_events(rounds: int, seed: int) -> list[Event]:
    """A whole run: per round a tree of 12 nodes by three drafters, half of its path accepted."""
    return list(_Maker(seed).events(rounds))


class _Maker:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fold = StatsFold()
        self.seq, self.clock, self.position = -1, 0.0, 8

    def events(self, rounds: int) -> Iterator[Event]:
        for event in self._events(rounds):
            self.fold.observe(event)
            yield event

    def _events(self, rounds: int) -> Iterator[Event]:
        yield self._started()
        for number in range(rounds):
            yield from self._round(number)
        stats = self.fold.stats(self.clock)
        yield RunCompleted(**self._head(), finish_reason="length", text_tail="", stats=stats)

    def _started(self) -> RunStarted:
        prompt = "SYNTHETIC"
        sampling = SamplingParams(max_new_tokens=64)
        asked = Request(prompt=prompt, sampling=sampling, speculation=SpeculationConfig())
        shared = ("None", 32_000, 2048, "float32", "cpu")
        return RunStarted(
            **self._head(),
            created_utc="",
            prompt=prompt,
            prompt_token_ids=tuple(range(1, 9)),
            prompt_texts=(WORD,) * 8,
            config=asked.to_plain(),
            asked=asked.to_plain(),
            models=(
                ModelInfo("synthetic-llm", "llm", 1_000, *shared),
                *(ModelInfo(name, "ssm", 100, *shared) for name in DRAFTERS),
            ),
            drafters=DRAFTERS,
            dtype="float32",
            device="cpu",
            versions={"synthetic": "bench/sessions_run.py"},
            seed=0,
            queue_ms=0.0,
            warnings=("SYNTHETIC run: made by bench/sessions_run.py, no model ran.",),
        )

    def _round(self, number: int) -> Iterator[Event]:
        parents, depths = _tree()
        size, rng = len(parents), self.rng
        tokens = tuple(rng.randrange(1000) for _ in parents)
        main = [node for node in range(size) if node % (SIDES + 1) == 0]
        accepted = rng.randrange(DEPTH + 1)
        path = tuple(main[:accepted])
        begin = self.clock
        self.clock += rng.uniform(8, 12)
        draft: dict[str, Any] = {"token_ids": tokens, "texts": (WORD,) * size, "parents": parents}
        chances = tuple(round(rng.random(), 6) for _ in parents)
        drafts = self._drafts(draft, depths, chances, begin)
        yield Drafted(**self._head(), round=number, drafts=drafts)
        proposals = tuple(
            tuple(ProposalRecord(name, chances[node], 1.0, 0) for name in DRAFTERS[: 1 + node % 2])
            for node in range(size)
        )
        yield Combined(
            **self._head(),
            round=number,
            **draft,
            depths=depths,
            proposals=proposals,
            dropped=(),
            root_token_id=1,
            root_text=WORD,
        )
        yield self._verdict(number, path, main, chances)
        yield self._commit(number, tokens, path, begin)

    def _drafts(
        self,
        draft: dict[str, Any],
        depths: tuple[int, ...],
        chances: tuple[float, ...],
        begin: float,
    ) -> tuple[DraftRecord, ...]:
        size = len(depths)
        return tuple(
            DraftRecord(
                drafter=name,
                depths=depths,
                scores=chances,
                qs=(1.0,) * size,
                ranks=tuple(node % (SIDES + 1) for node in range(size)),
                drafted_ahead=False,
                spans=(Span(name, "draft", begin, begin + 2),),
                **draft,
            )
            for name in DRAFTERS
        )

    def _verdict(
        self, number: int, path: tuple[int, ...], main: list[int], chances: tuple[float, ...]
    ) -> Verified:
        reached = range(min(len(chances), (SIDES + 1) * (len(path) + 1)))
        outcomes = ["not_reached"] * len(chances)
        for node in reached:
            outcomes[node] = "accepted" if node in path else "rejected"
        return Verified(
            **self._head(),
            round=number,
            rule="greedy",
            path=path,
            outcomes=tuple(outcomes),
            own_token_id=5,
            own_text=WORD,
            own_kind="bonus" if len(path) == DEPTH else "recovered",
            own_probability=0.5,
            llm_probabilities=chances,
            trials=tuple(Trial(n, DRAFTERS[0], chances[n], 1.0, n in path) for n in reached),
            top_k=tuple(self._top(n, name) for n in (-1, *path) for name in ("llm", *DRAFTERS)),
        )

    def _top(self, node: int, source: str) -> TopK:
        tokens = tuple(self.rng.randrange(1000) for _ in range(KEPT_TOP_K))
        chances = tuple(round(0.5 / (i + 1), 6) for i in range(KEPT_TOP_K))
        return TopK(node, source, tokens, (WORD,) * KEPT_TOP_K, chances)

    def _commit(
        self, number: int, tokens: tuple[int, ...], path: tuple[int, ...], begin: float
    ) -> RoundCompleted:
        new = (*(tokens[node] for node in path), 5)
        first, self.position = self.position, self.position + len(new)
        middle = begin + 2.5
        return RoundCompleted(
            **self._head(),
            round=number,
            position=first,
            token_ids=new,
            texts=(WORD,) * len(new),
            text_deltas=(WORD,) * len(new),
            num_accepted=len(path),
            num_cut=0,
            speculation_length=DEPTH,
            next_speculation_length=DEPTH,
            weights=dict.fromkeys(DRAFTERS, 1.0),
            temperatures=dict.fromkeys(DRAFTERS, 1.0),
            spans=(
                *(Span(name, "draft", begin, begin + 2) for name in DRAFTERS),
                Span("combine", "combine", begin + 2, middle),
                Span("llm", "forward", middle, self.clock - 0.5),
                Span("verify", "verify", self.clock - 0.5, self.clock - 0.2),
                Span("commit", "commit", self.clock - 0.2, self.clock),
            ),
            kv_used=self.position,
            kv_capacity=2048,
        )

    def _head(self) -> dict[str, Any]:
        self.seq += 1
        return {"run_id": "synthetic", "seq": self.seq, "at_ms": self.clock}


def _tree() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parents and depths: a path of DEPTH nodes, each with SIDES nodes beside it."""
    parents, depths, above = list[int](), list[int](), -1
    for depth in range(1, DEPTH + 1):
        first = len(parents)
        parents += [above] * (SIDES + 1)
        depths += [depth] * (SIDES + 1)
        above = first
    return tuple(parents), tuple(depths)
