"""Reads an HTML report in Python, like `ui/report/assets/recording.js` in a browser."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate
from typing import Any

from core.events import Event
from ui.report import report_html

Value = dict[str, Any]
ALL_STAGES = 99  # more than a round has


@dataclass(frozen=True)
class Place:
    """The state of an open report. `stop`: the player's index into the report's list of (round,
    stage). `opening`: whether the report opened with `round`."""

    stop: int
    round: int | None = None
    node: int | None = None
    moving: bool = False
    opening: bool = False


def last_timeline(events: Sequence[Event]) -> Value:
    report = Report(report_html(events))
    return report.pictures(Place(report.stops - 1))["timeline"]


class Report:
    """`bases`: for each stop, the values that do not depend on a selection."""

    def __init__(self, html: str) -> None:
        self.content: Value = json.loads(sealed_in(html, "run"))
        first: Value = {}
        self.bases = list(accumulate(self.content["base"], apply_delta, initial=first))[1:]
        self.stops = len(self.bases)

    def current(self, stop: int) -> int:
        return int(self.content["stops"][stop][0])

    def notice(self, stop: int) -> Value:
        return dict(self.bases[stop]["notice"])

    def pictures(self, place: Place) -> dict[str, Value]:
        base = self.bases[place.stop]
        current, stage = self.content["stops"][place.stop]
        number = current if place.round is None else place.round
        if number != current:
            stage = ALL_STAGES
        chosen = self._selection(number, stage)
        inspector = self._inspector(number, stage, place.node)
        rest = base["tree"]["rest"] or not place.moving
        pinned = {"pinned": place.round is not None and not place.opening}
        chosen = chosen | {
            "strip": chosen["strip"] | pinned | {"token": token_of(chosen["tree"], place.node)},
            "figures": chosen["figures"] | pinned,
            "inspector": inspector | {"node": place.node},
            "tree": chosen["tree"] | {"node": place.node, "rest": rest},
        }
        return {name: base[name] | chosen.get(name, {}) for name in base if name != "notice"}

    def _selection(self, number: int, stage: int) -> Value:
        chain = self.content["rounds"].get(str(number))
        if number < 0:
            return dict(self.content["blank"])
        if chain is None:
            return self._absent(number)
        return chain_at(chain[0], chain[1:], stage)

    def _absent(self, number: int) -> Value:
        number_keys = dict.fromkeys(("strip", "figures", "routing", "lengths", "timeline"), "sel")
        blank = {**self.content["blank"], "inspector": self.content["absent"]}
        return {
            name: value | {number_keys.get(name, "round"): number} for name, value in blank.items()
        }

    def _inspector(self, number: int, stage: int, node: int | None) -> Value:
        deltas = self.content["nodes"].get(str(number), {}).get(str(node))
        if deltas is None:
            return dict(self._selection(number, stage)["inspector"])
        return chain_at(self.content["rounds"][str(number)][0]["inspector"], deltas, stage + 1)


def token_of(tree: Value, node: int | None) -> int | None:
    drawn, end = tree["nodes"].get(str(node), {}), tree["committed"]
    is_text = drawn.get("outcome") == "accepted" and end is not None and drawn["depth"] <= end
    return drawn["depth"] - 1 - end if is_text else None


def chain_at(first: Value, deltas: list[Any], count: int) -> Value:
    return list(accumulate(deltas[:count], apply_delta, initial=first))[-1]


def apply_delta(before: Value, delta: list[Any]) -> Value:
    """`delta` lists new values, deltas of inner dicts, and removed keys."""
    changed, inner, removed = [*delta, *({}, {}, ())[len(delta) :]]
    after = {**before, **changed}
    after |= {key: apply_delta(before[key], one) for key, one in inner.items()}
    return {key: value for key, value in after.items() if key not in removed}


class _SealedScript(HTMLParser):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.within, self.text = name, False, ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.within = tag == "script" and ("id", f"specscope-{self.name}") in attrs

    def handle_endtag(self, tag: str) -> None:
        self.within = False

    def handle_data(self, data: str) -> None:
        self.text += data if self.within else ""


def sealed_in(html: str, name: str) -> str:
    """`name`: `scripts`, `plotly` or `run`."""
    parser = _SealedScript(name)
    parser.feed(html)
    return gzip.decompress(base64.b64decode(json.loads(parser.text)["gzip"])).decode("utf-8")


def unpack_value(value: Value) -> Value:
    return {key: _unpack(inner) for key, inner in value.items() if key != "n"}


def _unpack(inner: Any) -> Any:
    if not isinstance(inner, dict) or not all(key.startswith("~") for key in inner):
        return inner
    return {key: item for text in inner.values() for key, item in json.loads(text).items()}
