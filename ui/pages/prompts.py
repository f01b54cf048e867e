"""The Prompts tab: acceptance prompt by prompt, of a study measured here or of past runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from core.choices import NGRAM
from core.config import PRESETS, SamplingParams
from lab.study import Configuration, Study, plain_configuration
from ui.context import Context
from ui.messages import Line
from ui.pages.fields import whole
from ui.pages.form import preset_config
from ui.pages.history import Asker, asker_of
from ui.pages.into_sessions import into_sessions
from ui.pages.parts import notice, notice_value, prompt_table
from ui.pages.prompt_source import (
    PromptSource,
    build_prompt_source,
    prompts_of,
    wire_prompt_source,
)
from ui.pages.quiet import QUIET
from ui.pages.sessions_layout import Sessions
from ui.pages.study_board import (
    Drawn,
    StudyBoard,
    build_study_board,
    wire_begin,
    wire_study_board,
)
from ui.prompt_rows import of_runs, of_study, table_value, texts_of
from ui.prompt_runs import MOST_RUNS, RunFigures
from ui.session import guarded
from ui.studies import Opened, new_study

__all__ = ["Prompts", "build_prompts", "wire_prompts"]

EMPTY = "Nothing measured yet: give prompts and press Measure, or look at past runs."
NO_RUN = "No completed run matches."
SHOWN_EVERY = 25
"""Past runs are read a few at a time; the table grows."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The tab's components."""

    context: Context
    board: StudyBoard
    source: PromptSource
    preset: gr.Dropdown
    max_new_tokens: gr.Number
    temperature: gr.Number
    repeats: gr.Number
    measure: gr.Button
    search: gr.Textbox
    drafter: gr.Dropdown
    look: gr.Button
    said: gr.HTML
    table: gr.HTML
    figures: RunFigures

    @property
    def inputs(self) -> list[Component]:
        """What `study_of` takes, in its order."""
        return [
            self.preset,
            self.max_new_tokens,
            self.temperature,
            self.repeats,
            *self.source.inputs,
        ]


# -- layout --


def build_prompts(context: Context) -> Prompts:
    """What to measure at the left, the table at the right; past studies below."""
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=320, elem_classes="sp-controls"):
            source = build_prompt_source("prompts")
            asked = _settings(context)
            with gr.Accordion("Or of past runs", open=False, elem_id="prompts-past"):
                past = _past(context)
        with gr.Column(scale=4, min_width=360):
            board = build_study_board(context, "prompts", "prompts")
            said = notice("prompts-said")
            table = prompt_table("prompts-table", {"empty": EMPTY})
            board.studies.render()  # type: ignore[no-untyped-call]
    return Prompts(
        context=context,
        board=board,
        source=source,
        **asked,
        **past,
        said=said,
        table=table,
        figures=RunFigures(context.store),
    )


def _settings(context: Context) -> dict[str, Any]:
    return {
        "preset": gr.Dropdown(
            [name for name in PRESETS if name != "autoregressive"],
            value=context.preset if context.preset != "autoregressive" else "specinfer",
            label="Preset",
            info="Plain decoding is measured beside it.",
            elem_id="prompts-preset",
        ),
        "max_new_tokens": gr.Number(
            64, step=1, label="max_new_tokens", info="Tokens to write at most.", min_width=120
        ),
        "temperature": gr.Number(0, step=0.1, label="temperature", min_width=120),
        "repeats": gr.Number(
            1, step=1, label="Repeats", info="Each with a seed of its own.", min_width=120
        ),
        "measure": gr.Button("Measure", variant="primary", elem_id="prompts-measure"),
    }


def _past(context: Context) -> dict[str, Any]:
    return {
        "search": gr.Textbox(
            label="Search", info="Words of prompt, text or note.", elem_id="prompts-search"
        ),
        "drafter": gr.Dropdown(["any", *_drafters(context)], value="any", label="With the drafter"),
        "look": gr.Button("Show the runs' prompts", size="sm", elem_id="prompts-look"),
    }


# -- handlers --


