"""The contestants and the tables of the `pipeline` suite.

Let f be the fraction of a serial round that is drafting, and h the fraction of drafts that were
made during a pass of the LLM and used. Then the gain is at most 1 / (1 - h f).
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from bench.context import Context, Report
from bench.tables import Group, claim_row, claims_table, figure, group_rows, long_rows, ratio, table
from core.config import PIPELINES, SpeculationConfig
from lab.figures import Estimate

SERIAL, AUTO, BEST = "off", "auto", "best"
TEMPERATURES = (0.0, 0.8)
# By the number of live requests.
USEFUL_MODES: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {1: (SERIAL, "ahead", AUTO), 8: (SERIAL, "across", AUTO)}
)
CHAIN: Mapping[str, Any] = {"speculation_length": 4, "max_tree_nodes": 8}
# Little drafting in a round, much drafting, and the preset `best`.
# Node budgets are fixed: `auto` depends on measured times.
WORKS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "one SSM, chain of 4": {"drafters": ("first",), "expansion": (1,), **CHAIN},
        "all SSMs, 4 steps": {"speculation_length": 4, "max_tree_nodes": 24},
        BEST: {"max_tree_nodes": 64},
    }
)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """One comparison. `live`: requests at a time; `contestants`: by pipeline mode, serial first."""

    live: int
    work: str
    temperature: float
    contestants: Mapping[str, SpeculationConfig]

    @property
    def key(self) -> dict[str, Any]:
        """Identifies the row's samples, together with dtype and block."""
        return {"live": self.live, "work": self.work, "temperature": self.temperature}

    def __str__(self) -> str:
        return f"{self.live} live, {self.work}, T = {self.temperature:g}"


def pipeline_rows() -> tuple[PipelineRow, ...]:
    """The rows with at least two pipeline modes."""
    return tuple(
        PipelineRow(live, work, temperature, _contestants(names, _speculation(work)))
        for live, names in USEFUL_MODES.items()
        for temperature in TEMPERATURES
        for work in WORKS
        if len(set(names) & set(PIPELINES)) > 1
    )


def _speculation(work: str) -> SpeculationConfig:
    preset = SpeculationConfig.preset(BEST if work == BEST else "specinfer")
    return dataclasses.replace(preset, **WORKS[work])


def _contestants(names: tuple[str, ...], work: SpeculationConfig) -> dict[str, SpeculationConfig]:
    pipelines = [name for name in names if name in PIPELINES]
    return {name: dataclasses.replace(work, pipeline=name) for name in pipelines}


# Targets: gain / bound; the gain if drafting is at least SHARE of a round; `auto` / serial.
OF_BOUND, GAIN, SHARE, NEVER_BELOW = 0.9, 1.15, 0.4, 0.97
SENTENCES = 12  # number of notes that are listed


@dataclass(frozen=True)
class Contender:
    """A pipeline mode. `own`: its figures; `serial`: serial decoding's figures."""

    own: Group
    serial: Group

    @property
    def name(self) -> str:
        return str(self.own["contestant"])

    @property
    def hit_rate(self) -> float:
        return _share(self.own, "hits", "drafts")

    @property
    def draft_share(self) -> float:
        """f: drafting's fraction of a serial round."""
        return min(1.0, _share(self.serial, "draft_ms", "round_ms"))

    @property
    def upper_bound(self) -> float:
        """1 / (1 - h f)."""
        # h f may be 1.
        return 1 / max(0.01, 1 - self.hit_rate * self.draft_share)

    @property
    def gain(self) -> Estimate | None:
        """Speed divided by serial decoding's speed, within blocks."""
        return self.own.ratio(contestant=SERIAL)

    @property
    def other_texts(self) -> list[str]:
        """Prompts whose texts differ from serial decoding's."""
        pairs = zip(self.own.rows, self.serial.rows, strict=True)
        return [row["prompt"] for row, base in pairs if row["digest"] != base["digest"]]


def _share(group: Group, part: str, total_field: str) -> float:
    total = group.sum(total_field)
    return group.sum(part) / total if total else 0.0


