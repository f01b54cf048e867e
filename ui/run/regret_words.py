"""Regret in words and rows: for the routing picture and for the endpoint. Pure."""

from __future__ import annotations

from typing import Any

from core.routing.regret import Regret, RoutingTrial
from ui.run.explain import letter
from ui.run.listed import join_names

__all__ = ["regret_plain", "regret_value"]

Value = dict[str, Any]


def regret_value(found: Regret, drafters: tuple[str, ...]) -> Value:
    """What the picture shows: the sentence and a row for each choice."""
    names = {name: f"{letter(i)} {name}" for i, name in enumerate(drafters)}
    rows: list[tuple[str, RoutingTrial]] = [("what was routed", found.routed)]
    if found.group is not None:
        rows.append((f"{_many(found.group, names)} all along, the best such choice", found.group))
    rows += [
        (f"{_many(one, names)} all along{', the best one' if one is found.fixed else ''}", one)
        for one in found.alone
    ]
    rows.append(("the best SSM anew in each round (oracle)", found.oracle))
    return {
        "sentence": _words(found, names),
        "rows": {
            str(i): {
                "drafters": label,
                "passes": one.passes,
                "tokens": round(one.tokens_per_pass, 4),
                "regret": None if one is found.routed else _regret(found, one),
            }
            for i, (label, one) in enumerate(rows)
        },
    }


def regret_plain(found: Regret) -> Value:
    """What the endpoint returns. A regret is a share of the other choice's passes."""
    names = {name: name for one in found.alone for name in one.drafters}
    group = found.group
    return {
        "tokens": found.routed.tokens,
        "depth": found.depth,
        "routed": _choice(found.routed),
        "alone": {one.drafters[0]: _choice(one) for one in found.alone},
        "best_fixed": {"drafters": list(found.fixed.drafters), **_choice(found.fixed)},
        "best_group": {"drafters": list(group.drafters), **_choice(group)} if group else None,
        "oracle": _choice(found.oracle),
        "regret_to_fixed": found.against(found.fixed),
        "regret_to_group": found.against(group) if group else None,
        "regret_to_oracle": found.against(found.oracle),
        "words": _words(found, names),
    }


def _choice(one: RoutingTrial) -> Value:
    return {"passes": one.passes, "tokens_per_pass": one.tokens_per_pass}


def _many(one: RoutingTrial, names: dict[str, str]) -> str:
    return join_names([names.get(name, name) for name in one.drafters])


def _regret(found: Regret, other: RoutingTrial) -> str:
    """Passes more or fewer than the other choice's, and their share of those."""
    more = found.routed.passes - other.passes
    sign = "+" if more > 0 else "−" if more < 0 else "±"
    return f"{sign}{abs(more)} ({sign}{100 * abs(found.against(other)):.1f} %)"


def _words(found: Regret, names: dict[str, str]) -> str:
    routed = found.routed
    said = [
        f"Counted afterwards: each SSM read the recorded text once; drafts of up to {found.depth} "
        f"tokens. With what was routed the LLM needs {routed.passes} passes for {routed.tokens} "
        "tokens.",
        _regret_sentence(
            found, found.fixed, f"{_many(found.fixed, names)} all along, the best single SSM"
        ),
    ]
    if found.group is not None:
        size = len(found.group.drafters)
        said.append(
            _regret_sentence(
                found, found.group, f"{_many(found.group, names)} all along, the best {size}"
            )
        )
    oracle = "the best SSM anew in each round, which only an oracle knows"
    return " ".join(
        [*said, _regret_sentence(found, found.oracle, oracle), "Below 0 routing did better."]
    )


def _regret_sentence(found: Regret, other: RoutingTrial, what: str) -> str:
    return f"With {what}, {other.passes}: regret {_regret(found, other)}."
