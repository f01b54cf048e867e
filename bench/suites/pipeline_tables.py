"""The tables of the `pipeline` suite. Reads samples, runs nothing.

Of a serial round the share f is drafting; of the drafts the share h was made beside a verification,
came true and was used: then no more than 1 / (1 - h f) can be gained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.claims import claims_table, judged
from bench.context import Context
from bench.suites.pipeline_rows import AUTO, SERIAL, Row
from bench.tables import NOTHING, figure, ratio, table
from lab.figures import Estimate, estimate, middle

__all__ = ["Contender", "tables"]

OF_BOUND, GAIN, SHARE, NEVER_BELOW = 0.9, 1.15, 0.4, 0.97
SENTENCES = 12


@dataclass(frozen=True, slots=True)
class Contender:
    """One pipelining in one row's blocks: (prompt, figures by contestant)."""

    name: str
    blocks: Sequence[tuple[str, Mapping[str, Any]]]

    def total(self, key: str, of: str = "") -> float:
        """A sum over all blocks, of another contestant if named."""
        return float(sum(figures[of or self.name].get(key, 0) for _, figures in self.blocks))

    def share(self, key: str, whole: str, of: str = "") -> float:
        """One sum over another; 0 where there is nothing."""
        total = self.total(whole, of)
        return self.total(key, of) / total if total else 0.0

    @property
    def hit_rate(self) -> float:
        return self.share("hits", "drafts")

    @property
    def draft_share(self) -> float:
        """Drafting's part of a serial round's time, drafters one after another."""
        return min(1.0, self.share("draft_ms", "round_ms", SERIAL))

    @property
    def bound(self) -> float:
        """What the gain cannot exceed: every hit's drafting hidden whole."""
        return 1 / max(0.01, 1 - self.hit_rate * self.draft_share)

    @property
    def speed(self) -> Estimate | None:
        """Tokens per second, of all live requests together."""
        return self._estimate(lambda figures: _speed(figures[self.name]))

    @property
    def gain(self) -> Estimate | None:
        """Against serial decoding, within blocks."""
        return self._estimate(lambda figures: _speed(figures[self.name]) / _speed(figures[SERIAL]))

    @property
    def same_texts(self) -> str:
        """In how many blocks the texts are those of serial decoding."""
        return f"{len(self.blocks) - len(self.other_texts)} of {len(self.blocks)}"

    @property
    def other_texts(self) -> list[str]:
        """The prompts of the blocks in which they are not."""
        return [p for p, f in self.blocks if f[self.name]["digest"] != f[SERIAL]["digest"]]

    def _estimate(self, value: Any) -> Estimate | None:
        by_prompt: dict[str, list[float]] = {}
        for prompt, figures in self.blocks:
            by_prompt.setdefault(prompt, []).append(value(figures))
        return estimate(list(by_prompt.values()), middle)


def tables(context: Context, rows: Sequence[Row]) -> tuple[str, ...]:
    """Everything that can be made of the samples that are there."""
    made: list[str] = []
    claims: list[list[str]] = []
    said: Counter[str] = Counter()
    for dtype in context.settings.dtypes:
        for live in dict.fromkeys(row.live for row in rows):
            found = [
                (row, contender)
                for row in rows
                if row.live == live
                for contender in _contenders(context, dtype, row)
            ]
            made.append(_comparison([_line(*each) for each in found], live, dtype))
            for row, contender in found:
                claims += _claims(f"{row}, {dtype}", contender)
                if contender.name == AUTO:
                    said += _sentences(contender)
    note = "A gain is a median of ratios to serial decoding within blocks."
    return (*made, _reasons(said), claims_table(claims, note))


def failures(context: Context, rows: Sequence[Row]) -> tuple[str, ...]:
    """A sentence for each contestant that wrote another text than serial decoding."""
    found = (
        (f"{row}, {dtype}, {one.name}", one.other_texts)
        for dtype in context.settings.dtypes
        for row in rows
        for one in _contenders(context, dtype, row)
    )
    return tuple(
        f"{where}: other text than serial for {', '.join(other)}" for where, other in found if other
    )


def _contenders(context: Context, dtype: str, row: Row) -> Iterator[Contender]:
    samples = list(context.results.where(dtype=dtype, **row.key))
    blocks = [(sample["prompt"], sample["figures"]) for sample in samples]
    for name in row.contestants if blocks else ():
        yield Contender(name, blocks)


def _speed(figures: Mapping[str, Any]) -> float:
    return float(figures["tokens"] / figures["seconds"])


def _comparison(lines: list[list[object]], live: int, dtype: str) -> str:
    heads = ("T", "work", "pipeline", "tokens/s", f"/ {SERIAL}", "h", "f", "bound", "of the bound")
    further = ("saved ms", "wasted ms", "on", "same texts")
    note = (
        "f: drafting's share of a serial round; h: drafts that were made beside a verification, "
        "came true and were used; bound: 1 / (1 - h f). Saved and wasted milliseconds a round; on: "
        "share of the time in rounds whose drafts were made ahead. Texts: as serial decoding's, "
        "block by block."
    )
    title = f"{live} live request{'s' if live > 1 else ''}, {dtype}"
    return table(title, (*heads, *further), lines, note)


def _line(row: Row, one: Contender) -> list[object]:
    line: list[object] = [f"{row.temperature:g}", row.work, one.name, figure(one.speed, 1)]
    if one.name == SERIAL:
        return [*line, ratio(one.gain), NOTHING, f"{one.draft_share:.2f}", *[NOTHING] * 6]
    gain = one.gain
    return [
        *line,
        ratio(gain),
        f"{one.hit_rate:.2f}",
        f"{one.draft_share:.2f}",
        f"{one.bound:.2f}x",
        f"{gain.value / one.bound:.2f}" if gain else NOTHING,
        f"{one.share('saved_ms', 'rounds'):.2f}",
        f"{one.share('wasted_ms', 'rounds'):.2f}",
        f"{one.share('on_ms', 'round_ms'):.0%}",
        one.same_texts,
    ]


def _claims(where: str, one: Contender) -> list[list[str]]:
    """Of a pipelining by name: the bound, and the gain where drafting weighs; of `auto`, which may
    turn it off: never slower."""
    gain = one.gain
    if one.name == SERIAL or gain is None:
        return []
    if one.name == AUTO:
        return [judged(f"{AUTO} / {SERIAL}, {where}", gain, NEVER_BELOW)]
    bound = one.bound
    part = replace(gain, value=gain.value / bound, low=gain.low / bound, high=gain.high / bound)
    lines = [judged(f"{one.name}: gain / bound, {where}", part, OF_BOUND)]
    if one.draft_share >= SHARE:
        name = f"{one.name} / {SERIAL}, {where}, f = {one.draft_share:.0%}"
        lines.append(judged(name, gain, GAIN))
    return lines


def _sentences(one: Contender) -> Counter[str]:
    """What was said about pipelining, numbers left out, so that equal reasons meet."""
    notes = [note for _, f in one.blocks for _, note in f[one.name]["notes"]]
    return Counter(re.sub(r"\d+(\.\d+)?", "#", note) for note in notes)


def _reasons(said: Counter[str]) -> str:
    lines = [[count, sentence] for sentence, count in said.most_common(SENTENCES)]
    note = f"Notes of the runs with `{AUTO}`, numbers written as #."
    return table("When and why it was switched", ("times", "said"), lines, note)
