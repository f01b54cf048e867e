"""The tables of the `tables` suite, made from its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from bench.results import Results
from bench.suites.acceptance_tables import LOOPING, is_fresh
from bench.table_plan import AccessTimes
from bench.tables import (
    NOTHING,
    Group,
    Row,
    Table,
    claim_row,
    claims_table,
    figure,
    group_rows,
    long_rows,
)
from bench.tables import ratio as ratio_text
from core.config.mechanisms import NGRAM, SUFFIX, TABLE
from core.models.loading.catalog import BUNDLED, SMOLLM2
from lab.figures import Estimate, estimate, median, pooled_length

PLAIN, SEPARATE = "plain", "separate"
BEST, TABLE_TOO = "best", f"best and {TABLE}"
BOTH = f"{SUFFIX} + {TABLE}, 16 nodes"
# Figures to reach.
HALF, IN_TURN, MOST_ACCESSES, MOST_US = 1.7, 2.5, 1.05, 10.0
PER_PASS = {BUNDLED: 2.8, SMOLLM2: 1.6}
CLAIMED_KB = 65_536
NO_DIFFERENCE = (
    "No difference in look-up time is expected to show: look-ups are 0.1 to 0.3 % of a round, "
    "whatever is done to them. What the drafter's tokens change is another matter."
)
Claims = list[list[str]]


def times_of(results: Results) -> AccessTimes:
    """Of the reads measured so far, each size's medians."""
    sizes = group_rows(list(results.where(part="reads")), ("kb",))
    of = {1024 * one["kb"]: partial(_median_read, one.rows) for one in sizes}
    alone = {size: read("1") for size, read in of.items()}
    # Of eight reads side by side seven are beside another.
    return AccessTimes(alone, {n: max(0.0, (read("8") - alone[n]) / 7) for n, read in of.items()})


def _median_read(samples: Iterable[Row], name: str) -> float:
    return median([sample["figures"][name] for sample in samples])


def lookup_tables(results: Results) -> tuple[str, ...]:
    """All tables for which there are samples; the claims last."""
    claims: Claims = []
    parts = (_reads, _plans, _in_turn, _drafts, _passes, _rounds)
    texts = [text for part in parts for text in part(results, claims)]
    return (*texts, claims_table(claims)) if claims else tuple(texts)


def _ns(group: Group) -> str:
    return figure(group.median("value"), 0)


def _reads(results: Results, claims: Claims) -> Iterator[str]:
    rows = long_rows(results.where(part="reads"))
    if not rows:
        return
    options: dict[str, Any] = {"block": ("kb", "repeat"), "over": "repeat"}
    names = dict.fromkeys(row["contestant"] for row in rows)

    def cell(name: str, group: Group) -> str:
        return _ns(group.of(contestant=name))

    columns: dict[str, Callable[[Group], object]] = {
        "kB, all tables": lambda group: group["kb"],
        **{f"{name}, ns": partial(cell, name) for name in names},
    }
    note = (
        "A token reads a random row of 64 bytes of each of so many tables, side by side, or each "
        "when the one before has been read (in turn); the next token waits for this one."
    )
    yield str(Table("Random reads", rows, ("kb",), columns, note, options))
    at = Group([row for row in rows if row["kb"] == CLAIMED_KB], (), **options)
    for more, fewer in (("2 in turn", "1"), ("2", "1"), ("8", "4")):
        words = more if "turn" in more else f"{more} side by side"
        what = f"half the accesses at 64 MB: {words} / {fewer}"
        claims.append(
            claim_row(what, at.of(contestant=more).ratio("value", contestant=fewer), HALF)
        )


