"""The source of a study's prompts: typed or pasted, a file, or the examples of chosen domains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from core.errors import ConfigError
from core.plurals import number_of
from lab.examples import domains_of, example_prompts, of_domains
from lab.prompts import StudyPrompt, is_separated, prompts_from_file, prompts_from_text
from ui.form.fields import whole_number
from ui.shared.event_options import LATEST, QUICK
from ui.shared.parts import notice, notice_value
from ui.words.messages import Line
from ui.words.refusals import refusal_words

__all__ = [
    "PromptSource",
    "build_prompt_source",
    "count_notice",
    "prompts_of",
    "wire_prompt_source",
]

TYPED, FILE, EXAMPLES = "typed", "a file", "examples"
MOST_BYTES = 5_000_000
PER_DOMAIN = 2


@dataclass(frozen=True, slots=True)
class PromptSource:
    """The controls. `inputs`: the controls whose values `prompts_of` takes, in this order. `count`:
    the number of prompts of each domain; `counted`: the notice with the number of typed prompts."""

    kind: gr.Radio
    typed: gr.Textbox
    file: gr.File
    domains: gr.CheckboxGroup
    count: gr.Number
    counted: gr.HTML

    @property
    def inputs(self) -> list[Component]:
        return [self.kind, self.typed, self.file, self.domains, self.count]


def build_prompt_source(page: str, kind: str = EXAMPLES) -> PromptSource:
    """The radio and, below it, the controls of the chosen source."""
    source = gr.Radio(
        [EXAMPLES, TYPED, FILE], value=kind, label="Prompts", elem_id=f"{page}-source"
    )
    typed = gr.Textbox(
        label="Your prompts",
        info="Each line is a prompt; with a line of --- between them, prompts may have several.",
        placeholder="Once upon a time\n---\nUser: I want to book a table for two.\nAssistant:",
        lines=6,
        max_lines=14,
        visible=kind == TYPED,
        elem_id=f"{page}-typed",
    )
    counted = notice(f"{page}-counted")
    file = gr.File(
        label="A .txt or .jsonl file",
        file_types=[".txt", ".jsonl"],
        type="filepath",
        visible=kind == FILE,
        elem_id=f"{page}-file",
    )
    known_domains = list(domains_of(example_prompts()))
    domains = gr.CheckboxGroup(
        known_domains,
        value=known_domains,
        label="Domains",
        visible=kind == EXAMPLES,
        elem_id=f"{page}-domains",
    )
    count = gr.Number(
        PER_DOMAIN,
        step=1,
        label="Prompts of each domain",
        visible=kind == EXAMPLES,
        elem_id=f"{page}-count",
    )
    return PromptSource(source, typed, file, domains, count, counted)


def wire_prompt_source(source: PromptSource) -> None:
    """Shows the controls of the chosen source, and counts prompts while they are typed."""
    # A text box does not fire `input` for pasted text.
    for trigger in (source.kind.change, source.typed.change):
        trigger(count_notice, [source.kind, source.typed], source.counted, **LATEST)
    source.kind.change(
        _visibility,
        source.kind,
        [source.typed, source.file, source.domains, source.count],
        **QUICK,
    )


def count_notice(kind: str, typed: str | None) -> dict[str, Any]:
    """A notice with the number of prompts in the typed text and the rule that divides it, or with
    the reason why it is refused. Empty unless `kind` is TYPED and the box has text."""
    if kind != TYPED or not (typed or "").strip():
        return notice_value([])
    try:
        prompts = prompts_from_text(typed or "")
    except ConfigError as error:
        return notice_value([Line("error", refusal_words(str(error)))])
    rule = "each text between lines of ---" if is_separated(typed or "") else "each line"
    return notice_value([Line("info", f"{number_of(len(prompts), 'prompt')}: {rule} is one.")])


def prompts_of(
    kind: str, typed: str | None, file: str | None, domains: list[str] | None, count: Any
) -> tuple[StudyPrompt, ...]:
    """Values of `PromptSource.inputs` -> prompts. Raises ConfigError."""
    if kind == TYPED:
        return prompts_from_text(typed or "")
    if kind == EXAMPLES:
        return of_domains(example_prompts(), domains or [], whole_number(count))
    if kind != FILE:
        raise ConfigError.must_be("prompts", kind, f"one of {EXAMPLES}, {TYPED}, {FILE}")
    if not file:
        raise ConfigError.must_be("file", "", "a .txt or .jsonl file: choose one")
    path = Path(file)
    try:
        # Checked before the file is read into memory.
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ConfigError.must_be("file", path.name, f"at most {MOST_BYTES} bytes, not {size}")
        return prompts_from_file(path.name, path.read_bytes())
    except OSError as error:
        allowed = f"a file that can be read ({type(error).__name__}); choose it again"
        raise ConfigError.must_be("file", path.name, allowed) from error


def _visibility(kind: str) -> list[Any]:
    return [
        gr.Textbox(visible=kind == TYPED),
        gr.File(visible=kind == FILE),
        gr.CheckboxGroup(visible=kind == EXAMPLES),
        gr.Number(visible=kind == EXAMPLES),
    ]
