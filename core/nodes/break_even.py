"""When a node stops paying, predicted from measured times."""

from __future__ import annotations

__all__ = ["break_even_ms"]


def break_even_ms(tokens: float, plain_ms: float, round_ms: float, wire_ms: float) -> float:
    """The time on the wire at which a round with the node takes as long for each token as plain
    decoding, all else unchanged: tokens x plain_ms = round_ms - wire_ms + this. Below 0 the node
    does not pay over any wire.

    `tokens`: committed in a round; `plain_ms`: a pass without a draft; `round_ms`: a round, of
    which `wire_ms` were on the wire. All are means of a run.
    """
    return tokens * plain_ms - (round_ms - wire_ms)
