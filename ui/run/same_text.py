"""Whether two recorded runs wrote the same text, and whether laws 1 and 2 (tests/laws) require it.

Besides the kinds of proof.py, an Answer's `kind` may be `unweighed`: a bug cannot be distinguished
from a rounding tie. It is `other` if differing inputs or a full context explain the difference,
or if a run wrote no token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.config import recorded_sampling
from core.events import Event, RunStarted
from core.plurals import number_of
from lab.tables import DISTRIBUTION_RULES
from lab.texts import first_difference
from ui.run.listed import join_names
from ui.run.proof import Answer, llm_of, tie_or_bug
from ui.run.view import View, reduce_all

__all__ = ["NAMES", "same_text"]

NAMES = ("The first run", "the second")
# Fields that may end a text earlier without changing the tokens before its end.
ENDINGS = ("max_new_tokens", "stop", "ignore_eos")
# At temperature 0 these fields change no text: they never remove the most probable token.
DRAWING = ("top_k", "top_p", "min_p")


def same_text(
    events: Sequence[Event], other_events: Sequence[Event], names: tuple[str, str] = NAMES
) -> Answer:
    """Whether both runs wrote the same tokens. If their ENDINGS differ or a run did not complete,
    they are compared up to the end of the shorter text. `names`: the runs' names in the answer; the
    first name begins a sentence."""
    one, two = reduce_all(events), reduce_all(other_events)
    if one.started is None or two.started is None or not one.tokens or not two.tokens:
        return Answer("other", "One of the runs wrote no token: there is nothing to compare.")
    one, two, cut = _as_far_as_both(one, two)
    at = first_difference(one.token_ids, two.token_ids)
    why = _differences(one.started, two.started)
    if at is None:
        extent = " as far as both went" if cut else ""
        despite = f", though they differ in {join_names(why)}" if why else ""
        tokens = number_of(len(one.tokens), "token")
        sentence = f"{names[0]} wrote the same text as {names[1]}{extent}{despite}"
        return Answer("identical", f"{sentence}: {tokens}, one for one.")
    if why:
        differ = f"the runs differ in {join_names(why)}"
        return Answer("other", f"Another text from token {at + 1} on, as may be: {differ}.", at)
    # The shorter text is the beginning of the longer text.
    if at >= min(len(one.tokens), len(two.tokens)):
        return _end_answer(one, two, at)
    distribution = _distribution_answer(one, two, at)
    return distribution or _difference_answer(one, two, at, events, other_events, names)


def _as_far_as_both(one: View, two: View) -> tuple[View, View, bool]:
    """The views, perhaps cut to the shorter text; and whether a view was cut."""
    assert one.started is not None and two.started is not None
    limits = [_sampling(view.started) for view in (one, two)]
    alike = all(limits[0].get(name) == limits[1].get(name) for name in ENDINGS)
    if alike and one.state == two.state == "completed":
        return one, two, False
    count = min(len(one.tokens), len(two.tokens))
    cut = len(one.tokens) != len(two.tokens)
    return replace(one, tokens=one.tokens[:count]), replace(two, tokens=two.tokens[:count]), cut


def _differences(one: RunStarted | None, two: RunStarted | None) -> list[str]:
    """The differing inputs that can change the text."""
    assert one is not None and two is not None
    first, second = _sampling(one), _sampling(two)
    why = []
    if one.prompt_token_ids != two.prompt_token_ids:
        why.append("prompt")
    if not _same_llm(one, two):
        why.append("LLM")
    if one.dtype != two.dtype:
        why.append("number format")
    drawn = first.get("temperature", 0) or second.get("temperature", 0)
    always = ("temperature", "repetition_penalty")
    fields = (*always, *DRAWING) if drawn else always
    why += [name for name in fields if first.get(name) != second.get(name)]
    if drawn:
        why += ["seed"] if one.seed != two.seed else []
    return why


def _end_answer(one: View, two: View, at: int) -> Answer:
    why = sorted({view.finish_reason for view in (one, two)})
    if "context" in why:
        return Answer("other", f"Same text up to token {at}, where a context was full.", at)
    return Answer(
        "bug", f"Same text up to token {at}, where one ends ({', '.join(why)}): a bug.", at
    )


def _distribution_answer(one: View, two: View, at: int) -> Answer | None:
    rules = [view.speculation.get("verify", "") for view in (one, two)]
    rule_names = [rule for rule in rules if rule in DISTRIBUTION_RULES]
    if not rule_names:
        return None
    return Answer(
        "distribution",
        f"Same distribution, not the same tokens: they differ from token {at + 1} on. "
        f"verify={rule_names[0]} draws its own coins, and what is drafted decides which; "
        "law 3 shows that the distribution is the LLM's own.",
        at,
    )


def _difference_answer(
    one: View,
    two: View,
    at: int,
    events: Sequence[Event],
    other_events: Sequence[Event],
    names: Any,
) -> Answer:
    answer = tie_or_bug(one, two, at, (events, other_events), names)
    if answer is not None:
        return answer
    return Answer(
        "unweighed",
        f"Another text from token {at + 1} on. What else was likely there was not recorded, so a "
        "rounding tie cannot be told from a bug: run both with record_top_k 5 or more.",
        at,
    )


def _sampling(started: RunStarted | None) -> Mapping[str, Any]:
    return recorded_sampling(started.asked if started else {})


def _same_llm(one: RunStarted, two: RunStarted) -> bool:
    """The LLM's number format and its device may differ."""
    first, second = (llm_of(started.models) for started in (one, two))
    if first is None or second is None:
        return first is second
    if first.dtype == second.dtype:
        return first.is_same(replace(second, device=first.device))
    # In another number format the weights are rounded differently and have another fingerprint.
    return first.is_same(replace(second, dtype=first.dtype, device=first.device, fingerprint=""))
