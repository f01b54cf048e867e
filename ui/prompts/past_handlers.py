"""Past runs in the Prompts tab: the controls of a search, and their handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import gradio as gr

from core.plurals import number_of
from lab.examples import example_prompts
from ui.components import pack
from ui.form.form import CHAT_EXAMPLES, EXAMPLES
from ui.prompts.past import MOST_RUNS, FoundPrompts, PastSearch, read_past_runs
from ui.prompts.rows import prompts_table_value
from ui.prompts.run_figures import RunFigures
from ui.server.context import Context
from ui.server.session import TabSession, guard
from ui.sessions.history import ANY_MODEL, NO_DRAFTER, drafter_choices, rights_of
from ui.shared.event_options import LATEST, QUIET
from ui.shared.parts import notice, notice_value
from ui.shared.study_board import StudyBoard, studies_of
from ui.shared.study_handlers import past_study_values, turned_to_past
from ui.words.messages import Line

__all__ = [
    "PastRunsControls",
    "build_past",
    "build_past_message",
    "known_domains",
    "past_updates",
    "hide_past_message",
    "wire_past",
]

ANY_DRAFTER = ("any", "")
NO_RUN = "No matching completed run used a drafter."
SPEED_UP_NOTE = (
    "Speed-up: relative to plain runs with the same prompt, sampling parameters and LLM, if there "
    "are any."
)
EXAMPLE_DOMAINS = {"Dialogue": "dialogue", "Story": "stories", "Code": "code", "Math": "math"}
"""The domains of Live's example prompts, by the example's name."""
MORE_LABEL = f"Load {MOST_RUNS} older runs"

Values = list[Any]


@dataclass(frozen=True, slots=True)
class PastRunsControls:
    """Controls of the search for past runs; `status`: the sentence above the table of results."""

    search: gr.Textbox
    drafter: gr.Dropdown
    search_button: gr.Button
    status: gr.HTML
    more_button: gr.Button


# -- layout --


def build_past(drafters: Sequence[str]) -> dict[str, Any]:
    """The controls of a search."""
    return {
        "search": gr.Textbox(
            label="Search",
            info="Searches prompts, generated texts and notes.",
            elem_id="prompts-search",
        ),
        "drafter": gr.Dropdown(
            [ANY_DRAFTER, *((name, name) for name in drafters)],
            value="",
            label="Drafter",
            elem_id="prompts-drafter",
        ),
        "search_button": gr.Button("Search", size="sm", elem_id="prompts-look"),
    }


def build_past_message() -> dict[str, Any]:
    """The sentence about the results, and the button that loads older runs."""
    message_box = notice("prompts-said")
    more = gr.Button(MORE_LABEL, size="sm", visible=False, elem_id="prompts-more")
    return {"status": message_box, "more_button": more}


def hide_past_message() -> Values:
    """Updates of `status` and `more_button` while the table shows a study."""
    return [notice_value([]), gr.Button(visible=False)]


# -- handlers --


@cache
def known_domains() -> Mapping[str, str]:
    """The domain of each bundled prompt and example, by the prompt's text."""
    domain_of = {text: EXAMPLE_DOMAINS[name] for name, text in (*EXAMPLES, *CHAT_EXAMPLES)}
    domain_of |= {prompt.text: prompt.domain for prompt in example_prompts()}
    return MappingProxyType(domain_of)  # read-only, since all callers share the cached dict


def past_updates(
    context: Context,
    session: TabSession,
    figures: RunFigures,
    past_search: PastSearch,
    drafters: Sequence[str],
) -> Iterator[Values]:
    """Yields the table, the notice and the button for more results. Ends as soon as the tab shows a
    study or another search."""
    with session.drawing:
        session.study.past = past_search

    def frames() -> Iterator[Values]:
        for result in read_past_runs(context, figures, known_domains(), past_search):
            yield _values(result, past_search, drafters)

    def refusal(message: str) -> Values:
        error = notice_value([Line("error", message)])
        return [{"of": "past", "empty": NO_RUN}, error, gr.Button(visible=False)]

    for values in guard(frames(), refusal):
        with session.drawing:
            if session.study.past is not past_search:
                return
            shown = past_study_values(session, values)
        yield shown


def _values(result: FoundPrompts, past_search: PastSearch, drafters: Sequence[str]) -> Values:
    of = f"past {past_search.search} {past_search.drafter}"
    table = prompts_table_value(of, result.lines, drafters, words=SPEED_UP_NOTE)
    status = notice_value([Line("info", found_words(result))])
    return [pack({**table, "empty": NO_RUN}), status, gr.Button(visible=result.more)]


def found_words(result: FoundPrompts) -> str:
    """How many prompts and runs were found, and which runs were read."""
    prompts = len({line.row.prompt for line in result.lines})
    num_runs = number_of(result.num_speculative, "completed run")
    sentence = f"{number_of(prompts, 'prompt')} of {num_runs} that drafted"
    if not result.is_complete:
        return f"{sentence}, still searching."
    if not result.more:
        return f"{sentence}."
    return f"{sentence}; searched the latest {result.num_read} of {result.total} matching runs."


# -- wiring --


def wire_past(
    past: PastRunsControls,
    board: StudyBoard,
    figures: RunFigures,
    table: gr.HTML,
    visitor: gr.BrowserState,
    tab: gr.Tab,
    get_drafters: Callable[[], Sequence[str]],
) -> None:
    """Connects the controls. Selecting the tab refills the drafter menu."""
    context = board.context
    outputs = [board.progress, board.studies, table, past.status, past.more_button]
    options: dict[str, Any] = {"concurrency_limit": None, **QUIET}

    def find(request: gr.Request, key: str, search: str, drafter: str) -> Iterator[Values]:
        owner = rights_of(context, request, key).owner
        yield from show(request, key, PastSearch(owner, search or "", drafter or ""))

    def find_more(request: gr.Request, key: str) -> Iterator[Values]:
        last_search = board.session(request).study.past
        if last_search is None:
            yield [gr.skip() for _ in outputs]
        else:
            yield from show(request, key, last_search.more())

    def show(request: gr.Request, key: str, past_search: PastSearch) -> Iterator[Values]:
        session, studies = board.session(request), studies_of(context, request, key)
        for values in past_updates(context, session, figures, past_search, get_drafters()):
            yield [*turned_to_past(board, session, studies), *values]

    def drafter_menu(request: gr.Request, key: str) -> gr.Dropdown:
        choices = drafter_choices(context, rights_of(context, request, key))
        drafting = [choice for choice in choices if choice not in (ANY_MODEL, NO_DRAFTER)]
        return gr.Dropdown(choices=[ANY_DRAFTER, *drafting])

    tab.select(drafter_menu, [visitor], past.drafter, **LATEST)
    inputs = [visitor, past.search, past.drafter]
    # "multiple": a new search ends the previous search (`past_updates`).
    past.search_button.click(find, inputs, outputs, trigger_mode="multiple", **options)
    past.more_button.click(find_more, [visitor], outputs, trigger_mode="once", **options)
