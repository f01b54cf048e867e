"""SYNTHETIC values of all pictures, changed for a scene of `tests.ui.components.gallery`."""

from __future__ import annotations

from typing import Any

from core.config.mechanisms import routing_rule
from core.routing.regret import regret_of
from ui.run.regret_words import regret_value


def timeline(values: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**values, "timeline": {**values["timeline"], **fields}}


def with_trials(values: dict[str, Any]) -> dict[str, Any]:
    results = {"3": {"kind": "ahead", "ms": 7.0, "without": 10.2, "on": True}}
    lost = {**results, "12": {"kind": "ahead", "ms": 21.6, "without": 10.6, "on": False}}
    sums = {**values["timeline"]["ahead"], "saved": 41.0, "wasted": 112.4}
    return timeline(values, pipeline="auto", trials=lost, ahead=sums)


def chance(values: dict[str, Any], asked: int) -> dict[str, Any]:
    """Drafting ahead won a trial of `auto`, although no draft made ahead was used."""
    results = {
        "kind": "ahead",
        "ms": 104.8,
        "without": 121.8,
        "on": True,
        "asked": asked,
        "used": 0,
    }
    sums = {"hits": 0, "misses": 17, "saved": 0.0, "wasted": 206.6, "guessed": True}
    return timeline(values, pipeline="auto", trials={"13": results}, ahead=sums)


def alike(values: dict[str, Any]) -> dict[str, Any]:
    results = {"kind": "ahead", "ms": 10.3, "without": 10.2, "on": True, "asked": 9, "used": 5}
    return timeline(values, pipeline="auto", trials={"13": results})


def alone(values: dict[str, Any], ended: bool = True) -> dict[str, Any]:
    none: dict[str, Any] = {"ahead": {}, "hits": {}, "round": {}, "rounds": {}}
    return timeline(values, **none, policy="trend", ended=ended)


def others(values: dict[str, Any]) -> dict[str, Any]:
    share = values["timeline"]["share"]
    share = {**share, "other": 2 * sum(share.values())}
    return timeline(values, share=share, total=sum(share.values()))


def with_pauses(values: dict[str, Any]) -> dict[str, Any]:
    took = {"p": 19.0, "ms": 55.2}
    rounds = {str(n): {**took, "hid": 0.0, "all": 56.0} for n in range(4)}
    rounds["4"] = {**took, "hid": 5.0, "all": 80.1}
    return timeline(values, rounds=rounds)


def longer(values: dict[str, Any]) -> dict[str, Any]:
    """The measured time exceeds the time from the first stage to the last."""
    rounds = {"4": {"p": 31.0, "ms": 34.9, "hid": 0.0, "all": 27.1}}
    return timeline(values, rounds=rounds)


def peaks(values: dict[str, Any]) -> dict[str, Any]:
    long = {0, 1, 2, 3, 4, 5, 25, 46, 47, 50, 51, 52, 53, 55, 56}
    rounds = {
        str(n): {"ms": 100.0 + 7 * n if n in long else 5.0 + n % 3, "p": 6.0} for n in range(60)
    }
    return timeline(values, rounds=rounds)


def split(values: dict[str, Any]) -> dict[str, Any]:
    bars: dict[str, Any] = {}
    for number, own in values["timeline"]["bars"].items():
        parts: list[dict[str, Any]] = []
        for bar in own.values():
            middle = bar["start"] + 0.4 * (bar["end"] - bar["start"])
            ahead = bar["name"] == "ahead"
            parts += [{**bar, "end": middle}, {**bar, "start": middle}] if ahead else [bar]
        bars[number] = {str(k): part for k, part in enumerate(parts)}
    return timeline(values, bars=bars)


def early(values: dict[str, Any]) -> dict[str, Any]:
    entry = {"outcomes": 0, "p": 1.0, "hit": True, "wasted": 0.0, "why": ""}
    entries = {"0": {**entry, "d": "0", "saved": 0.0}, "1": {**entry, "d": "1", "saved": 1.25}}
    came = {"hits": 2, "misses": 0, "beside": 1, "saved": 1.25, "wasted": 0.0, "guessed": False}
    return timeline(values, round=entries, ahead=came)


