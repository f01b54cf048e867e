"""Selects the recorded runs of a comparison to show, and compares their texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from core.errors import StoreError
from lab.order import Cell
from lab.study import Study
from lab.tables import Results
from lab.texts import first_difference
from ui.compare.study_text import Events
from ui.run.view import View, reduce_all

__all__ = ["ShownRuns", "Text", "shown_of", "text_of", "texts_words"]

Reader = Callable[[str, int], View | None]
"""(configuration, repeat) -> the run's view; None if the log does not have the run."""


@dataclass(frozen=True, slots=True)
class ShownRuns:
    """The runs to show. `views`: configuration -> the view of its run in repeat
    `repeat_of(configuration)`. `gone`: configurations that were measured but have no run in the
    log."""

    repeat: int
    views: Mapping[str, View]
    others: Mapping[str, int]
    gone: tuple[str, ...]

    def repeat_of(self, name: str) -> int:
        return self.others.get(name, self.repeat)

    @property
    def note(self) -> str:
        """Which runs are shown from another repeat or not at all, and why; may be empty."""
        sentences = [
            f"{name}: of repeat {repeat + 1}, its run of this one is not in the log."
            for name, repeat in self.others.items()
        ]
        if self.gone:
            sentences.append(f"Deleted, so that nothing is left to show: {', '.join(self.gone)}.")
        return " ".join(sentences)


def shown_of(study: Study, results: Results, events: Events) -> ShownRuns:
    """The runs of one repeat. A run that the log lacks is replaced by the same configuration's run
    of another repeat."""
    prompt = study.prompts[0].id
    measured = {cell.contestant for cell in results}
    names = [one.name for one in study.configurations if one.name in measured]

    # Reading a run takes long.
    @cache
    def read_view(name: str, repeat: int) -> View | None:
        result = results.get(Cell(name, prompt, repeat))
        try:
            return None if result is None else reduce_all(events(result.run_id))
        except StoreError:
            return None

    order = _order(study, results)
    repeat = _choose_repeat(study, names, order, read_view)
    views: dict[str, View] = {}
    others: dict[str, int] = {}
    for name in names:
        shown = next((r for r in (repeat, *order) if read_view(name, r) is not None), None)
        view = None if shown is None else read_view(name, shown)
        if shown is None or view is None:
            continue
        views[name] = view
        if shown != repeat:
            others[name] = shown
    return ShownRuns(repeat, views, others, tuple(name for name in names if name not in views))


def _order(study: Study, results: Results) -> list[int]:
    """The repeats; the first complete repeat whose texts differ comes first."""
    prompt = study.prompts[0].id
    names = [one.name for one in study.configurations]
    for repeat in range(study.repeats):
        measured = [results.get(Cell(name, prompt, repeat)) for name in names]
        if all(measured) and len({one.token_ids for one in measured if one is not None}) > 1:
            return [repeat, *(other for other in range(study.repeats) if other != repeat)]
    return list(range(study.repeats))


def _choose_repeat(study: Study, names: Sequence[str], order: Sequence[int], read: Reader) -> int:
    """The first repeat of `order` with all runs in the log; else the first with plain decoding's
    run; else the first."""
    for repeat in order:
        if all(read(name, repeat) is not None for name in names):
            return repeat
    with_base = (repeat for repeat in order if read(study.base, repeat) is not None)
    return next(with_base, order[0])


# -- texts --


@dataclass(frozen=True, slots=True)
class Text:
    """A text in two parts: `same`, the tokens before the first difference from plain decoding's
    text, and `rest`. `at`: the index of the first token that differs; -1 if all tokens are equal.
    If plain decoding's text is unknown, `at` is None and `same` has all tokens."""

    same: str
    rest: str
    at: int | None


def text_of(view: View, base_ids: tuple[int, ...] | None) -> Text:
    """The view's text, divided at the first token that differs from plain decoding's `base_ids`."""
    ids = [token.token_id for token in view.tokens]
    difference = None if base_ids is None else first_difference(ids, base_ids)
    texts = [token.text for token in view.tokens]
    num_same = len(texts) if difference is None else difference
    at = None if base_ids is None else -1 if difference is None else difference
    return Text("".join(texts[:num_same]), "".join(texts[num_same:]) + view.tail, at)


def texts_words(study: Study, shown: ShownRuns, texts: Mapping[str, Text]) -> str:
    """The sentences above the texts. `texts`: by configuration, those with a run in the log."""
    others = [text for name, text in texts.items() if name != study.base]
    differences = [text.at for text in others if text.at is not None]
    which = f"Repeat {shown.repeat + 1} of {study.repeats}"
    if not texts:
        return shown.note
    if any(at >= 0 for at in differences):
        words = f"{which}: from the ▸ on, a text is another than plain decoding's."
    elif not differences:
        words = f"{which}."
    elif len(differences) < len(others) or shown.gone:
        words = f"{which}: the texts that are here are plain decoding's."
    else:
        words = f"{which}: every text is the same."
    return f"{words} {shown.note}".strip()
