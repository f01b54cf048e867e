"""Sample values of the pictures."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from core.events import Event, RunCompleted
from tests.synthetic import synthetic_run
from ui.run.frame import Baseline, Frame
from ui.run.values import picture_values
from ui.run.view import detail_of, reduce_all

HOSTILE = (
    "<img src=x onerror=\"window.pwned='img'\">",
    "<script>window.pwned='script'</script>",
    "${window.pwned='template'}",
    "{{window.pwned}}",
    "\\u{zz}",
    "\u202eright to left\u202c",
    "\x00\x01\x1b[31m\x7f",
    " \n\t\r ",
    "\ud7ff\ufffd\u200b\ufeff",
    "a" * 10_000,
)


def values_at(
    events: Sequence[Event],
    round_number: int | None = None,
    stage: str = "commit",
    node: int | None = None,
    baseline: Baseline | None = None,
) -> dict[str, Any]:
    """`round_number` is counted from 0 (None: the last round)."""
    view = reduce_all(events)
    last = view.rounds[-1].number if view.rounds else None
    number = last if round_number is None else round_number
    order = ("draft", "combine", "verify", "commit")
    expected = order[: order.index(stage) + 1]
    names = {"draft": "Drafted", "combine": "Combined", "verify": "Verified"}
    kinds = [names.get(name, "RoundCompleted") for name in expected]
    shown_events = [e for e in events if type(e).__name__ in ("RunStarted", *kinds)]
    detail = None if number is None else detail_of(shown_events, number)
    ended = bool(events) and isinstance(events[-1], RunCompleted)
    frame = Frame(view=view, detail=detail, node=node, ended=ended, at_end=ended)
    return picture_values(frame, baseline)


def frames(rounds: int = 6, seed: int = 3) -> list[dict[str, Any]]:
    """All pictures' values after each round of one run."""
    events = synthetic_run(rounds=rounds, seed=seed)
    ends = [i + 1 for i, e in enumerate(events) if type(e).__name__ == "RoundCompleted"]
    return [values_at(events[:end]) for end in ends]


