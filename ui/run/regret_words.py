"""Regret as a picture's value and as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.plurals import number_of
from core.routing.regret import Regret, RoutingTrial
from ui.run.listed import join_names

__all__ = ["regret_plain", "regret_value"]

Value = dict[str, Any]


def regret_value(regret: Regret, letters: Mapping[str, str]) -> Value:
    """The value of the page's picture: the sentence, and a row for each choice of SSMs."""
    names = {name: f"{sign} {name}" for name, sign in letters.items()}
    rows: list[tuple[str, RoutingTrial]] = [("what was routed", regret.routed)]
    if regret.group is not None:
        rows.append((f"{_ssms(regret.group, names)} all along, the best such choice", regret.group))
    rows += [
        (f"{_ssms(one, names)} all along{', the best one' if one is regret.fixed else ''}", one)
        for one in regret.alone
    ]
    rows.append(("the best SSM anew in each round (oracle)", regret.oracle))
    return {
        "sentence": _words(regret, names),
        "rows": {
            str(i): {
                "drafters": label,
                "passes": one.passes,
                "tokens": round(one.tokens_per_pass, 4),
                "regret": None if one is regret.routed else _regret(regret, one),
            }
            for i, (label, one) in enumerate(rows)
        },
    }


def regret_plain(regret: Regret) -> Value:
    """Regret as plain JSON. `regret_to_X`: by what fraction routing needs more passes than X."""
    names = {name: name for one in regret.alone for name in one.drafters}
    group = regret.group
    return {
        "tokens": regret.routed.tokens,
        "depth": regret.depth,
        "routed": _choice(regret.routed),
        "alone": {one.drafters[0]: _choice(one) for one in regret.alone},
        "best_fixed": {"drafters": list(regret.fixed.drafters), **_choice(regret.fixed)},
        "best_group": {"drafters": list(group.drafters), **_choice(group)} if group else None,
        "oracle": _choice(regret.oracle),
        "regret_to_fixed": regret.against(regret.fixed),
        "regret_to_group": regret.against(group) if group else None,
        "regret_to_oracle": regret.against(regret.oracle),
        "words": _words(regret, names),
    }


def _choice(one: RoutingTrial) -> Value:
    return {"passes": one.passes, "tokens_per_pass": one.tokens_per_pass}


def _ssms(one: RoutingTrial, names: dict[str, str]) -> str:
    return join_names([names.get(name, name) for name in one.drafters])


def _regret(regret: Regret, other: RoutingTrial) -> str:
    """How many more passes routing needs than `other`, also in percent."""
    extra = regret.routed.passes - other.passes
    sign = "+" if extra > 0 else "−" if extra < 0 else "±"
    return f"{sign}{abs(extra)} ({sign}{100 * abs(regret.against(other)):.1f} %)"


def _words(regret: Regret, names: dict[str, str]) -> str:
    routed = regret.routed
    sentences = [
        "Counted afterwards: each SSM read the recorded text once; drafts of up to "
        f"{number_of(regret.depth, 'token')}. With what was routed the LLM needs "
        f"{number_of(routed.passes, 'pass')} for {number_of(routed.tokens, 'token')}.",
        _regret_sentence(
            regret, regret.fixed, f"{_ssms(regret.fixed, names)} all along, the best single SSM"
        ),
    ]
    if regret.group is not None:
        size = len(regret.group.drafters)
        sentences.append(
            _regret_sentence(
                regret, regret.group, f"{_ssms(regret.group, names)} all along, the best {size}"
            )
        )
    oracle = "the best SSM anew in each round, which only an oracle knows"
    return " ".join(
        [*sentences, _regret_sentence(regret, regret.oracle, oracle), "Below 0 routing did better."]
    )


def _regret_sentence(regret: Regret, other: RoutingTrial, what: str) -> str:
    return f"With {what}, {other.passes}: regret {_regret(regret, other)}."
