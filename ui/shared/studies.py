"""Studies as one visitor may see them: begin, stop, resume, open, list, delete. A visitor who may
see all runs may see all studies, others their own."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from core.config import SamplingParams
from core.errors import StudyError, UnknownStudyError
from core.plurals import number_of
from lab.grid import Axis
from lab.measured import Measured
from lab.order import Cell
from lab.progress import Progress
from lab.prompts import StudyPrompt
from lab.study import Configuration, Study
from lab.tables import Results
from ui.run.listed import shorten
from ui.server.context import Context

__all__ = ["STUDIES_A_PAGE", "OpenedStudy", "Studies", "new_study", "title_of"]

# The most characters of a title, and of the configurations' names in it.
LONGEST_TITLE = 120
LONGEST_NAMES = 60
STUDIES_A_PAGE = 8


class OpenedStudy(NamedTuple):
    """A study as it is now: its definition, the cells measured so far, and its line in the list (a
    storage.StudyRow)."""

    study: Study
    results: Results
    row: Any


def new_study(
    context: Context,
    kind: str,
    sampling: SamplingParams,
    configurations: Sequence[Configuration],
    prompts: Sequence[StudyPrompt],
    *,
    repeats: int = 1,
    chat: bool = False,
    title: str = "",
    axes: Sequence[Axis] = (),
) -> Study:
    """A study of the loaded models with a new id and time; if `sampling` has no seed, a seed is
    drawn. `axes`: the axes of a grid. Raises ConfigError."""
    seed = secrets.randbits(31) if sampling.seed is None else sampling.seed
    return Study(
        study_id=f"study-{uuid.uuid4().hex[:12]}",
        kind=kind,
        title=title or title_of(configurations, prompts),
        created_utc=datetime.now(UTC).isoformat(),
        models=context.conductor.models(),
        sampling=replace(sampling, seed=seed),
        configurations=tuple(configurations),
        prompts=tuple(prompts),
        repeats=repeats,
        chat=chat,
        axes=tuple((axis.field, axis.values) for axis in axes),
    )


def title_of(configurations: Sequence[Configuration], prompts: Sequence[StudyPrompt]) -> str:
    """What is measured on which prompts: `plain decoding, specinfer: Once upon a time`."""
    names = ", ".join(one.name for one in configurations)
    if len(names) > LONGEST_NAMES:
        names = f"{len(configurations)} configurations"
    prompt_words = number_of(len(prompts), "prompt")
    if len(prompts) == 1:
        prompt_words = " ".join(prompts[0].text.split())
    return shorten(f"{names}: {prompt_words}", LONGEST_TITLE)


@dataclass(frozen=True, slots=True)
class Studies:
    """The studies that a visitor may see. `owner`: the only owner whose studies are visible, None
    for all; `key`: the owner of studies that the visitor begins."""

    context: Context
    owner: str | None
    key: str

    # -- measuring --

    def begin(self, study: Study) -> None:
        """Stores a new study and starts to measure it. Raises what `Conductor.begin` raises."""
        self.context.conductor.begin(study, self.key)

    def resume(self, study_id: str) -> None:
        """Starts to measure the cells that are missing. Raises what `Conductor.resume` raises, and
        StudyError if no cell is missing or if another server is measuring the study."""
        row, definition = self._find(study_id)
        if row.done >= row.total:
            raise StudyError(f"study {study_id} is complete: all {row.total} runs are kept")
        if row.elsewhere:
            raise StudyError(f"study {study_id} is being measured by another server: wait for it")
        self.context.conductor.resume(Study.from_plain(definition), row.owner)

    def stop(self, study_id: str) -> None:
        """Stops a study, interrupting the run under way; no effect on a study that is not being
        measured."""
        self._find(study_id)
        self.context.conductor.stop(study_id)

    def progress(self) -> Progress:
        """The state of the study that is being measured or was measured last. If the visitor may
        not see that study: its kind, state, counts and remaining time."""
        progress = self.context.conductor.progress()
        if self.owner is None or progress.owner == self.owner:
            return progress
        return Progress(
            kind=progress.kind,
            state=progress.state,
            done=progress.done,
            total=progress.total,
            remaining_s=progress.remaining_s,
        )

    # -- reading --

    def line(self, study_id: str) -> Any:
        """A study's line in the list. Raises UnknownStudyError also for another visitor's study."""
        return self._find(study_id)[0]

    def of_run(self, run_id: str) -> Any | None:
        """The line of a run's study; None if the run has no study, or if the study is unknown or
        another visitor's."""
        study_id = self.context.store.studies.of_run(run_id)
        try:
            return self.line(study_id) if study_id else None
        except UnknownStudyError:
            return None

    def open(self, study_id: str) -> OpenedStudy:
        """A study with its results so far. Raises UnknownStudyError also for another visitor's
        study."""
        row, definition = self._find(study_id)
        stored = self.context.store.studies.results(study_id)
        results = {Cell(*key): Measured.from_plain(value) for key, value in stored.items()}
        return OpenedStudy(Study.from_plain(definition), results, row)

    def rows(self, kind: str = "", limit: int = 50, offset: int = 0) -> tuple[Any, ...]:
        """Lines (storage.StudyRow), newest first. `kind`: the only kind, empty for all kinds."""
        before = self.context.conductor.progress()
        rows = self.context.store.studies.studies(kind, self.owner, limit, offset)
        return tuple(self._with_current_state(row, before) for row in rows)

    def page(self, kind: str, number: int) -> tuple[Any, ...]:
        """The lines on page `number` (from 0) of the list, and one more if another page follows."""
        return self.rows(kind, STUDIES_A_PAGE + 1, STUDIES_A_PAGE * number)

    def latest(self, kind: str) -> str:
        """The id of the newest study of a kind; empty if there is none."""
        rows = self.rows(kind, 1)
        return rows[0].study_id if rows else ""

    # -- deleting, finding --

    def delete(self, study_id: str) -> None:
        """Deletes a study and its results; its runs stay. Raises StudyError while it is being
        measured."""
        row, _ = self._find(study_id)
        if self.context.conductor.progress().measures(study_id) or row.elsewhere:
            raise StudyError(f"study {study_id} is being measured: stop it first")
        self.context.store.studies.delete(study_id)

    def _find(self, study_id: str) -> tuple[Any, dict[str, Any]]:
        """A study's line and definition. The error is the same for unknown studies and for other
        visitors' studies: it does not reveal which ids exist."""
        before = self.context.conductor.progress()
        refusal = f"study_id is {study_id!r}: no such study" + (" of yours" * bool(self.owner))
        try:
            row, definition = self.context.store.studies.study(study_id)
        except UnknownStudyError as error:
            raise UnknownStudyError(refusal) from error
        if self.owner is not None and row.owner != self.owner:
            raise UnknownStudyError(refusal)
        return self._with_current_state(row, before), definition

    def _with_current_state(self, row: Any, before: Progress) -> Any:
        """The line, corrected if it says `running` although the study is not being measured: its
        end could not be written yet, or its server was killed. `before`: the progress before the
        line was read, since a study may begin or end in between."""
        now = self.context.conductor.progress()
        if row.state != "running" or row.elsewhere:
            return row
        if any(one.measures(row.study_id) for one in (before, now)):
            return row
        unsaved = self.context.conductor.unsaved_state(row.study_id)
        state, reason = unsaved or ("interrupted", row.reason)
        return replace(row, state=state, reason=reason)