def _plans(results: Results, claims: Claims) -> Iterator[str]:
    rows = long_rows(results.where(part="plans"))
    if not rows:
        return
    options: dict[str, Any] = {"block": ("features", "repeat"), "over": "repeat"}

    def faster(group: Group) -> Estimate | None:
        return group.ratio(lambda row: 1 / row["ns"], contestant=SEPARATE)

    columns: dict[str, Callable[[Group], object]] = {
        "features, vocabulary": lambda group: group["features"],
        "tables": lambda group: group["contestant"],
        "accesses a token": lambda group: len(group["tables"]),
        "joined": lambda group: _joined(group["tables"]),
        "MB": lambda group: f"{group['bytes'] / 2**20:.2f}",
        "ns, predicted": lambda group: f"{group.middle('predicted'):.0f}",
        "ns, measured": lambda group: figure(group.median("ns"), 0),
        "faster than separate": lambda group: ratio_text(faster(group)),
    }
    note = "Planned with the reads above, within so much memory; rows of 32 bytes, joined 64."
    yield str(Table("Tables joined", rows, ("features", "contestant"), columns, note, options))
    groups = group_rows(rows, ("features", "contestant"), **options)
    changed = [group for group in groups if any(len(names) > 1 for names in group["tables"])]
    gains = [gain for group in changed if (gain := faster(group)) is not None]
    slowest = min(gains, key=lambda gain: gain.value, default=None)
    claims.append(claim_row("joined tables / separate, the plan that gains least", slowest, 1.0))


def _joined(tables: Iterable[Iterable[str]]) -> str:
    pairs = [" x ".join(names) for names in map(list, tables) if len(names) > 1]
    return ", ".join(pairs) or "none"


def _in_turn(results: Results, claims: Claims) -> Iterator[str]:
    """What a context costs: look-ups as counted in drafts, times as measured at 64 MB."""
    drafts = [row for row in long_rows(results.where(part="drafts")) if row["contexts"]]
    reads = list(results.where(part="reads", kb=CLAIMED_KB))
    lines: list[Row] = []
    for group in group_rows(drafts, ("family",)):
        one, three = (group[name] / group["contexts"] for name in ("looked", "in_turn"))
        _claim_at_most(
            claims, f"{group['family']}: joined row, accesses a token", one, MOST_ACCESSES
        )
        for sample in reads:
            ns = {"joined row": one * sample["figures"]["1"]}
            ns["in turn"] = three / 3 * sample["figures"]["3 in turn"]
            accesses = {"joined row": one, "in turn": three}
            own = {"family": group["family"], "repeat": sample["repeat"]}
            lines += [{**own, "rows": n, "ns": ns[n], "accesses": accesses[n]} for n in ns]
    if not lines:
        return
    options: dict[str, Any] = {"block": ("family", "repeat"), "over": "repeat"}

    def slower(group: Group) -> Estimate | None:
        return group.ratio("ns", rows="joined row")

    columns: dict[str, Callable[[Group], object]] = {
        "LLM": lambda group: group["family"],
        "back-off": lambda group: group["rows"],
        "accesses a token": lambda group: f"{group['accesses']:.2f}",
        "ns a token": lambda group: figure(group.median("ns"), 0),
        "against joined": lambda group: ratio_text(slower(group)),
    }
    note = (
        "Contexts of one to three tokens in 64 MB: a joined row holds the candidates of all "
        "lengths; in turn, longest first, each length has a table of its own and all are read, "
        "since the candidates of each are wanted. (In turn until one is found takes as many "
        "accesses as the joined row, and has the candidates of that length alone.) Accesses were "
        "counted in drafts for each quarter of the texts with the rest counted, and cost what a "
        "random read does."
    )
    yield str(Table("Back-off", lines, ("family", "rows"), columns, note, options))
    for group in group_rows(lines, ("family", "rows"), **options):
        if group["rows"] == "in turn":
            what = f"{group['family']}: back-off in turn / joined row at 64 MB"
            claims.append(claim_row(what, slower(group), IN_TURN))


def _claim_at_most(claims: Claims, what: str, value: float, most: float) -> None:
    verdict = "reached" if value <= most else f"not reached, by {max(0.01, value - most):.2f}"
    claims.append([what, f"at most {most:g}", f"{value:.2f}", verdict])


