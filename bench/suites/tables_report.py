"""The tables of the `tables` suite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from bench.results import Results
from bench.suites.acceptance_rows import MOST_NODES
from bench.suites.acceptance_tables import LOOPING, is_looping
from bench.table_plan import AccessTimes
from bench.tables import (
    Group,
    Row,
    Table,
    claim_row,
    claims_table,
    figure,
    group_rows,
    long_rows,
    per_pass,
)
from bench.tables import ratio as ratio_text
from core.config.mechanisms import NGRAM, SUFFIX, TABLE
from core.models.loading.catalog import BUNDLED, SMOLLM2
from lab.figures import Estimate, estimate, median, pooled_length

PLAIN, SEPARATE = "plain", "separate"
BEST, TABLE_TOO = "best", f"best and {TABLE}"
BOTH = f"{SUFFIX} + {TABLE}, 16 nodes"
SSMS = f"SSMs, {MOST_NODES} nodes"
EVERYTHING = f"SSMs + {SUFFIX} + {TABLE}, {MOST_NODES} nodes"
# The least gain from half the accesses; the least gain of a joined row in `_back_off`; the most
# accesses per token; the most microseconds of a draft.
HALF, IN_TURN, MOST_ACCESSES, MOST_US = 1.7, 2.5, 1.05, 10.0
# Tokens per pass to reach, by LLM, contestant and whether the temperature is above 0.
PER_PASS = {
    (BUNDLED, BOTH, False): 2.8,
    (SMOLLM2, BOTH, False): 1.6,
    (BUNDLED, EVERYTHING, False): 5.5,
    (BUNDLED, EVERYTHING, True): 4.5,
}
CLAIMED_KB = 65_536  # the size of the tables in claims about reads: 64 MB
NO_DIFFERENCE = (
    "No difference in look-up time is expected to show: look-ups are 0.1 to 0.3 % of a round, "
    "whatever is done to them. What the drafter's tokens change is another matter."
)
Claims = list[list[str]]
Rows = Sequence[Row]
Columns = dict[str, Callable[[Group], object]]


def times_of(results: Results) -> AccessTimes:
    """Access times by size of the tables, from the measured reads."""
    sizes = group_rows(list(results.where(part="reads")), ("kb",))
    reads = {1024 * one["kb"]: partial(_median_read, one.rows) for one in sizes}
    alone = {size: read("1") for size, read in reads.items()}
    # The first of eight independent reads costs `alone`, each other read costs `beside`.
    beside = {size: max(0.0, (read("8") - alone[size]) / 7) for size, read in reads.items()}
    return AccessTimes(alone, beside)


def _median_read(samples: Iterable[Row], name: str) -> float:
    return median([sample["figures"][name] for sample in samples])


def lookup_tables(results: Results) -> tuple[str, ...]:
    """Tables for which there are samples; the claims last."""
    claims: Claims = []
    parts = {"reads": _reads, "plans": _plans, "drafts": _drafts, "passes": _passes}
    texts = [
        str(text)
        for name, part in {**parts, "rounds": _rounds}.items()
        if (rows := list(results.where(part=name)))
        for text in part(rows, results, claims)
    ]
    return (*texts, claims_table(claims)) if claims else tuple(texts)


def _reads(samples: Rows, results: Results, claims: Claims) -> Iterator[Table]:
    rows = long_rows(samples)
    options: dict[str, Any] = {"block": ("kb", "repeat"), "over": "repeat"}

    def cell(name: str, group: Group) -> str:
        return figure(group.of(contestant=name).median("value"), 0)

    columns: Columns = {
        "kB, all tables": itemgetter("kb"),
        **{f"{name}, ns": partial(cell, name) for name in samples[0]["figures"]},
    }
    note = (
        "A token reads a random row of 64 bytes of each of so many tables, side by side, or each "
        "when the one before has been read (in turn); the next token waits for this one."
    )
    yield Table("Random reads", rows, ("kb",), columns, note, options)
    at_64_mb = Group([row for row in rows if row["kb"] == CLAIMED_KB], (), **options)
    for more, fewer in (("2 in turn", "1"), ("2", "1"), ("8", "4")):
        name = more if "turn" in more else f"{more} side by side"
        gain = at_64_mb.of(contestant=more).ratio("value", contestant=fewer)
        claims.append(claim_row(f"half the accesses at 64 MB: {name} / {fewer}", gain, HALF))


def _plans(samples: Rows, results: Results, claims: Claims) -> Iterator[Table]:
    rows, by = long_rows(samples), ("features", "contestant")
    options: dict[str, Any] = {"block": ("features", "repeat"), "over": "repeat"}

    def faster(group: Group) -> Estimate | None:
        return group.ratio(lambda row: 1 / row["ns"], contestant=SEPARATE)

    def pairs(group: Group) -> list[str]:
        return [" x ".join(names) for names in group["tables"] if len(names) > 1]

    columns: Columns = {
        "features, vocabulary": itemgetter("features"),
        "tables": itemgetter("contestant"),
        "accesses a token": lambda group: len(group["tables"]),
        "rounds": lambda _: 1,
        "joined": lambda group: ", ".join(pairs(group)) or "none",
        "MB": lambda group: f"{group['bytes'] / 2**20:.2f}",
        "ns, predicted": lambda group: f"{group.middle('predicted'):.0f}",
        "ns, measured": lambda group: figure(group.median("ns"), 0),
        "faster than separate": lambda group: ratio_text(faster(group)),
    }
    note = (
        "Planned with the reads above, within so much memory; rows of 32 bytes, joined 64. A round "
        "is accesses that do not wait for one another: the paper's are those that its memory "
        "channels answer at once, a processor has all of a token's under way together. The tables "
        "have the sizes of features of a position and no contents, so nothing that could agree "
        "with the LLM: the one table that drafts is in the tables below."
    )
    yield Table("Tables joined", rows, by, columns, note, options)
    groups = filter(pairs, group_rows(rows, by, **options))
    gains = [gain for group in groups if (gain := faster(group)) is not None]
    slowest = min(gains, key=lambda gain: gain.value, default=None)
    claims.append(claim_row("joined tables / separate, the plan that gains least", slowest, 1.0))


def _drafts(samples: Rows, results: Results, claims: Claims) -> Iterator[Table]:
    rows = long_rows(samples)
    families = group_rows(rows, ("family",), over="repeat")
    yield from _back_off(families, list(results.where(part="reads", kb=CLAIMED_KB)), claims)
    columns: Columns = {
        "LLM": itemgetter("family"),
        "rows in use": itemgetter("rows"),
        "MB": lambda group: f"{group['table_bytes'] / 2**20:.0f}",
        "agreement, %": partial(_percent, "agreed"),
        "in the first level, %": partial(_percent, "covered"),
        "nodes of the timed drafts": itemgetter("draft_nodes"),
        "us": lambda group: figure(group.median("us"), 1),
        "look-ups a node": lambda group: f"{group['looked'] / max(1, group['nodes']):.2f}",
        "look-ups a context": lambda group: f"{group['looked'] / max(1, group['contexts']):.2f}",
    }
    note = (
        "One after another, with caches in use. The table is one of those that serve: it begins "
        "with what came with the LLM, and has learnt three quarters of the LLM's greedy texts. "
        "Look-ups and agreement are those of the other quarter: how often the first token drafted "
        "is the LLM's, and how often one of those drafted for its place is."
    )
    yield Table(f"Drafts of `{TABLE}`", rows, ("family",), columns, note, {"over": "repeat"})
    for group in families:
        what = f"{group['family']}: a draft of {group['draft_nodes']} nodes, us"
        claims.append(_at_most(what, group.middle("us"), MOST_US))


def _percent(name: str, group: Group) -> str:
    return f"{100 * group[name] / max(1, group['drafts']):.1f}"


def _back_off(families: Sequence[Group], reads: Rows, claims: Claims) -> Iterator[Table]:
    """The cost of look-ups: their number in drafts times the time of a read at 64 MB."""
    lines: list[Row] = []
    for group in families:
        if not group["contexts"]:
            continue
        joined, in_turn = (group[name] / group["contexts"] for name in ("looked", "in_turn"))
        what = f"{group['family']}: joined row, accesses a token"
        claims.append(_at_most(what, joined, MOST_ACCESSES))
        # Accesses in turn were timed in groups of three.
        costs = (("joined row", 1, joined, "1", 1), ("in turn", 3, in_turn, "3 in turn", 3))
        lines += [
            {
                "family": group["family"],
                "repeat": sample["repeat"],
                "rows": name,
                "ns": accesses / timed * sample["figures"][read],
                "accesses": accesses,
                "tables": tables,
            }
            for sample in reads
            for name, tables, accesses, read, timed in costs
        ]
    if not lines:
        return
    by, options = ("family", "rows"), {"block": ("family", "repeat"), "over": "repeat"}

    def slower(group: Group) -> Estimate | None:
        return group.ratio("ns", rows="joined row")

    columns: Columns = {
        "LLM": itemgetter("family"),
        "back-off": itemgetter("rows"),
        "tables": itemgetter("tables"),
        "accesses a token": lambda group: f"{group['accesses']:.2f}",
        "rounds": lambda group: f"{group['accesses']:.2f}",
        "ns a token": lambda group: figure(group.median("ns"), 0),
        "against joined": lambda group: ratio_text(slower(group)),
    }
    note = (
        "Contexts of one to three tokens in 64 MB: a joined row holds the candidates of all "
        "lengths; in turn, longest first, each length has a table of its own and all are read, "
        "since the candidates of each are wanted. (In turn until one is found takes as many "
        "accesses as the joined row, and has the candidates of that length alone.) Accesses were "
        "counted in drafts for each quarter of the texts with the rest counted, and cost what a "
        "random read does; each is a round, since it waits for the one before."
    )
    yield Table("Back-off", lines, by, columns, note, options)
    for group in group_rows(lines, by, **options):
        if group["rows"] == "in turn":
            what = f"{group['family']}: back-off in turn / joined row at 64 MB"
            claims.append(claim_row(what, slower(group), IN_TURN))


def _at_most(what: str, value: float, most: float) -> list[str]:
    return _claim(what, f"at most {most:g}", f"{value:.2f}", value - most)


def _claim(what: str, bound: str, value: str, shortfall: float) -> list[str]:
    verdict = "reached" if shortfall <= 0 else f"not reached, by {max(0.01, shortfall):.2f}"
    return [what, bound, value, verdict]


def _passes(samples: Rows, results: Results, claims: Claims) -> Iterator[Table]:
    columns: Columns = {
        "drafters": itemgetter("contestant"),
        "tokens per pass": lambda one: figure(_per_pass(one, looping=False)),
        "looping texts": lambda one: figure(_per_pass(one, looping=True)),
    }
    for group in group_rows(samples, ("family", "temperature")):
        family, temperature, runs = group["family"], group["temperature"], group["runs"]
        count = sum(map(is_looping, runs))
        note = (
            f"All tokens over all passes. {count} of {len(runs)} texts loop: of their sequences of "
            f"four tokens under {100 * LOOPING:.0f} % are distinct. Each line began with "
            "what came with the LLM, and learnt from the texts in their order."
        )
        title = f"Tokens per pass: {family}, T = {temperature:g}"
        yield Table(title, group.rows, ("contestant",), columns, note)
        for name in (BOTH, EVERYTHING):
            least, drafted = (
                PER_PASS.get((family, name, temperature > 0)),
                group.of(contestant=name),
            )
            if least is not None and drafted.rows:
                value = _per_pass(drafted, looping=False)
                what = f"{family}, T = {temperature:g}, no loops: {name}, tokens per pass"
                shortfall = math.inf if value is None else least - value.value
                claims.append(_claim(what, f"at least {least:g}", figure(value), shortfall))


def _per_pass(group: Group, *, looping: bool) -> Estimate | None:
    runs = [run for run in group["runs"] if is_looping(run) == looping]
    return estimate(
        [[(run["tokens"] - run["rounds"], run["rounds"])] for run in runs], pooled_length
    )


def _rounds(samples: Rows, results: Results, claims: Claims) -> Iterator[Table]:
    columns: Columns = {
        "drafters": itemgetter("contestant"),
        "ms of a round": lambda group: figure(group.median("ms")),
        f"against {BEST}": lambda group: ratio_text(group.ratio("ms", contestant=BEST)),
        f"drafting by {TABLE}, % of a round": lambda group: f"{100 * group.middle('looking'):.2f}",
        "tokens per pass": lambda group: figure(group.median(per_pass)),
        "tokens per second": lambda group: figure(group.median(), 0),
    }
    note = f"All SSMs and {NGRAM}, greedy. {NO_DIFFERENCE}"
    yield Table("A whole round", long_rows(samples), ("contestant",), columns, note)
