"""`load`: many requests at once, in closed loops of clients and with Poisson arrivals.

Each contestant has its own engine: an engine keeps the measurements of its schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.load import ServedRequest, arrivals, closed_loop, open_loop, percentile
from bench.results import Results
from bench.settings import Settings
from bench.tables import (
    NOTHING,
    Group,
    Row,
    Table,
    claim_row,
    claims_table,
    figure,
    long_rows,
    ratio,
)
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from lab.order import Block

PLAIN = "plain"
# Preset and schedule.
CONTESTANTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        PLAIN: ("autoregressive", "each"),
        "best, each": ("best", "each"),
        "best, shared": ("best", "shared"),
        "specinfer, each": ("specinfer", "each"),
        "specinfer, shared": ("specinfer", "shared"),
        "minions, each": ("minions", "each"),
        # Each pass has half of the requests: the preset is pipelined across requests.
        "minions, shared": ("minions", "shared"),
        "cosine, shared": ("cosine", "shared"),
        "cosine, cosine": ("cosine", "cosine"),
        # CoSine without its scheduler.
        "cosine, each": ("cosine", "each"),
    }
)
CLIENTS = (1, 2, 4, 8, 16, 32)
RATES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
MAX_CONCURRENT = 8
PERCENTILES = (0.5, 0.95, 0.99)
# Candidates for `_prompt_step`.
PRIMES = (7, 11, 13, 17)
# The first prompt's index grows by this from one repeat to the next.
REPEAT_OFFSET = 11
# Title, and number of decimals if all percentiles are in one cell.
MEASURES = {"ttft_ms": ("first token", 0), "tpot_ms": ("per token", 1)}
RATIO_NOTE = "after the comma: divided by plain decoding's in the same block"
# CoSine's throughput and latency relative to the best of its baselines (arXiv 2503.10325).
PUBLISHED_THROUGHPUT, PUBLISHED_LATENCY = 1.325, 1 - 0.232


@dataclass(frozen=True)
class Load(Suite):
    """`clients`: the closed loops' numbers of clients; `rates`: the open loops' rates of arrival,
    as multiples of plain decoding's capacity."""

    one_dtype: ClassVar[bool] = True

    name: str = "load"
    about: str = "requests that arrive while others run: tokens per second, latency percentiles"
    defaults: Settings = Settings(prompts=60, tokens=64, repeats=3, dtypes=("float32",))
    clients: tuple[int, ...] = CLIENTS
    rates: tuple[float, ...] = RATES
    contestants: tuple[str, ...] = tuple(CONTESTANTS)

    def measure(self, context: Context) -> None:
        with ExitStack() as cleanup:
            engines: dict[str, Engine] = {}
            models = context.load(context.settings.dtypes[0])
            for name in self.contestants:
                engine = Engine(models, schedule=CONTESTANTS[name][1])
                engines[name] = cleanup.enter_context(closing(engine))
            plain_tokens: dict[str, list[int]] = {}
            items = [str(clients) for clients in self.clients]
            closed = Blocks(context, {"loop": "closed"}, items, "clients")
            closed.measure(
                {
                    n: partial(_closed_loop, context, engine, n, plain_tokens)
                    for n, engine in engines.items()
                },
                warm=Block(str(min(4, max(self.clients))), 0),
            )
            rates = Blocks(context, {"loop": "open"}, [str(rate) for rate in self.rates], "rate")
            if rates.missing_blocks:
                capacity = _capacity(context, engines[PLAIN])
                rates.measure(
                    {
                        n: partial(_open_loop, context, engine, n, plain_tokens, capacity)
                        for n, engine in engines.items()
                    },
                    more=lambda: {"capacity": round(capacity, 3)},
                    # An engine compiles and measures its passes in its first request.
                    warm=Block(str(max(self.rates)), 0),
                )

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))


def load_requests(context: Context, name: str, count: int, first: int) -> list[Request]:
    """`first`: the first prompt's index."""
    speculation = SpeculationConfig.preset(CONTESTANTS[name][0])
    sampling = SamplingParams(context.settings.tokens, seed=1, ignore_eos=True)
    prompts = context.prompts
    step = _prompt_step(len(prompts))
    indices = ((first + step * i) % len(prompts) for i in range(count))
    return [Request(prompts[index].text, sampling, speculation) for index in indices]


