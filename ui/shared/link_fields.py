"""The fields of a link, and messages about wrong fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.learn.lessons import LESSONS
from ui.run.opening import OPENING
from ui.run.player import EVENTS_A_ROUND, Player
from ui.run.view import STAGES
from ui.shared.board import DOCK

__all__ = ["go_to", "instead", "wanted_lesson", "wanted_tab", "wrong_panes"]

PLACE = ("round", "stage", "node", "shown")
"""The fields that name a place in a run; a stage and a node belong to a round. `shown`: the number
of complete rounds that are shown, if the run was not played to its end."""
CLOCKS = ("time", "passes")
QUOTED_CHARACTERS = 20
"""The most characters of a wrong value that a message quotes."""


def wanted_lesson(query: Mapping[str, str]) -> int:
    """The lesson's number; 0 if the link names no existing lesson."""
    number = _number_or_zero(query.get("lesson", ""))
    return number if 1 <= number <= len(LESSONS) else 0


def wanted_tab(query: Mapping[str, str], tabs: Sequence[str]) -> tuple[str, str]:
    """The tab to open (empty: none), and an error message about the link (empty: no error)."""
    if query.get("lesson"):
        allowed = f"a number from 1 to {len(LESSONS)}"
        wrong = _wrong("lesson", query["lesson"], allowed, "the lesson opened last")
        return "learn", "" if wanted_lesson(query) else wrong
    name = query.get("tab", "").lower()
    if query.get("run"):
        return ("live" if name == "live" or query["run"] == OPENING else "sessions"), ""
    if not name or name in tabs:
        return name, ""
    return "", _wrong("tab", name, f"one of {', '.join(tabs)}", "Live")


def wrong_panes(query: Mapping[str, str], tab: str) -> list[str]:
    """Error messages about the dock's pane and the race's clock."""
    panes = (*(name for name, _ in DOCK), *["requests"] * (tab != "sessions"), "closed")
    wrong = []
    for name, allowed in (("dock", panes), ("clock", CLOCKS)):
        value = query.get(name, "")
        if value and value not in allowed:
            wrong.append(_wrong(name, value, f"one of {', '.join(allowed)}", "the usual one"))
    return wrong


def go_to(player: Player, query: Mapping[str, str]) -> tuple[dict[str, Any] | None, list[str]]:
    """Moves the player, which is at the last event known, back to the rounds that the link shows.
    Returns what to select (None: nothing), and error messages about the place."""
    round_text, stage, node, shown = (query.get(name, "") for name in PLACE)
    if not (round_text or stage or node or shown):
        return None, []
    frame, wrong = player.frame(), []
    rounds, number = frame.known_rounds, _number_or_zero(round_text)
    has_round = 1 <= number <= rounds
    if not has_round:
        number = frame.selected_round + 1
        if round_text or stage or node:
            allowed = f"a number from 1 to {rounds}"
            allowed += "" if round_text else ", since the link names a stage or a node of it"
            instead_of_it = f"round {number}" if number else "no round"
            instead_of_it += ", no node" if node else ""
            wrong.append(_wrong("round", round_text, allowed, instead_of_it))
        node = ""
    if stage and stage not in STAGES:
        wrong.append(_wrong("stage", stage, f"one of {', '.join(STAGES)}", STAGES[-1]))
        stage = ""
    if node:
        last = frame.view.rounds[number - 1].nodes - 1
        if _integer(node) not in range(-1, last + 1):
            allowed = f"a number from -1, the root, to {last}" if last >= 0 else "-1, the root"
            wrong.append(_wrong("node", node, f"{allowed}, in round {number}", "no node"))
            node = ""
    if shown:
        least, count = max(0, number - 1), _integer(shown)
        if count is not None and count in range(least, rounds):
            # If the link's round is not complete, its stages up to the link's stage are shown too.
            stages = STAGES.index(stage or STAGES[-1]) + 1 if count < number else 0
            player.seek_stage(EVENTS_A_ROUND * count + stages)
        else:
            allowed = f"a number from {least} to {rounds - 1}"
            wrong.append(_wrong("shown", shown, allowed, "all rounds"))
    if not has_round and not stage:
        return None, wrong
    return {"round": number - 1, "stage": stage, "node": _integer(node)}, wrong


def instead(fault: str, shown: str) -> str:
    """The message that says what is wrong and what is shown instead."""
    return f"{fault} (shown instead: {shown})"


def _wrong(name: str, value: str, allowed: str, shown: str) -> str:
    return instead(f"{name} is {value[:QUOTED_CHARACTERS]!r}: it must be {allowed}", shown)


def _number_or_zero(text: str) -> int:
    return max(0, _integer(text) or 0)


def _integer(text: str) -> int | None:
    """`text` as a number: a whole number from 0 with at most 9 digits, or -1 (a tree's root). None
    if `text` is neither."""
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    return -1 if digits == "-1" else int(digits) if is_number else None
