"""Why a length was chosen, in a sentence with its numbers."""

from __future__ import annotations

from core.length.goodput.hysteresis import Step

__all__ = ["moved", "ordinal", "plain", "rests", "stops", "tried_again"]

SHOWN = 0.005  # tokens: less is shown as none
NEARLY = 0.95
WORDS = (
    "zeroth",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
)


def ordinal(number: int) -> str:
    """1 is first; from 17 on in figures."""
    if number < len(WORDS):
        return WORDS[number]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 // 10 != 1 else 0, "th")
    return f"{number}{ending}"


def moved(before: int, after: int, step: Step, price: float) -> str:
    """`step` is the last one gained, or the first one given up."""
    number = after if after > before else after + 1
    return f"{before} -> {after}: {_weighed(number, 'costs', 'brings', step, price)}"


def rests(
    length: int, step: Step | None, price: float, *, limit: str = "", lately: bool = True
) -> str:
    """`step` is the one that is not taken, None where no longer draft is possible: there `limit`
    says why. `lately`: older drafts than those looked at are forgotten by now."""
    if step is None:
        return f"{length} stays: no longer draft is possible{f' ({limit})' if limit else ''}"
    if step.tokens < SHOWN:
        when = "of late" if lately else "so far"
        return (
            f"{length} stays: {when} no draft was sure enough of its first {length} tokens for "
            f"{_article(length + 1)} {ordinal(length + 1)} to be worth a try"
        )
    near = ", not clearly more" if step.pays(price, NEARLY) else ""
    return f"{length} stays: {_weighed(length + 1, 'would cost', 'bring', step, price)}{near}"


def tried_again(name: str, waited: int, rounds: int) -> str:
    """A drafter that waited so many rounds, of which this run has had `rounds`."""
    others = ", rounds of other runs among them" if waited > rounds else ""
    verb = "are" if _several(name) else "is"
    return f"{name} {verb} tried again: {waited} rounds passed without it{others}"


def stops(name: str, tokens: float, ms: float, verify_ms: float, *, hopeless: bool) -> str:
    """What a drafter, or several that draft together ("a + b"), brings for its time and for that of
    verifying its nodes; without `hopeless` beyond what the others bring."""
    several = _several(name)
    if hopeless:
        what = "their drafts bring" if several else "its drafts bring"
    else:
        what = f"beyond the others {'they bring' if several else 'it brings'}"
    verb = "stop" if several else "stops"
    took = f"{ms:.1f} ms and {verify_ms:.1f} ms of verifying"
    return f"{name} {verb} drafting: {what} {tokens:.2f} tokens for {took}"


def _several(name: str) -> bool:
    """Drafters that draft together are named together (core.length.goodput.drafter_group)."""
    return " + " in name


def plain(before: int, price: float) -> str:
    """No drafter pays, at the price of plain decoding."""
    move = f"{before} -> 0" if before else "0 stays"
    return f"{move}: no draft beats plain decoding at {price * 1000:.0f} tokens a second"


def _weighed(number: int, costs: str, brings: str, step: Step, price: float) -> str:
    worth = step.tokens / price if price > 0 else 0.0
    return (
        f"where the drafter is surest, {_article(number)} {ordinal(number)} step {costs} "
        f"{step.ms:.1f} ms and {brings} {step.tokens:.2f} tokens, worth {worth:.1f} ms at "
        f"{price * 1000:.0f} tokens a second"
    )


def _article(number: int) -> str:
    return "an" if ordinal(number).startswith(("e", "8", "11", "18")) else "a"