def _prompt_step(num_prompts: int) -> int:
    """The distance from one prompt to the next. More than 1, since prompts are in order of their
    domains. A prime that does not divide the number of prompts reaches every prompt."""
    return next(step for step in PRIMES if num_prompts % step)


def _closed_loop(
    context: Context, engine: Engine, name: str, plain_tokens: dict[str, list[int]], block: Block
) -> dict[str, Any]:
    clients = int(block.item)
    count = max(4 * clients, clients + 12)
    requests = load_requests(context, name, count, REPEAT_OFFSET * block.repeat)
    rate, served = closed_loop(engine, requests, clients)
    return {"speed": rate, **_figures(name, requests, served, plain_tokens)}


def _open_loop(
    context: Context,
    engine: Engine,
    name: str,
    plain_tokens: dict[str, list[int]],
    capacity: float,
    block: Block,
) -> dict[str, Any]:
    count = max(4 * MAX_CONCURRENT, len(context.prompts) // 2)
    requests = load_requests(context, name, count, REPEAT_OFFSET * block.repeat)
    arrival_times = arrivals(count, float(block.item) * capacity, seed=block.repeat)
    rate, served = open_loop(engine, requests, arrival_times, MAX_CONCURRENT)
    return {"speed": rate, **_figures(name, requests, served, plain_tokens)}


def _capacity(context: Context, engine: Engine) -> float:
    """Requests per second with plain decoding, MAX_CONCURRENT at once."""
    requests = load_requests(context, PLAIN, 6 * MAX_CONCURRENT, 0)
    rate, _ = closed_loop(engine, requests, MAX_CONCURRENT)
    return rate / context.settings.tokens


def _figures(
    name: str,
    requests: Sequence[Request],
    served: Sequence[ServedRequest],
    plain_tokens: dict[str, list[int]],
) -> dict[str, Any]:
    """`plain_tokens`: filled by PLAIN, which runs first."""
    pairs = list(zip(requests, served, strict=True))
    if name == PLAIN:
        plain_tokens.update({request.prompt: one.token_ids for request, one in pairs})
    return {
        **{
            _percentile_name(measure, share): round(
                percentile([getattr(one, measure) for one in served], share), 3
            )
            for measure in MEASURES
            for share in PERCENTILES
        },
        "differ": sum(one.token_ids != plain_tokens[request.prompt] for request, one in pairs),
    }


def failures(results: Results) -> tuple[str, ...]:
    """Texts that differ from plain decoding's."""
    return tuple(
        f"{row['contestant']}, {row['loop']} loop: texts unlike plain's: {row['differ']}"
        for row in long_rows(results.samples)
        if row["differ"]
    )


def tables(results: Results) -> tuple[str, ...]:
    rows = long_rows(results.samples)
    texts = []
    for loop, item, head in (("closed", "clients", "clients"), ("open", "rate", "of capacity")):
        of_loop = [_with_item(row, item) for row in rows if row["loop"] == loop]
        if of_loop:
            percentiles = [_percentiles(of_loop, loop, head, measure) for measure in MEASURES]
            texts.append(_throughput(of_loop, loop, head))
            texts += [*percentiles, _latency(of_loop, loop, head)]
    return (*texts, _claims(rows)) if rows else ()


def _with_item(row: Row, item: str) -> Row:
    """Replaces `load` (the load average) by the number of clients or the rate."""
    return {**row, "load": float(row[item])}


def _throughput(rows: Sequence[Row], loop: str, head: str) -> str:
    cell = partial(_with_ratio, name="speed", digits=0)
    note = f"Medians over repeats; {RATIO_NOTE}."
    return _by_load(rows, f"Total tokens per second, {loop} loop", head, note, cell)


def _with_ratio(group: Group, name: str, digits: int) -> str:
    other = group.ratio(name, contestant=PLAIN) if group["contestant"] != PLAIN else None
    return f"{figure(group.median(name), digits)}{f', {ratio(other)}' if other else ''}"


def _percentiles(rows: Sequence[Row], loop: str, head: str, measure: str) -> str:
    title, digits = MEASURES[measure]

    def cell(group: Group) -> str:
        return " / ".join(
            f"{group.middle(_percentile_name(measure, share)):.{digits}f}" for share in PERCENTILES
        )

    names = ", ".join(f"{100 * share:.0f}th" for share in PERCENTILES)
    note = f"Percentiles ({names}) of the requests of a block, medians over repeats."
    return _by_load(rows, f"Milliseconds: {title}, {loop} loop", head, note, cell)


def _by_load(
    rows: Sequence[Row], title: str, head: str, note: str, cell: Callable[[Group], str]
) -> str:
    def cell_at(load: float, group: Group) -> str:
        blocks = group.of(load=load)
        return cell(blocks) if blocks.rows else NOTHING

    columns: dict[str, Callable[[Group], object]] = {"contestant": lambda one: one["contestant"]}
    loads = dict.fromkeys(row["load"] for row in rows)
    columns |= {f"{load:g} {head}": partial(cell_at, load) for load in loads}
    return str(Table(title, rows, ("contestant",), columns, note, _BLOCKS))


def _latency(rows: Sequence[Row], loop: str, head: str) -> str:
    columns: dict[str, Any] = {
        f"contestant at {head}": lambda group: f"{group['contestant']} at {group['load']:g}",
    }
    for measure, (title, _) in MEASURES.items():
        for share in PERCENTILES:
            name = _percentile_name(measure, share)
            columns[f"{title}, p{share * 100:.0f}, ms"] = partial(_with_ratio, name=name, digits=1)
    note = f"Percentiles of the requests of a block, medians over repeats; {RATIO_NOTE}."
    rows = sorted(rows, key=lambda row: list(CONTESTANTS).index(row["contestant"]))
    title = f"Latency, {loop} loop"
    return str(Table(title, rows, ("contestant", "load"), columns, note, _BLOCKS))


def _percentile_name(measure: str, share: float) -> str:
    return f"{measure}_p{share * 100:.0f}"


def _claims(rows: Sequence[Row]) -> str:
    closed = [_with_item(row, "clients") for row in rows if row["loop"] == "closed"]
    opened = [_with_item(row, "rate") for row in rows if row["loop"] == "open"]
    below = [row for row in opened if row["load"] < 1]
    shared, cosine, at_8 = "best, shared", "cosine, cosine", (MAX_CONCURRENT,)
    lines = [
        claim_row(
            "`best, shared` against `best, each`, 8 clients",
            _worst(closed, shared, "speed", "best, each", at_8),
            1.3,
        ),
        *(
            claim_row(
                f"`{name}` against plain, the worst load",
                _worst(closed, name, "speed", PLAIN),
                0.97,
            )
            for name in CONTESTANTS
            if name.endswith(", shared")
        ),
        claim_row(
            "plain's p99 per token over `best, shared`'s, the worst rate below capacity",
            _worst(below, PLAIN, "tpot_ms_p99", shared),
            1.0,
        ),
    ]
    for base in ("specinfer, each", "minions, each"):
        name = f"`{base.split(',')[0]}`"
        lines += [
            claim_row(
                f"`cosine` against {name}, 8 clients, tokens per second",
                _worst(closed, cosine, "speed", base, at_8),
                PUBLISHED_THROUGHPUT,
            ),
            claim_row(
                f"{name}'s time per token over `cosine`'s, 8 clients, p50",
                _worst(closed, base, "tpot_ms_p50", cosine, at_8),
                1 / PUBLISHED_LATENCY,
            ),
        ]
    return claims_table(lines)


def _worst(
    rows: Sequence[Row], contestant: str, name: str, base: str, loads: Iterable[float] = ()
) -> Any:
    """The smallest ratio of a contestant's figure `name` to `base`'s, over `loads` (empty: all).
    None if no block has both contestants."""
    all_rows = Group(rows, rows, **_BLOCKS)
    ratios = [
        all_rows.of(contestant=contestant, load=load).ratio(name, contestant=base)
        for load in loads or dict.fromkeys(row["load"] for row in rows)
    ]
    return min((one for one in ratios if one), key=lambda one: one.value, default=None)


# How `Group` treats samples: ratios are taken within a block, intervals are over repeats.
_BLOCKS: dict[str, Any] = {"block": ("load", "repeat"), "over": "repeat"}
