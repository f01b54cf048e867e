"""Measures studies one at a time, on its own thread. A cell, one run of a study, is measured again
if a visitor's run or a model load overlaps the cell."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from core.config import Request
from core.errors import EXPECTED_ERRORS, CellInterruptedError, StoreError, StudyError
from core.events import RunStarted
from lab.budgets import depends_on_timings, resolved_nodes, stored_nodes, with_nodes
from lab.conduct import conduct
from lab.events import CellBegun, CellLost, CellMeasured, StudyBegun, StudyEnded
from lab.log_retries import StoredCells, UnsavedStates
from lab.measured import Measured, measure_run
from lab.order import Cell
from lab.progress import CellTimes, Progress
from lab.runs import ActiveRun, RunHost, StudyStore
from lab.study import Study
from lab.study_checks import check, naming_cell

__all__ = ["Conductor"]

POLL_S = 0.02
"""Seconds between two checks for visitors' runs and model loads."""
HEARTBEAT_S = 20.0
"""Seconds between heartbeats in the log; they tell other servers that a study is being measured."""
END_TIMEOUT_S = 10.0
"""Seconds that a cancelled run may take to end."""
MAX_WARMED = 8
"""`_warm` runs this many of the first configurations."""
WARMING_TOKENS = 8


class Conductor:
    """Measures one study at a time. Methods may be called from any thread."""

    def __init__(self, runs: RunHost, store: StudyStore) -> None:
        self._runs, self._store = runs, store
        self._lock = threading.Lock()
        self._unsaved_states = UnsavedStates(store)
        self._progress = Progress()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._cell_times = CellTimes()
        self._lost: list[ActiveRun] = []
        self._next_heartbeat = 0.0
        self._nodes: int | None = None
        self._prompts: dict[str, tuple[int, ...]] = {}

    def begin(self, study: Study, owner: str = "") -> None:
        """Stores a new study and starts to measure it. Raises ConfigError or StudyError if it
        cannot be measured, StoreError if the log fails."""
        # Before the slow checks, so that a second study is refused meanwhile.
        self._reserve(study, owner)
        with self._report_failure():
            check(study, self._runs)
            self._store.save(study.to_plain(), len(study), owner)
            self._claim_in_log(study)
        self._start_thread(study, owner)

    def resume(self, study: Study, owner: str = "") -> None:
        """Continues a stored study; raises as `begin`."""
        stored_cells = {Cell(*key) for key in self._store.cells(study.study_id)}
        self._reserve(study, owner, sum(cell in stored_cells for cell in study.cells()))
        with self._report_failure():
            check(study, self._runs)
            self._claim_in_log(study)
        self._start_thread(study, owner)

    def stop(self, study_id: str = "") -> None:
        """Stops the study with this id, or any study if `study_id` is empty."""
        with self._lock:
            if study_id in ("", self._progress.study_id) and self._progress.is_active:
                self._progress = replace(self._progress, state="stopping")
                self._stop.set()

    def progress(self) -> Progress:
        """The current state."""
        with self._lock:
            return self._progress

    def unsaved_state(self, study_id: str) -> tuple[str, str] | None:
        """Final state and reason of a study that are not in the log yet, else None."""
        return self._unsaved_states.state_of(study_id)

    def models(self) -> tuple[str, ...]:
        """The loaded models, the LLM first, in the form of `Study.models`."""
        return self._runs.models()

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds; True if nothing is being measured then."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def close(self) -> None:
        """Stops the study and waits for its thread."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        self._unsaved_states.close()

    # -- begin --

    def _reserve(self, study: Study, owner: str, num_done: int = 0) -> None:
        loaded = self._runs.models()
        if not study.is_of(loaded):
            raise StudyError(
                f"this study was begun with {', '.join(study.models)}, but {', '.join(loaded)} are "
                "loaded: load its models, or begin a new study"
            )
        with self._lock:
            if self._progress.is_active:
                raise StudyError(
                    "another study is being measured: one at a time; stop it, or wait for its end"
                )
            self._progress = Progress(
                study.study_id,
                study.kind,
                owner,
                "running",
                "",
                num_done,
                len(study),
                is_warming_up=True,
            )
            self._stop.clear()
            self._cell_times = CellTimes()

    @contextmanager
    def _report_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._update(
                state="failed", is_warming_up=False, reason=f"the study cannot be measured: {error}"
            )
            raise

    def _claim_in_log(self, study: Study) -> None:
        with self._unsaved_states.discarding_state(study.study_id):
            if not self._store.claim(study.study_id):
                raise StudyError(
                    "another server that uses this log is measuring a study: wait for its end, or "
                    "stop it there"
                )

    def _start_thread(self, study: Study, owner: str) -> None:
        self._next_heartbeat = time.monotonic() + HEARTBEAT_S
        self._thread = threading.Thread(
            target=self._run, args=(study, owner), name="study", daemon=True
        )
        self._thread.start()

    # -- the thread --

    def _run(self, study: Study, owner: str) -> None:
        # Stored after an error that is not in EXPECTED_ERRORS.
        state, reason = "failed", "internal error: see the server's log"
        try:
            store = StoredCells(self._store, study.study_id, self._report_log, self._stop)
            cells = study.cells()
            # A resumed study keeps the node budget that `max_tree_nodes=auto` resolved to.
            self._nodes = stored_nodes(self._store.results(study.study_id).values())
            self._prompts.clear()
            self._warm(study)
            self._update(is_warming_up=False)

            def measure(cell: Cell) -> Measured:
                with naming_cell(cell):
                    return self._measure_cell(study, cell, owner)

            def go() -> bool:
                return self._wait_for_turn() and not self._why_models_differ(study)

            for event in conduct(cells, store, measure, go):
                self._follow(event, cells)
                if isinstance(event, StudyEnded):
                    state = "completed" if event.complete else "stopped"
                    reason = "" if event.reason == "stopped" else event.reason
                    reason = reason or ("" if event.complete else self._why_models_differ(study))
        except EXPECTED_ERRORS as error:
            reason = str(error)
        finally:
            self._end(study, state, reason)

    def _warm(self, study: Study) -> None:
        """Runs the first configurations briefly, without results: an engine's first passes are
        slower."""
        warmed, others = study.configurations[:MAX_WARMED], study.configurations[MAX_WARMED:]
        # A run with `max_tree_nodes=auto` fixes the study's node budget.
        with_auto = [one for one in others if depends_on_timings(one.speculation)]
        for one in (*warmed, *with_auto[:1]):
            if self._wait_for_turn() and not self._why_models_differ(study):
                first = Cell(one.name, study.prompts[0].id, 0)
                request = study.request(first)
                tokens = min(WARMING_TOKENS, request.sampling.max_new_tokens)
                short = replace(request, sampling=replace(request.sampling, max_new_tokens=tokens))
                self._run_to_end(short, "", in_log=False)

    def _end(self, study: Study, state: str, reason: str) -> None:
        with suppress(*EXPECTED_ERRORS):  # an interrupted run that stays in the log does no harm
            self._forget_lost()
        self._unsaved_states.record(study.study_id, state, reason)
        self._update(
            state=state,
            reason=reason,
            is_warming_up=False,
            cell=None,
            remaining_s=None,
            log_error="",
        )

    def _follow(self, event: Any, cells: list[Cell]) -> None:
        if isinstance(event, (StudyBegun, StudyEnded)):
            self._update(done=event.done)
        elif isinstance(event, CellBegun):
            self._update(cell=event.cell)
        elif isinstance(event, CellLost):
            self._update(lost=self.progress().lost + 1)
        elif isinstance(event, CellMeasured):
            self._cell_times.add(event.cell, event.seconds)
            remaining = cells[cells.index(event.cell) + 1 :]
            self._update(done=event.done, remaining_s=self._cell_times.seconds_left(remaining))

    def _update(self, **changed: Any) -> None:
        with self._lock:
            # `stop` may have been called meanwhile: the study's thread must not undo it.
            if self._progress.state == "stopping" and changed.get("state") in (
                "running",
                "waiting",
            ):
                del changed["state"]
            self._progress = replace(self._progress, **changed)

    def _report_log(self, reason: str) -> None:
        if self.progress().log_error != reason:
            self._update(log_error=reason)

    def _why_models_differ(self, study: Study) -> str:
        loaded = self._runs.models()
        if study.is_of(loaded):
            return ""
        return f"the loaded models changed to {', '.join(loaded)}"

    def _wait_for_turn(self) -> bool:
        """Waits until no run and no model load is under way; False if the study was stopped."""
        while not self._stop.is_set():
            if not self._runs.busy():
                self._forget_lost()
                self._update(state="running")
                return True
            self._update(state="waiting", cell=None)
            self._stop.wait(POLL_S)
            self._heartbeat()
        return False

    def _heartbeat(self) -> None:
        if time.monotonic() >= self._next_heartbeat:
            self._next_heartbeat = time.monotonic() + HEARTBEAT_S
            with suppress(StoreError):  # the next heartbeat is tried after HEARTBEAT_S
                self._store.beat(self.progress().study_id)

    def _measure_cell(self, study: Study, cell: Cell, owner: str) -> Measured:
        # `busy` would miss a visitor's run or a model load that began and ended during the cell.
        num_before = self._runs.num_begun()
        request = replace(study.request(cell), prompt_token_ids=self._prompts.get(cell.item, ()))
        run = self._run_to_end(request, owner)
        try:
            if not run.is_done:
                raise CellInterruptedError("its run did not end in time")
            # The cell's own run counts 1.
            if self._runs.num_begun() != num_before + 1 or self._why_models_differ(study):
                raise CellInterruptedError("a visitor's run or a model load overlapped it")
            if study.chat:  # a template may insert the time: a prompt's tokens are kept
                self._prompts[cell.item] = _prompt_of(run)
            result = measure_run(run.events(0, run.count))
            auto = depends_on_timings(request.speculation)
            return replace(result, auto_nodes=self._nodes) if auto else result
        except CellInterruptedError:
            self._lost.append(run)
            raise

    def _forget_lost(self) -> None:
        """Deletes the runs of interrupted cells; not during a cell, since this takes CPU time."""
        while self._lost:
            self._runs.forget(self._lost.pop())

    def _run_to_end(self, request: Request, owner: str, in_log: bool = True) -> ActiveRun:
        """Runs a request; cancels it if another run or a model load begins, or on stop."""
        run = self._runs.start(with_nodes(request, self._nodes), owner, in_log)
        try:
            # `busy` counts this run, too: above 1 there is another run, or a model load.
            while not run.is_done and not self._stop.is_set() and self._runs.busy() <= 1:
                run.wait_done(POLL_S)
                self._heartbeat()
        finally:
            # No effect on a run that has ended.
            run.cancel()
        run.wait_done(END_TIMEOUT_S)
        if self._nodes is None and depends_on_timings(request.speculation):
            self._nodes = resolved_nodes(run.events(0, 1))
        return run


def _prompt_of(run: ActiveRun) -> tuple[int, ...]:
    first = next(iter(run.events(0, 1)), None)
    return tuple(first.prompt_token_ids) if isinstance(first, RunStarted) else ()