def study_of(context: Context, values: Sequence[Any]) -> Study:
    """What Measure measures: plain decoding and the preset on every prompt. ConfigError names the
    field."""
    preset, tokens, temperature, repeats, *given = values
    heat = 0.0 if temperature is None else temperature
    sampling = SamplingParams(max_new_tokens=whole(tokens), temperature=heat)
    chosen = preset_config(preset, heat)
    speculation = type(chosen).from_plain({**chosen.to_plain(), "record_top_k": 0})
    return new_study(
        context,
        "prompts",
        sampling,
        (plain_configuration(), Configuration(preset, speculation)),
        prompts_of(*given),
        repeats=whole(repeats),
    )


def study_drawn(context: Context, opened: Opened | None) -> list[Any]:
    """The tables of a study, one a configuration; of none, an invitation."""
    if opened is None:
        return [{"empty": EMPTY}]
    study, results, _ = opened
    names = [one.name for one in study.configurations]
    names.sort(key=lambda name: name == study.base)  # plain decoding accepts nothing: it goes last
    texts = texts_of(study.prompts)
    tables = {
        str(i): table_value(name, of_study(study, results, name), texts, _drafters(context))
        for i, name in enumerate(names)
    }
    return [{"tables": tables, "empty": "The first runs are being measured."}]


def past_drawn(
    prompts: Prompts, asker: Asker, search: str, drafter: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Notice and table of the past runs that match, a few more runs each time."""
    context = prompts.context

    def frames() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        chosen = {} if drafter in ("any", "", None) else {"drafter": drafter}
        asked = context.query(
            text=search or "", status="completed", owner=asker.owner, limit=MOST_RUNS, **chosen
        )
        page = context.store.runs(asked)
        known = []
        for i, one in enumerate(prompts.figures.of(iter(page.rows)), start=1):
            known.append(one)
            if i % SHOWN_EVERY == 0:
                yield _past_value(context, known, page.total, done=False)
        yield _past_value(context, known, page.total, done=True)

    def failed(message: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return notice_value([Line("error", message)]), {"empty": NO_RUN}

    yield from guarded(frames(), failed)


def _past_value(
    context: Context, known: Sequence[Any], total: int, done: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    rows, texts = of_runs(known)
    count = sum(len(row.runs) for row in rows)
    told = f"{len(rows)} prompts of {count} completed runs that drafted"
    latest = f"; the latest {MOST_RUNS} of {total} that match" if total > MOST_RUNS else ""
    end = "." if done else ", reading on."
    line = Line("info", f"{told}{latest}{end}")
    table = table_value(told, rows, texts, _drafters(context))
    return notice_value([line]), {"tables": {"0": table}, "empty": NO_RUN}


def _drafters(context: Context) -> tuple[str, ...]:
    """In the order of their colours, as runs name them."""
    return (*context.drafter_names, NGRAM)


# -- wiring --


def wire_prompts(
    prompts: Prompts, visitor: gr.BrowserState, tab: gr.Tab, tabs: gr.Tabs, sessions: Sessions
) -> None:
    """Connect everything of the tab; a prompt's run opens in Sessions."""
    context, board = prompts.context, prompts.board
    wire_prompt_source(prompts.source)
    drawn = Drawn((prompts.table,), partial(study_drawn, context))
    wire_study_board(board, visitor, tab, drawn)

    def make(*values: Any) -> Study:
        return study_of(context, values)

    wire_begin(board, visitor, prompts.measure.click, make, prompts.inputs, drawn)
    into_sessions(sessions, tabs, prompts.table.select, visitor)
    prompts.look.click(
        _look_handler(prompts),
        [visitor, prompts.search, prompts.drafter],
        [prompts.said, prompts.table],
        concurrency_limit=None,
        trigger_mode="once",
        **QUIET,
    )


def _look_handler(prompts: Prompts) -> Callable[..., Iterator[Any]]:
    def look(request: gr.Request, key: str, search: str, drafter: str) -> Iterator[Any]:
        asker = asker_of(prompts.context, request, key)
        yield from past_drawn(prompts, asker, search, drafter)

    return look
