"""Texts of the Models tab: offers, memory needs and the state of a swap, as component values."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

from ui.models_tab.offers import HERE, MemoryNeed, Offer, Part
from ui.run.letters import letter
from ui.run.listed import by_index
from ui.server.model_host import ModelHost
from ui.server.model_swap import CANCELLED, ModelPair, ModelSwap, Stage
from ui.shared.parts import short_count
from ui.words.messages import Line

__all__ = ["NOT_YOURS", "free_line", "need_lines", "offers_value", "stages_value", "state_lines"]

NOT_YOURS = (
    "You may look, not load: models are exchanged for everybody, so this is done only on a server "
    "with --auth, or if only the server's machine reaches it, without a proxy."
)


def offers_value(all_offers: Iterable[Offer], memory: MemoryNeed) -> dict[str, Any]:
    """The table's value. Of offers with the same models and dtypes only the first is listed: the
    loaded pair, if it is among them."""
    rows: dict[tuple[Part, ...], Offer] = {}
    for offer in all_offers:
        rows.setdefault(tuple(replace(part, place="") for part in offer.parts), offer)
    return {"offers": {str(i): _offer(one, memory.free) for i, one in enumerate(rows.values())}}


def _offer(offer: Offer, free: int | None) -> dict[str, Any]:
    return {
        "group": offer.group,
        "name": offer.parts[0].name,
        "llm": offer.llm,
        "ssms": {str(i): name for i, name in enumerate(offer.ssms)},
        "parts": by_index(
            _part(part) | mark for part, mark in zip(offer.parts, _marks(offer), strict=True)
        ),
        "total": _size(offer.bytes) if offer.bytes else "",
        "verdict": _verdict(offer, free),
        "lack": f"{_size(offer.bytes)} needed, {_size(free)} free" if free is not None else "",
        "note": offer.note,
    }


def _marks(offer: Offer) -> list[dict[str, Any]]:
    ssms = itertools.count()
    return [
        {"slot": (slot := next(ssms)), "letter": letter(slot)}
        if offer.group == "loaded" and part.role == "SSM"
        else {}
        for part in offer.parts
    ]


def _part(part: Part) -> dict[str, Any]:
    return {
        "role": part.role,
        "name": part.name,
        "count": short_count(part.parameters) if part.parameters else "?",
        "memory": f"{_size(part.bytes)} {part.dtype}" if part.bytes else f"? {part.dtype}",
        "place": part.place,
    }


def _verdict(offer: Offer, free: int | None) -> str:
    if offer.group == "loaded":
        return "loaded"
    if free is None or not offer.bytes:
        return "unknown"
    return "fits" if offer.bytes <= free else "tight"


def _size(size: int) -> str:
    from core.models.machine import format_bytes

    # One decimal from 1 to 10 MiB, so that a total agrees with the rows above it.
    with_decimal = 2**20 <= size < 10 * 2**20
    return f"{size / 2**20:.1f} MiB" if with_decimal else format_bytes(size)


def free_line(memory: MemoryNeed) -> Line:
    """The free memory, in words."""
    free = "an unknown amount" if memory.free is None else _size(memory.free)
    of_memory = "of memory is free" if memory.device == "cpu" else f"is free on {memory.device}"
    return Line(
        "info",
        f"{free} {of_memory} now. Memory is that of the weights; a run's context "
        "comes on top. The loaded pair stays until the next one is loaded, so both must fit.",
    )


def need_lines(need: MemoryNeed, listed: bool = False) -> list[Line]:
    """Whether a pair fits and, unless the pair is `listed`, each model's memory."""
    counts = Counter(() if listed else need.parts)
    lines = [
        Line("info", f"{f'{count} x ' * (count > 1)}{part.role} {part.name}: {_part_words(part)}.")
        for part, count in counts.items()
    ]
    free = "unknown" if need.free is None else _size(need.free)
    where = "of memory free" if need.device == "cpu" else f"free on {need.device}"
    total = f"{_size(need.bytes)} together"
    if need.fits:  # `free_line` shows the free memory
        return [Line("good", f"It fits: {total}."), *lines]
    total += f", {free} {where}"
    if need.fits is False:
        return [Line("error", f"It does not fit: {total}. {_alternative(need)}"), *lines]
    return [Line("warn", f"At least {total}; {_unknown_words(need)}."), *lines]


