"""`pipeline`: compares pipelined with serial decoding, for one request and for eight."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.contestants import DecodeCase, request, run_events
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.prompts import Prompt
from bench.settings import Settings
from bench.suites.pipeline_tables import PipelineRow, pipeline_rows, report_of
from bench.timing import time_call
from core.config import SpeculationConfig
from core.engine.engine import Engine
from core.events import Drafted, RoundCompleted
from core.metrics import NOT_DRAFTING
from lab.order import Block

WARM_UP_TOKENS = 8
NOTES = 4  # notes kept of each run


@dataclass(frozen=True)
class Pipeline(Suite):
    """`only`: a subset of the rows; None: all."""

    name: str = "pipeline"
    about: str = "pipelined against serial decoding, one request and eight; hits, saved, wasted"
    defaults: Settings = Settings(prompts=24, tokens=64, repeats=1, dtypes=("float32",))
    only: tuple[PipelineRow, ...] | None = None

    @property
    def rows(self) -> tuple[PipelineRow, ...]:
        return pipeline_rows() if self.only is None else self.only

    def measure(self, context: Context) -> None:
        for dtype in context.settings.dtypes:
            todo = []
            for row in self.rows:
                items = list(groups(context.prompts, row.live))
                todo.append((row, Blocks(context, {"dtype": dtype, **row.key}, items)))
            if any(blocks.missing_blocks for _, blocks in todo):
                with closing(Engine(context.load(dtype))) as engine:
                    for row, blocks in todo:
                        _measure(blocks, engine, row)

    def report(self, context: Context) -> Report:
        return report_of(context, self.rows)


def groups(prompts: tuple[Prompt, ...], live: int) -> dict[str, tuple[Prompt, ...]]:
    """Groups of `live` prompts, by name. Prompts are repeated if there are too few."""
    count = max(1, len(prompts) // live)
    prompt_groups = [
        [prompts[(g + i * count) % len(prompts)] for i in range(live)] for g in range(count)
    ]
    return {"+".join(dict.fromkeys(p.id for p in group)): tuple(group) for group in prompt_groups}


def _measure(blocks: Blocks, engine: Engine, row: PipelineRow) -> None:
    context, todo = blocks.context, blocks.missing_blocks
    prompts = groups(context.prompts, row.live)

    def run(config: SpeculationConfig, tokens: int, block: Block) -> dict[str, Any]:
        temperature = row.temperature
        cases = [
            DecodeCase(p, p.seed(block.repeat), tokens, temperature) for p in prompts[block.item]
        ]
        return run_together(engine, cases, config)

    # A short warm-up of each contestant, not counted.
    for config in row.contestants.values() if todo else ():
        run(config, min(WARM_UP_TOKENS, context.settings.tokens), todo[0])
    tokens = context.settings.tokens
    blocks.measure({name: partial(run, one, tokens) for name, one in row.contestants.items()})


# -- a timed run of several live requests --


@dataclass
class _RoundSums:
    """`sums` leaves out the first round, which includes prefill and cannot use a draft made ahead;
    `token_ids` and `notes` include it. `drafts`: the number of drafts in the current round;
    `previous_end_ms`: the end of the previous round."""

    token_ids: list[int] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    drafts: int = 0
    previous_end_ms: float = 0.0

    def add_round(self, event: RoundCompleted) -> None:
        self.token_ids.extend(event.token_ids)
        self.notes += [(event.round, note) for note in event.notes]
        wall, self.previous_end_ms = event.at_ms - self.previous_end_ms, event.at_ms
        if not event.round:
            return
        spans = (span for span in event.spans if span.lane not in NOT_DRAFTING)
        # A draft for a round that never came is neither a hit nor a miss.
        drafts_ahead = [one for one in event.ahead if one.reason != "ended"]
        figures = {
            "rounds": 1,
            "round_ms": wall,
            "draft_ms": sum(span.ms for span in spans if span.name != "prefill"),
            "drafts": max(self.drafts, len({one.drafter for one in drafts_ahead})),
            "hits": sum(one.hit for one in drafts_ahead),
            "saved_ms": sum(one.saved_ms for one in event.ahead),
            "wasted_ms": sum(one.wasted_ms for one in event.ahead),
            "on_ms": wall if drafts_ahead else 0.0,
        }
        self.sums = {name: self.sums.get(name, 0) + value for name, value in figures.items()}


def run_together(
    engine: Engine, cases: Sequence[DecodeCase], speculation: SpeculationConfig
) -> dict[str, Any]:
    """Runs the cases concurrently. Returns `tokens` and `seconds`, prefills included; a `digest` of
    the texts; each run's first NOTES `notes`, with their rounds; and sums over all rounds but each
    run's first round:

    `rounds`, `round_ms`, `draft_ms`; `drafts`: per round, the number of recorded drafts or of
    drafters with drafts ahead, whichever is larger; `hits`: drafts ahead that were used;
    `saved_ms`, `wasted_ms`: as in `RoundCompleted.ahead`; `on_ms`: the time of the rounds with
    drafts ahead.
    """
    runs: dict[str, _RoundSums] = {}

    def decode() -> None:
        for event in run_events(engine, [request(case, speculation) for case in cases]):
            run = runs.setdefault(event.run_id, _RoundSums())
            if isinstance(event, Drafted):
                run.drafts = len(event.drafts)
            elif isinstance(event, RoundCompleted):
                run.add_round(event)

    _, seconds = time_call(decode)
    names = dict.fromkeys(name for run in runs.values() for name in run.sums)
    texts = [run.token_ids for run in runs.values()]
    return {
        "tokens": sum(map(len, texts)),
        "seconds": seconds,
        "digest": hashlib.sha256(repr(texts).encode()).hexdigest()[:16],
        "notes": [list(note) for run in runs.values() for note in run.notes[:NOTES]],
        **{name: sum(run.sums.get(name, 0) for run in runs.values()) for name in names},
    }
