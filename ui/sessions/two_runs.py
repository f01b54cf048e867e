"""Two past runs side by side: pictures, tables, and a comparison of the texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from core.errors import StoreError
from ui.components import (
    Figures,
    Lengths,
    Proposals,
    Routing,
    Timeline,
    TokenStrip,
    TokenTree,
    pack,
)
from ui.run.baselines import baseline_of
from ui.run.hindsight import stored_regret
from ui.run.player import Pace, Player
from ui.run.same_text import same_text
from ui.run.scheduling import schedule_words
from ui.run.source import StoredSource
from ui.server.context import Context
from ui.server.session import TabSession, guard_once
from ui.server.under_way import under_way
from ui.sessions.history import DIFFERENCES, CallerRights, allowed_run, excerpt
from ui.sessions.two_runs_bar import Bar, bar_players, build_bar, place_of
from ui.sessions.two_runs_tables import figures_of, settings_apart
from ui.shared.parts import notice, notice_value, part
from ui.words.dates import local_time
from ui.words.messages import Line
from ui.words.settings import settings_of

__all__ = ["TwoRuns", "Half", "build_two_runs", "both", "compare_runs"]

LINE_KINDS = {"identical": "good", "distribution": "good", "tie": "warn", "bug": "error"}
ORDINALS = {"one": "First", "two": "Second"}


@dataclass(frozen=True, slots=True)
class Half:
    """The heading and pictures of one run. `page`: the half's name in element ids and in the keys
    of tab sessions."""

    page: str
    head: gr.HTML
    pictures: dict[str, gr.HTML]

    @property
    def outputs(self) -> list[gr.HTML]:
        return [self.head, *self.pictures.values()]

    def session(self, context: Context, request: gr.Request) -> TabSession:
        """The tab session that shows this half."""
        return context.tab_sessions.of(request.session_hash, self.page)

    def draw(self, session: TabSession) -> list[dict[str, Any]]:
        """The present values of the pictures."""
        with session.drawing:
            values = session.pictures.values(session.frame(), session.baseline, time.monotonic())
            return [session.stamps.on(name, pack(values[name])) for name in self.pictures]


@dataclass(frozen=True, slots=True)
class TwoRuns:
    """The section for two runs."""

    section: gr.Column
    notice: gr.HTML
    tables: gr.HTML
    close: gr.Button
    bar: Bar
    halves: tuple[Half, Half]

    @property
    def outputs(self) -> list[Any]:
        pictures = [one for half in self.halves for one in half.outputs]
        return [self.section, self.notice, self.tables, self.bar.scrub, *pictures]

    @property
    def bar_outputs(self) -> list[Any]:
        """The outputs that the bar changes."""
        return [self.bar.scrub, *(one for half in self.halves for one in half.pictures.values())]

    def tab_sessions(self, context: Context, request: gr.Request) -> tuple[TabSession, TabSession]:
        """The tab sessions of both halves."""
        one, two = self.halves
        return one.session(context, request), two.session(context, request)

    def bar_values(self, tab_sessions: tuple[TabSession, TabSession]) -> list[Any]:
        """The present values of `bar_outputs`; no change before two runs were chosen."""
        players = bar_players(tab_sessions)
        if len(players) < len(tab_sessions):
            return [gr.skip() for _ in self.bar_outputs]
        drawn = [
            half.draw(session) for half, session in zip(self.halves, tab_sessions, strict=True)
        ]
        return [place_of(players), *drawn[0], *drawn[1]]


# -- layout --


def build_two_runs() -> TwoRuns:
    """The section, hidden until a second run is chosen."""
    with gr.Column(visible=False, elem_id="sessions-pair", elem_classes="sp-pair-box") as section:
        message_box = notice("pair-said")
        close = gr.Button("Close the comparison", size="sm", elem_id="pair-close", min_width=90)
        tables = part("pair.js", "pair-tables")
        bar = build_bar()
        with gr.Row(equal_height=False, elem_id="pair-halves"):
            halves = [_build_half(f"pair-{which}") for which in ORDINALS]
    return TwoRuns(section, message_box, tables, close, bar, (halves[0], halves[1]))


def _build_half(page: str) -> Half:
    with gr.Column(scale=1, min_width=480):
        head = notice(f"{page}-head")
        pictures = {
            "figures": Figures(elem_id=f"{page}-figures"),
            "strip": TokenStrip(elem_id=f"{page}-strip"),
            "tree": TokenTree(elem_id=f"{page}-tree"),
            "routing": replace(Routing, asks=False)(elem_id=f"{page}-routing"),
            "proposals": Proposals(elem_id=f"{page}-proposals"),
            "lengths": Lengths(elem_id=f"{page}-lengths"),
            "timeline": Timeline(elem_id=f"{page}-timeline"),
        }
    return Half(page, head, pictures)


# -- handlers --


def compare_runs(
    two_runs: TwoRuns,
    context: Context,
    tab_sessions: tuple[TabSession, TabSession],
    rights: CallerRights,
    ids: tuple[str, str],
) -> list[Any]:
    """The section's values for two runs, or for an error."""

    def work() -> list[Any]:
        if ids[0] == ids[1]:
            raise StoreError("this is the run itself: choose another one to compare it with")
        runs = [allowed_run(context, rights, run_id) for run_id in ids]
        for run in runs:
            if under_way(context, run):
                raise StoreError(f"run {run.run_id} is still running: compare it once it has ended")
        sources = [StoredSource(context.store, run_id) for run_id in ids]
        shown: list[Any] = []
        schedules: list[str] = []
        for half, session, run, source in zip(
            two_runs.halves, tab_sessions, runs, sources, strict=True
        ):
            player = Player(source, Pace("full"))
            # At full speed one `advance` moves to the run's last event.
            player.advance(0.0)
            player.follow()  # shows the last round, where the bar's slider stands
            session.look_at(player)
            session.baseline = baseline_of(context.store, run)
            session.regret = stored_regret(run)
            schedules.append(schedule_words(player.frame().view.rounds))
            shown += [_head(half, run), *half.draw(session)]
        events = [source.events(0, source.count) for source in sources]
        answer = same_text(events[0], events[1])
        outcome = notice_value([Line(LINE_KINDS.get(answer.kind, "info"), answer.sentence)])
        tables = {
            "figures": figures_of(runs[0].stats, runs[1].stats),
            "settings": settings_apart(runs[0], runs[1], (schedules[0], schedules[1])),
        }
        place = place_of(bar_players(tab_sessions))
        return [gr.Column(visible=True), outcome, tables, place, *shown]

    def refusal(message: str) -> list[Any]:
        no_change = [gr.skip() for _ in two_runs.outputs[2:]]
        return [gr.Column(visible=True), notice_value([Line("error", message)]), *no_change]

    return guard_once(work, refusal)


def _head(half: Half, run: Any) -> dict[str, Any]:
    ordinal = ORDINALS[half.page.removeprefix("pair-")]
    settings = settings_of(run.asked, run.ssms)
    sampling, made = ", ".join(settings.sampling), local_time(run.created_utc)
    heading = f"{settings.brief(DIFFERENCES)}; {sampling}; made {made}."
    return notice_value([Line("info", f"{ordinal}: {excerpt(run.prompt)}"), Line("info", heading)])


def both(
    two_runs: TwoRuns, tab_sessions: tuple[TabSession, TabSession], work: Callable[[], None]
) -> list[Any]:
    """Calls `work`, which moves both runs, then shows them."""

    def work_and_draw() -> list[Any]:
        work()
        return two_runs.bar_values(tab_sessions)

    return guard_once(work_and_draw, lambda _: [gr.skip() for _ in two_runs.bar_outputs])