def large_tree(nodes: int = 96, seed: int = 1) -> dict[str, Any]:
    rng = random.Random(seed)
    words = [" the", " extraordinarily", "\n", " a", "(self", " 狐", ")", " internationalisation"]
    drafters = {str(i): {"name": f"ssm-{i}", "slot": i} for i in range(7)}
    values: dict[str, Any] = {}
    path = [-1]
    for i in range(nodes):
        parent = i - 1 if rng.random() < 0.75 and i else rng.randrange(-1, max(1, i // 2))
        depth = 1 if parent < 0 else values[str(parent)]["depth"] + 1
        if depth > 14:
            parent, depth = -1, 1
        accepted = parent == path[-1] and len(path) < 6
        path += [i] if accepted else []
        by = {str(d): {"score": rng.random(), "q": 1.0, "rank": 0} for d in range(7) if d == i % 7}
        by["0"] = {"score": rng.random(), "q": 1.0, "rank": 0}
        outcome = "accepted" if accepted else "not_reached"
        node = {"t": rng.choice(words), "id": i, "parent": parent, "depth": depth, "lp": 0.5}
        values[str(i)] = {**node, "outcome": outcome, "by": by}
    own = {"t": " wanted", "id": 1, "kind": "bonus", "p": 0.4, "after": path[-1]}
    base = {"run": "large", "round": 11, "stage": "verify", "drafters": drafters, "node": None}
    root = {"t": " so", "id": 0}
    return {**base, "nodes": values, "root": root, "drafts": {}, "dropped": {}, "own": own}


def deep_tree(depth: int) -> dict[str, Any]:
    """The value of a tree whose accepted path has `depth` tokens."""
    drafters = {str(i): {"name": f"ssm-{i}", "slot": i} for i in range(2)}
    by = {"0": {"score": 0.5, "q": 1.0, "rank": 0}, "1": {"score": 0.4, "q": 1.0, "rank": 0}}
    values: dict[str, Any] = {}
    words = [" Spot", " was", " best", ".", " friend"]
    for i in range(depth):
        node = {"t": words[i % 5], "id": i, "parent": i - 1, "depth": i + 1, "lp": 0.987, "by": by}
        values[str(i)] = {**node, "outcome": "accepted"}
        if i % 3 == 0:
            values[str(depth + i)] = {**node, "outcome": "rejected", "t": " not"}
    base = {"run": f"deep-{depth}", "round": 6, "stage": "commit", "rest": True, "node": None}
    base |= {"drafters": drafters, "nodes": values, "root": {"t": " She", "id": 0}}
    own = {"t": " little", "id": 1, "kind": "bonus", "p": 0.4, "after": depth - 1}
    return {**base, "drafts": {}, "dropped": {}, "own": own}


def hostile_values() -> dict[str, Any]:
    drafters = {str(i): {"name": HOSTILE[i], "slot": i} for i in range(3)}
    base = {"run": HOSTILE[2], "round": 0, "drafters": drafters}
    return {
        "figures": {"state": HOSTILE[0], "speed": HOSTILE[1], "speedup": 0.8},
        "strip": {**base, **_hostile_strip()},
        "tree": {**base, **_hostile_tree()},
        "routing": {**base, **_hostile_routing(drafters)},
        "proposals": {**base, **_hostile_proposals()},
        "inspector": {**base, **_hostile_inspector()},
        "lengths": {**base, **_hostile_lengths()},
        "timeline": {**base, **_hostile_timeline()},
    }


def _each(make: Callable[[int, str], dict[str, Any]]) -> dict[str, Any]:
    return {str(i): make(i, text) for i, text in enumerate(HOSTILE)}


def _hostile_strip() -> dict[str, Any]:
    common = {"k": "accepted", "by": "0,2", "p": 0.5}
    tokens = _each(lambda i, t: {"t": t, "tok": t, "id": i, "r": i // 2, **common})
    texts = {"prompt": "".join(HOSTILE), "old": {"0": HOSTILE[0]}, "notes": {"0": HOSTILE[0]}}
    template = {"before": HOSTILE[1], "after": HOSTILE[2]}
    return {**texts, "template": template, "tokens": tokens, "sel": 0, "done": True}


def _hostile_tree() -> dict[str, Any]:
    def node(i: int, text: str) -> dict[str, Any]:
        outcome = ("accepted", "rejected", "not_reached")[i % 3]
        place = {"parent": i // 2 - 1 if i else -1, "depth": 1, "outcome": outcome}
        by = {"0": {"score": 0.5, "q": 1.0, "rank": 0}}
        return {"t": text, "id": i, **place, "lp": 0.25, "by": by}

    return {
        "stage": "verify",
        "root": {"t": HOSTILE[0], "id": 0},
        "nodes": _each(node),
        "own": {"t": HOSTILE[0], "id": 1, "kind": "recovered", "p": 0.5, "after": 0},
        "dropped": {},
        "node": 0,
    }


def _hostile_routing(drafters: dict[str, Any]) -> dict[str, Any]:
    ssms = {key: routing["name"] for key, routing in drafters.items()}
    cells = {key: {"r": "routed", "s": 0.5} for key in ssms}
    texts = {"sentence": HOSTILE[0], "cost": HOSTILE[1], "score": HOSTILE[2]}
    routing = {"rule": "credit", "ssms": ssms, "rounds": {"0": cells}, "switches": {"0": True}}
    return {**routing, **texts, "reasons": {"0": HOSTILE[0]}, "sel": 0}


def _hostile_proposals() -> dict[str, Any]:
    common = {"parent": -1, "score": 0.1, "q": 1.0, "mass": 1.0}
    rows = {"0": _each(lambda i, t: {"t": t, "depth": 1 + i % 3, "rank": i, **common})}
    history = {"0": {"0": 1.0}, "1": {"0": 1.1}}
    votes = {"chains": True, "weights": {"0": 1.0}, "after": {"0": 1.1}, "winner": "0"}
    votes |= {"kept": {"nodes": 3, "all": 10, "longest": 3}, "sentence": " ".join(HOSTILE)}
    return {**votes, "rows": rows, "history": history}


def _hostile_inspector() -> dict[str, Any]:
    bars = _each(lambda i, t: {"t": t, "id": i, "p": 0.1})
    node = {"node": 0, "title": HOSTILE[0], "token": HOSTILE[0], "sentence": " ".join(HOSTILE)}
    return {**node, "bars": {"llm": bars, "0": bars}}


def _hostile_lengths() -> dict[str, Any]:
    rounds = {"run": HOSTILE[0], "sel": 0, "policy": "goodput", "reason": HOSTILE[0], "next": 1}
    rates = {"histogram": {"1": 1}, "per_position": {"0": 1.0}, "lately": 500.0}
    estimates = {"1": {"n": 1, "t": 1.5, "ms": 2.0, "tps": 750.0}}
    return {**rounds, **rates, "rounds": {"0": {"a": 1, "d": 2, "s": 3}}, "estimates": estimates}


def _hostile_timeline() -> dict[str, Any]:
    came = {"saved": 1.0, "wasted": 0.5}
    return {
        "lanes": {"0": HOSTILE[0], "1": HOSTILE[1]},
        "share": {"draft": 1.0},
        "bars": {"0": {"0": {"lane": "0", "name": HOSTILE[1], "start": 0, "end": 1, "a": "hit"}}},
        "pipeline": "ahead",
        "overlap": 0.5,
        "ahead": {"hits": 1, "misses": 0, "guessed": True, **came},
        "hits": {"0": {"hits": 1, "misses": 0, **came}},
        "round": {"0": {"d": "0", "outcomes": 2, "p": 0.5, "hit": True, "why": "", **came}},
        "rounds": {"0": {"ms": 1.0, "p": 2.0}},
        "sel": 0,
    }