def _claim_at_least(claims: Claims, what: str, value: Estimate | None, least: float) -> None:
    if value is None:
        verdict = NOTHING
    else:
        short = least - value.value
        verdict = "reached" if short <= 0 else f"not reached, by {max(0.01, short):.2f}"
    claims.append([what, f"at least {least:g}", figure(value), verdict])


def _drafts(results: Results, claims: Claims) -> Iterator[str]:
    rows = long_rows(results.where(part="drafts"))
    if not rows:
        return
    columns: dict[str, Callable[[Group], object]] = {
        "LLM": lambda group: group["family"],
        "nodes of the timed drafts": lambda group: group["draft_nodes"],
        "us": lambda group: figure(group.median("us"), 1),
        "look-ups a node": lambda group: f"{group['looked'] / max(1, group['nodes']):.2f}",
        "look-ups a context": lambda group: f"{group['looked'] / max(1, group['contexts']):.2f}",
    }
    note = "One after another, with caches in use. Look-ups are those of held-out texts."
    options: dict[str, Any] = {"over": "repeat"}
    yield str(Table(f"Drafts of `{TABLE}`", rows, ("family",), columns, note, options))
    for group in group_rows(rows, ("family",)):
        what = f"{group['family']}: a draft of {group['draft_nodes']} nodes, us"
        _claim_at_most(claims, what, group.middle("us"), MOST_US)


def _passes(results: Results, claims: Claims) -> Iterator[str]:
    """Tables by LLM and temperature."""
    samples: list[dict[str, Any]] = list(results.where(part="passes"))
    for group in group_rows(samples, ("family", "temperature")):
        columns: dict[str, Callable[[Group], object]] = {
            "drafters": lambda one: one["contestant"],
            "tokens per pass": lambda one: figure(_per_pass(one, looping=False)),
            "looping texts": lambda one: figure(_per_pass(one, looping=True)),
        }
        family, heat = group["family"], group["temperature"]
        runs = group["runs"]
        count = sum(not is_fresh(run) for run in runs)
        note = (
            f"All tokens over all passes. {count} of {len(runs)} texts loop: of their sequences of "
            f"four tokens under {100 * LOOPING:.0f} % are distinct. No SSM drafts; each line began "
            "with what came with the LLM, and learnt from the texts in their order."
        )
        title = f"Tokens per pass: {family}, T = {heat:g}"
        yield str(Table(title, group.rows, ("contestant",), columns, note))
        both = group.of(contestant=BOTH)
        if heat == 0 and both.rows:
            value = _per_pass(both, looping=False)
            what = f"{family}, greedy, no loops: {BOTH}, tokens per pass"
            _claim_at_least(claims, what, value, PER_PASS[family])


def _per_pass(group: Group, *, looping: bool) -> Estimate | None:
    runs = [run for run in group["runs"] if is_fresh(run) != looping]
    return estimate(
        [[(run["tokens"] - run["rounds"], run["rounds"])] for run in runs], pooled_length
    )


def _rounds(results: Results, claims: Claims) -> Iterator[str]:
    rows = long_rows(results.where(part="rounds"))
    if not rows:
        return
    columns: dict[str, Callable[[Group], object]] = {
        "drafters": lambda group: group["contestant"],
        "ms of a round": lambda group: figure(group.median("ms")),
        f"against {BEST}": lambda group: ratio_text(group.ratio("ms", contestant=BEST)),
        f"drafting by {TABLE}, % of a round": lambda group: f"{100 * group.middle('looking'):.2f}",
        "tokens per pass": lambda group: figure(group.median(_tokens_per_round)),
        "tokens per second": lambda group: figure(group.median(), 0),
    }
    note = f"All SSMs and {NGRAM}, greedy. {NO_DIFFERENCE}"
    yield str(Table("A whole round", rows, ("contestant",), columns, note))


def _tokens_per_round(row: Row) -> float:
    return float(row["tokens"] / row["rounds"])