def _alternative(need: MemoryNeed) -> str:
    if need.smaller == need.bytes:
        return "Choose smaller models or another device."
    at_least = "" if all(part.bytes for part in need.parts) else "at least "
    need_words = f"{at_least}{_size(need.smaller)} together"
    if need.free is not None and need.smaller > need.free:
        return f"Nor with the dtype bfloat16: {need_words}."
    return f"Choose the dtype bfloat16: {need_words}."


def _unknown_words(need: MemoryNeed) -> str:
    without_weights = [part.name for part in need.parts if not part.bytes and part.place == HERE]
    if without_weights:
        return f"no weights of a known kind lie in {', '.join(without_weights)}"
    return "the size of what is not on this machine is not known before it is downloaded"


def _part_words(part: Part) -> str:
    if not part.bytes:
        return f"{part.place}, size not known, as {part.dtype}"
    about = "about " if part.place == "to be downloaded" else ""
    count = short_count(part.parameters)
    return f"{part.place}, {about}{count} parameters, {about}{_size(part.bytes)} as {part.dtype}"


# -- a swap --


def state_lines(model_host: ModelHost, swap: ModelSwap, may_load: bool) -> list[Line]:
    """The state of a swap. Without `may_load`, the requested names and the reason of a failure are
    left out, because they may contain paths of this machine."""
    lines = _state(model_host, swap, may_load)
    runs = model_host.runs_on_old_models()
    if runs:
        what = "1 run still ends" if runs == 1 else f"{runs} runs still end"
        lines.append(Line("info", f"{what} on the models of before; their memory is free then."))
    return lines


def _state(model_host: ModelHost, swap: ModelSwap, may_load: bool) -> list[Line]:
    pair = f" {_pair_name(swap.pair)}" if swap.pair and may_load else " another pair"
    names = ", ".join(model_host.names())
    stays = f"What was loaded stays: {names}."
    duration = f"{swap.end - swap.began:.1f} s"
    if swap.cancel_requested and swap.is_loading:
        return [Line("info", f"Giving{pair} up once the loader reports again.")]
    if swap.is_loading:
        stage = f": {swap.stages[-1].words}" if swap.stages and may_load else ""
        return [Line("info", f"Loading{pair}{stage}. Runs go on meanwhile.")]
    if swap.state == "done":
        return [Line("good", f"Loaded in {duration}: {names}. New runs use them.")]
    if swap.state == CANCELLED:
        return [Line("info", f"Loading was given up after {duration}. {stays}")]
    if swap.state == "failed":
        why = swap.reason if may_load else "it cannot be loaded"
        return [Line("error", f"{why}."), Line("info", stays)]
    return []


def _pair_name(pair: ModelPair) -> str:
    ssms = ", ".join(pair.ssms)
    return f"{pair.llm} with {ssms}" if ssms else f"{pair.llm} without an SSM"


def stages_value(swap: ModelSwap, may_load: bool) -> dict[str, Any]:
    """Each model's loading stages with their times; no lines without `may_load`."""
    # For a failure before the first model's stages, the reason in the notice is enough.
    failed_early = swap.state == "failed" and len(swap.stages) < 2
    if not may_load or swap.state == "none" or failed_early:
        return {"lines": {}}
    last_end = swap.end or time.monotonic()
    ends = [*(stage.began for stage in swap.stages[1:]), last_end]
    with_ends = list(zip(swap.stages, ends, strict=False))
    lines: list[dict[str, str]] = []
    for model, stages in groupby(with_ends, key=lambda one: _model_of(one[0])):
        durations = [f"{_step_of(stage)} {end - stage.began:.1f} s" for stage, end in stages]
        lines.append({"what": model, "steps": ", ".join(durations), "state": "done"})
    if lines and swap.state != "done":
        lines[-1]["state"] = "now" if swap.is_loading else "failed"
    return {"lines": {str(i): line for i, line in enumerate(lines)}}


def _model_of(stage: Stage) -> str:
    """The model of a stage, for example `SSM 1 of 3 name` of `SSM 1 of 3 name: weights`."""
    return stage.words.rpartition(": ")[0] or stage.words


def _step_of(stage: Stage) -> str:
    return stage.words.rpartition(": ")[2] if ": " in stage.words else ""