def report_of(context: Context, rows: Sequence[PipelineRow]) -> Report:
    """The tables, and a failure for each contestant whose text differs from serial decoding's."""
    texts: list[str] = []
    claims: list[list[str]] = []
    failures: list[str] = []
    sentences: Counter[str] = Counter()
    for dtype in context.settings.dtypes:
        for live in dict.fromkeys(row.live for row in rows):
            of_live = [row for row in rows if row.live == live]
            contenders = [(row, one) for row in of_live for one in _contenders(context, dtype, row)]
            texts.append(_comparison(contenders, live, dtype))
            for row, one in contenders:
                claims += _claims(f"{row}, {dtype}", one)
                if one.name == AUTO:
                    sentences += _sentences(one)
                if other := ", ".join(one.other_texts):
                    where = f"{row}, {dtype}, {one.name}"
                    failures.append(f"{where}: other text than serial for {other}")
    note = "A gain is a median of ratios to serial decoding within blocks."
    return Report((*texts, _reasons(sentences), claims_table(claims, note)), tuple(failures))


def _contenders(context: Context, dtype: str, row: PipelineRow) -> Iterator[Contender]:
    groups = group_rows(long_rows(context.results.where(dtype=dtype, **row.key)), ("contestant",))
    for group in groups:
        if group["contestant"] in row.contestants:
            yield Contender(group, groups[0])


def _comparison(contenders: Sequence[tuple[PipelineRow, Contender]], live: int, dtype: str) -> str:
    note = (
        "f: drafting's share of a serial round; h: drafts that were made during a pass of the LLM, "
        "came true and were used; bound: 1 / (1 - h f). Saved and wasted milliseconds a round; on: "
        "share of the time in rounds whose drafts were made ahead. Texts: as serial decoding's, "
        "block by block."
    )
    columns: Mapping[str, Callable[[Contender], object]] = {
        "pipeline": lambda one: one.name,
        "tokens/s": lambda one: figure(one.own.median(), 1),
        f"/ {SERIAL}": lambda one: ratio(one.gain),
        "h": lambda one: f"{one.hit_rate:.2f}",
        "f": lambda one: f"{one.draft_share:.2f}",
        "bound": lambda one: f"{one.upper_bound:.2f}x",
        "of the bound": lambda one: f"{one.gain.value / one.upper_bound:.2f}" if one.gain else None,
        "saved ms": lambda one: f"{_share(one.own, 'saved_ms', 'rounds'):.2f}",
        "wasted ms": lambda one: f"{_share(one.own, 'wasted_ms', 'rounds'):.2f}",
        "on": lambda one: f"{_share(one.own, 'on_ms', 'round_ms'):.0%}",
        "same texts": lambda one: (
            f"{len(one.own.rows) - len(one.other_texts)} of {len(one.own.rows)}"
        ),
    }
    of_serial = ("pipeline", "tokens/s", f"/ {SERIAL}", "f")  # columns with a meaning for SERIAL
    lines: list[list[object]] = [
        [f"{row.temperature:g}", row.work]
        + [
            cell(one) if one.name != SERIAL or head in of_serial else None
            for head, cell in columns.items()
        ]
        for row, one in contenders
    ]
    title = f"{live} live request{'s' if live > 1 else ''}, {dtype}"
    return table(title, ("T", "work", *columns), lines, note)


def _claims(where: str, one: Contender) -> list[list[str]]:
    gain = one.gain
    if one.name == SERIAL or gain is None:
        return []
    if one.name == AUTO:
        return [claim_row(f"{AUTO} / {SERIAL}, {where}", gain, NEVER_BELOW)]
    bound = one.upper_bound
    part = replace(gain, value=gain.value / bound, low=gain.low / bound, high=gain.high / bound)
    lines = [claim_row(f"{one.name}: gain / bound, {where}", part, OF_BOUND)]
    if one.draft_share >= SHARE:
        name = f"{one.name} / {SERIAL}, {where}, f = {one.draft_share:.0%}"
        lines.append(claim_row(name, gain, GAIN))
    return lines


def _sentences(one: Contender) -> Counter[str]:
    """Counts notes. Notes that differ only in numbers are counted together."""
    notes = [note for row in one.own.rows for _, note in row["notes"]]
    return Counter(re.sub(r"\d+(\.\d+)?", "#", note) for note in notes)


def _reasons(sentences: Counter[str]) -> str:
    lines = [[count, sentence] for sentence, count in sentences.most_common(SENTENCES)]
    note = f"Notes of the runs with `{AUTO}`, numbers written as #."
    return table("When and why it was switched", ("times", "said"), lines, note)