def unlike(values: dict[str, Any]) -> dict[str, Any]:
    entry = {"hit": True, "saved": 1.25, "wasted": 0.0, "why": ""}
    missed = {"hit": False, "saved": 0.0, "wasted": 0.5, "why": "wrong"}
    rounds = {
        "0": {**entry, "d": "0", "outcomes": 4, "p": 0.28},
        "1": {**entry, "d": "1", "outcomes": 3, "p": 0.25},
        "2": {**missed, "d": "2", "outcomes": 0, "p": 0.0},
    }
    return timeline(values, round=rounds)


def over(values: dict[str, Any]) -> dict[str, Any]:
    entry = {"d": "0", "outcomes": 4, "p": 0.28, "hit": False, "saved": 0.0, "wasted": 1.5}
    return timeline(values, round={"0": {**entry, "why": "ended"}})


def never(values: dict[str, Any]) -> dict[str, Any]:
    return timeline(values, pipeline="ahead", ahead={}, hits={}, round={})


def with_budget(values: dict[str, Any]) -> dict[str, Any]:
    """Three drafters never reach the length of 8, since their budget is 2 nodes."""
    lengths, proposals = values["lengths"], values["proposals"]
    rounds = {
        key: {**round_entries, "d": 1, "m": 1, "s": 8}
        for key, round_entries in lengths["rounds"].items()
    }
    round_entries = {
        "rounds": rounds,
        "reason": "drafts are at most 1 deep (max_tree_nodes is 2, for 3 drafters)",
        "budget": "max_tree_nodes=auto resolved to 2 nodes. SYNTHETIC",
    }
    rows = {key: row for key, row in proposals["rows"].items() if key != "2"}
    left = {"rows": rows, "nodeless": {"2": "no node for it: max_tree_nodes is 2"}}
    return {**values, "lengths": {**lengths, **round_entries}, "proposals": {**proposals, **left}}


def with_switch(values: dict[str, Any]) -> dict[str, Any]:
    """The highest scores change at round 8, and the drafting SSMs at round 10."""
    routing = values["routing"]
    before, after = ("0", "2"), ("1", "4")
    rounds = {
        number: {
            key: {
                "r": part["r"]
                if part["r"] == "lost"
                else "routed"
                if key in (before if int(number) < 10 else after)
                else "waiting",
                "s": 240.0 + 90 * (key in (before if int(number) < 8 else after)) + 9 * int(key),
            }
            for key, part in cells.items()
        }
        for number, cells in routing["rounds"].items()
    }
    reasons = {"0": "SYNTHETIC: they predicted the prompt's end best"}
    reasons["10"] = "ssm-dialogue for ssm-code: the text changed"
    mine = {"rounds": rounds, "switches": {"10": True}, "reasons": reasons}
    rule = {"rule": "credit", "unless": routing_rule("credit").unless, "explores": ""}
    return {**values, "routing": {**routing, **rule, **mine}}


def with_regret(values: dict[str, Any]) -> dict[str, Any]:
    """Only the first three SSMs predict tokens, and only the first two drafted."""
    routing = values["routing"]
    hits = {
        name: [i % 3 == n for i in range(60)] for n, name in enumerate(routing["ssms"].values())
    }
    routes = [set(list(hits)[:2])] * 60
    regret = regret_value(regret_of(hits, routes, 4), dict(zip(hits, "ABCDEFGH", strict=False)))
    return {**values, "routing": {**routing, "regret": regret}}


def only_line_feeds(values: dict[str, Any]) -> dict[str, Any]:
    for token in values["strip"]["tokens"].values():
        token["t"] = token["tok"] = "\n"
    return values


def with_drawn_token(values: dict[str, Any]) -> dict[str, Any]:
    rows = values["proposals"]["rows"]
    own = {key: {**token, "q": 0.25 if key == "0" else 1.0} for key, token in rows["0"].items()}
    return {**values, "proposals": {**values["proposals"], "rows": {**rows, "0": own}}}
