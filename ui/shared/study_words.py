"""A study in words and numbers for the page."""

from __future__ import annotations

from typing import Any

from core.config import SamplingParams
from core.plurals import number_of
from lab.progress import Progress
from lab.study import PLAIN, Study
from lab.tables import Results
from ui.run.listed import join_names
from ui.words.dates import local_time
from ui.words.visible import visible

__all__ = [
    "KINDS",
    "left_words",
    "limit_words",
    "machine_words",
    "measured_words",
    "progress_value",
    "study_row_value",
]

KINDS = {"compare": "comparison", "tune": "grid", "prompts": "study of prompts"}
COMING = {
    "compare": "Press Compare: plain decoding and the ticked configurations run in turn. "
    "Their figures appear side by side: the speed over plain decoding, where the time goes, what "
    "was accepted round by round, and the texts.",
    "tune": "Press Measure the grid: every point runs on every prompt, plain decoding beside it. "
    "The best point appears, a map of the speed and one of the tokens / pass, and a table of all "
    "points.",
    "prompts": "Press Measure: every prompt runs with the preset and with plain decoding. Each "
    "gets a row: what was accepted, by which drafter, and what it gained.",
}
"""What a study of each kind measures and shows; on the board before there is a study."""
STATES = {
    "running": "Running",
    "waiting": "Waiting: a visitor's run goes first",
    "stopping": "Stopping: the run under way is broken off",
    "stopped": "Stopped",
    "completed": "Complete",
    "failed": "Failed",
    "interrupted": "Interrupted: the server ended before the study did",
}
WARMING = "Warming up: short runs that are not counted"
LIVE_MS, REST_MS = 1000, 5000
"""Milliseconds between the browser's polls while a study is measured, and otherwise."""


def limit_words(study: Study) -> str:
    """How many tokens a study's runs write at most, and Live's initial limit if it differs."""
    own, initial = study.sampling.max_new_tokens, SamplingParams().max_new_tokens
    in_live = "" if own == initial else f", in Live {initial} unless changed"
    return f"Runs of at most {number_of(own, 'token')}{in_live}."


def machine_words(results: Results) -> str:
    """Settings that a study's runs got from the server: the value of `max_tree_nodes=auto`, and the
    schedule. Empty without such settings."""
    return " ".join(words for words in (_auto_words(results), _schedule_words(results)) if words)


def _auto_words(results: Results) -> str:
    by_contestant = {
        cell.contestant: one.auto_nodes for cell, one in results.items() if one.auto_nodes
    }
    if not by_contestant:
        return ""
    nodes = next(iter(by_contestant.values()))
    count = number_of(nodes, "node")
    drafting = {cell.contestant for cell in results if not cell.contestant.startswith(PLAIN)}
    # If another configuration sets `max_tree_nodes`, those with `auto` are named.
    where = (
        "of this study"
        if drafting <= by_contestant.keys()
        else f"of {join_names(list(by_contestant))}"
    )
    return f"max_tree_nodes=auto resolved to {count} in every run {where}."


def _schedule_words(results: Results) -> str:
    names = [one.schedule for one in results.values() if one.schedule]
    if not names:
        return ""
    runs = "The run was" if len(results) == 1 else f"{len(names)} of {len(results)} runs were"
    schedules = join_names(list(dict.fromkeys(names)))
    return (
        f"{runs} scheduled by {schedules}, which may grant shorter drafts than a configuration "
        "asks for; with schedule each it gets all."
    )


def left_words(seconds: float | None) -> str:
    """`about 40 s left`; empty without an estimate."""
    if seconds is None:
        return ""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {unit} left"
    return f"about {max(1, round(seconds))} s left"


def measured_words(progress: Progress) -> str:
    """`3/40`: the measured and the planned runs; empty if no study is being measured."""
    return f"{progress.done}/{progress.total}" if progress.is_active else ""


def progress_value(row: Any, progress: Progress, kind: str, trouble: str = "") -> dict[str, Any]:
    """The progress bar's value for the study in `row` (None: no study is opened)."""
    live = progress.is_active
    is_measured = row is not None and progress.study_id == row.study_id and live
    value: dict[str, Any] = {"trouble": trouble, "ask_ms": LIVE_MS if live else REST_MS}
    value["measured"] = measured_words(progress)  # for the header
    if row is None:
        value |= {"study": "", "state": "none", "title": f"No {KINDS[kind]} yet"}
        value["more"] = COMING[kind]
    else:
        value |= _of_row(row, progress if is_measured else None)
    return value | ({} if is_measured or not live else _other_study_notice(progress, kind))


def _of_row(row: Any, progress: Progress | None) -> dict[str, Any]:
    """`progress`: None unless this study is being measured."""
    state = progress.state if progress else row.state
    num_done = progress.done if progress else row.done
    warming = progress is not None and progress.is_warming_up and state == "running"
    parts = [f"{num_done} of {row.total}"]
    if progress:
        parts.append(left_words(progress.remaining_s))
    at_rest = progress is None and row.state != "running"
    return {
        "study": row.study_id,
        "title": visible(row.title),
        "state": state,
        "state_words": WARMING if warming else STATES.get(state, state),
        "words": ", ".join(part for part in parts if part),
        "more": _more(progress) if progress else row.reason,
        "done": num_done,
        "total": row.total,
        "stop": bool(progress) and state != "stopping",
        "go": at_rest and row.done < row.total,
    }


def _more(progress: Progress) -> str:
    sentences = [progress.log_error] if progress.log_error else []
    if progress.cell is not None:
        sentences.append(f"Now: {progress.cell.words}.")
    if progress.lost:
        runs = "1 run was" if progress.lost == 1 else f"{progress.lost} runs were"
        sentences.append(f"{runs} broken off for a visitor's and measured again.")
    return " ".join(sentences)


def _other_study_notice(progress: Progress, kind: str) -> dict[str, Any]:
    which = f"Another {KINDS.get(progress.kind, 'study')}"
    parts = [f"{progress.done} of {progress.total}", left_words(progress.remaining_s)]
    counts = ", ".join(part for part in parts if part)
    # A visitor does not get the id of a study that is another visitor's.
    whose = "" if progress.study_id else ", another visitor's,"
    return {
        "beside": f"{which}{whose} is being measured now: {counts}. One runs at a time.",
        # The study's id if this tab can show the study, else empty.
        "beside_study": progress.study_id if progress.kind == kind else "",
    }


def study_row_value(row: Any, progress: Progress, *, with_kind: bool = False) -> dict[str, Any]:
    """A line of the list of studies; `with_kind`: whether the list has studies of all kinds."""
    live = progress.measures(row.study_id)
    state = progress.state if live else row.state
    kind = KINDS.get(row.kind, row.kind)
    when = local_time(row.created_utc)
    return {
        "study": row.study_id,
        "title": visible(row.title),
        "when": f"{kind[:1].upper()}{kind[1:]}, {when}" if with_kind else when,
        "state": state,
        # In a list of one kind, the bar above the list shows the count.
        "cells": ""
        if live and not with_kind
        else f"{progress.done if live else row.done} of {row.total}",
        "live": live,
    }
