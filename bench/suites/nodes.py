"""`nodes`: compares SSMs in other processes (nodes) with SSMs in this process, over loopback and
over relays that add latency."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from bench.capacity import client_ratio, upper_bound
from bench.contestants import request, run_events
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.tables import Group, Row, Table, figure, long_rows, ratio
from core.config import SpeculationConfig
from core.config.nodes import NodeSettings
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events import RoundCompleted
from core.events.outcome import Outcome
from core.metrics import union_ms
from core.models.loading.load import LoadedModels
from core.remote_ssms.connecting import connect_nodes
from lab.order import Block

PLAIN, LOCAL, LOOPBACK = "plain", "local", "loopback"
AHEAD = ", ahead"  # ends the name of a contestant that drafts ahead
PRESET = "specinfer"
RELAYS_MS = (1, 5, 20)  # added to a round trip
TREE_NODES = 16  # the node budget of a tree
PARTS = 2  # processes among which the SSMs are divided
# As fractions. MOST_ADDED: the time that loopback may add to a local round. MOST_ERROR: the largest
# allowed error of a prediction. LEAST_OF_BOUND: the least gain in clients, relative to
# `upper_bound`.
MOST_ADDED, MOST_ERROR, LEAST_OF_BOUND = 0.10, 0.20, 0.9
CAPACITY_NODES, CLIENTS = (1, 2, 4), (4, 16)  # simulated numbers
SERVED_CLIENTS = (4, 8)
DRAFTING = ("draft", "catch_up")  # spans of drafters, without `prefill`
# Engine and pipeline mode.
SERVED_WAYS = MappingProxyType(
    {
        LOCAL: (LOCAL, "off"),
        "local, across": (LOCAL, "across"),
        LOOPBACK: (LOOPBACK, "off"),
        "loopback, across": (LOOPBACK, "across"),
    }
)


@dataclass(frozen=True)
class NodesSuite(Suite):
    """`relays`: milliseconds that relays add to a round trip; `clients`: numbers of clients."""

    name: str = "nodes"
    about: str = "SSMs on nodes: loopback and longer wires against local SSMs; simulated clients"
    defaults: Settings = Settings(prompts=5, tokens=64, repeats=3, dtypes=("float32",))
    relays: tuple[int, ...] = RELAYS_MS
    clients: tuple[int, ...] = SERVED_CLIENTS

    def measure(self, context: Context) -> None:
        items = [prompt.id for prompt in context.prompts]
        for dtype in context.settings.dtypes:
            blocks = Blocks(context, {"dtype": dtype}, items)
            clients = Blocks(context, {"dtype": dtype}, [*map(str, self.clients)], "clients")
            if not blocks.missing_blocks and not clients.missing_blocks:
                continue
            models = context.load(dtype)
            with ExitStack() as cleanup:
                parts = [list(models.ssms)[n::PARTS] for n in range(PARTS)]
                context.say(f"starting {PARTS} nodes")
                nodes = [cleanup.enter_context(node_process(part, dtype)) for part in parts]
                addresses_by_name = {LOOPBACK: nodes}
                for ms in self.relays:
                    relays = [cleanup.enter_context(relay_process(node, ms)) for node in nodes]
                    addresses_by_name[relay_name(ms)] = relays
                engines = {LOCAL: cleanup.enter_context(closing(Engine(models)))}
                for name, addresses in addresses_by_name.items():
                    engines[name] = cleanup.enter_context(closing(engine_over(models, addresses)))
                plain = partial(_text, context, engines[LOCAL], preset="autoregressive")
                runs = {PLAIN: plain}
                for name, engine in engines.items():
                    runs[name] = partial(_text, context, engine)
                    runs[name + AHEAD] = partial(_text, context, engine, pipeline="ahead")
                blocks.measure(runs, warm=Block(items[0], 0))
                served = {
                    name: partial(_serve_texts, context, engines[where], pipeline=pipeline)
                    for name, (where, pipeline) in SERVED_WAYS.items()
                }
                clients.measure(served, warm=Block(str(self.clients[0]), 0))

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))


def relay_name(ms: int) -> str:
    return f"relay of {ms} ms"


def engine_over(models: LoadedModels, addresses: Sequence[str]) -> Engine:
    """An engine whose SSMs are all on the nodes at these addresses."""
    llm_alone = replace(models, ssms={})
    return Engine(llm_alone, nodes=connect_nodes(NodeSettings(tuple(addresses)), llm_alone))


@contextmanager
def node_process(ssms: Sequence[str], dtype: str) -> Iterator[str]:
    """Runs a node with bundled SSMs; yields its address."""
    command = ["core.nodes", "--listen", "127.0.0.1:0", "--dtype", dtype, "--threads", "1"]
    with _process([*command, "--ssm", *ssms], "node on ") as address:
        yield address


@contextmanager
def relay_process(address: str, ms: int) -> Iterator[str]:
    """Runs a relay to `address`; yields the relay's address."""
    with _process(["bench.relay", address, str(ms)], "relay on ") as relay_address:
        yield relay_address


@contextmanager
def _process(command: Sequence[str], prefix: str) -> Iterator[str]:
    """Runs a module; yields the address that follows `prefix` in the first line of output."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith(prefix):
            raise ConfigError(f"{' '.join(command)} ended without serving")
        yield line.removeprefix(prefix).split()[0]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _text(
    context: Context, engine: Engine, block: Block, preset: str = PRESET, pipeline: str = "off"
) -> dict[str, Any]:
    case = context.case(block.item, block.repeat, 0.0, ignore_eos=True)
    outcome, rounds = Outcome(), list[RoundCompleted]()
    # A fixed node budget: `auto` depends on measured times, which differ between engines.
    speculation = replace(
        SpeculationConfig.preset(preset), max_tree_nodes=TREE_NODES, pipeline=pipeline
    )
    for event in run_events(engine, [request(case, speculation)]):
        outcome.observe(event)
        if isinstance(event, RoundCompleted):
            rounds.append(event)
    # The SSMs read the prompt in the first round.
    usual = rounds[1:] or rounds
    trips = [trip for one in usual for trip in one.nodes]
    starts = [min(span.start_ms for span in one.spans if span.name != "prefill") for one in usual]
    summary = outcome.summary
    return {
        "speed": summary["tokens_per_second"],
        "per_round": summary["num_new_tokens"] / summary["num_rounds"],
        "round_ms": (usual[-1].at_ms - starts[0]) / len(usual),
        "verify_ms": [_ms(one, "forward") for one in usual],
        "draft_ms": [_ms(one, *DRAFTING) for one in usual],
        "trip_ms": [trip.round_trip_ms for trip in trips if trip.state == "in_time"],
        "busy_ms": [trip.busy_ms for trip in trips if trip.state == "in_time"],
        "ahead": sum(trip.state == "ahead" for trip in trips),
        "missed": sum(trip.state in ("late", "absent") for trip in trips),
        "trips": len(trips),
        "ids": outcome.token_ids,
    }


def _serve_texts(
    context: Context, engine: Engine, block: Block, *, pipeline: str
) -> dict[str, Any]:
    speculation = replace(
        SpeculationConfig.preset(PRESET), max_tree_nodes=TREE_NODES, pipeline=pipeline
    )
    prompts, count = context.prompts, int(block.item)
    items = [prompts[i % len(prompts)].id for i in range(count)]
    cases = [
        context.case(item, block.repeat * count + i, 0.0, ignore_eos=True)
        for i, item in enumerate(items)
    ]
    start = time.perf_counter()
    # When each run began, in ms since `start`: events count from their run's start.
    starts: dict[str, float] = {}
    rounds: list[RoundCompleted] = []
    for event in run_events(engine, [request(case, speculation) for case in cases]):
        starts.setdefault(event.run_id, (time.perf_counter() - start) * 1000 - event.at_ms)
        if isinstance(event, RoundCompleted):
            rounds.append(event)
    seconds = time.perf_counter() - start

    def busy_ms(*names: str) -> float:
        # A batched pass has a span in the round of each of its requests: it counts once.
        return union_ms(
            (starts[one.run_id] + span.start_ms, starts[one.run_id] + span.end_ms)
            for one in rounds
            for span in one.spans
            if span.name in names
        )

    return {
        "speed": sum(len(one.token_ids) for one in rounds) / seconds,
        "verify_ms": busy_ms("forward"),
        "draft_ms": busy_ms(*DRAFTING),
    }


def _ms(one: RoundCompleted, *names: str) -> float:
    return sum(span.ms for span in one.spans if span.name in names)


# -- tables --


def tables(results: Results) -> tuple[str, ...]:
    all_tables = []
    for dtype in dict.fromkeys(sample["dtype"] for sample in results.samples):
        samples = [sample for sample in results.samples if sample["dtype"] == dtype]
        texts = [sample for sample in samples if "prompt" in sample]
        all_tables += [_connection_table(dtype, texts), _capacity_table(dtype, texts)]
        if served := [sample for sample in samples if "clients" in sample]:
            all_tables.append(_served_table(dtype, served))
    return tuple(all_tables)


def _connection_table(dtype: str, samples: Sequence[Row]) -> str:
    rows = [
        {**row, "predicted": predicted_rate(row["contestant"], sample["figures"][LOOPBACK])}
        for sample in samples
        for row in long_rows([sample])
    ]
    note = (
        f"Preset {PRESET}, greedy; {PARTS} nodes with the family's SSMs. Criteria: a round over "
        f"loopback takes at most {1 + MOST_ADDED:.2f} times as long as a local one; over a relay "
        f"the tokens per second are within {MOST_ERROR:.0%} of the prediction, which divides a "
        "round's tokens by the time of a round over loopback plus the relay's delay. "
        f"`{AHEAD[2:]}`: {PRESET} with pipeline=ahead instead of off. CoSine's paper has 23.2 % "
        "less latency and 32.5 % more throughput than other systems at equal cost, with drafters "
        "on 16 GPUs and an LLM on 4."
    )
    columns: dict[str, Callable[[Group], object]] = {
        "SSMs": lambda group: group["contestant"],
        "tokens a second": lambda group: figure(group.median("speed"), 1),
        "by plain": lambda group: ratio(group.ratio("speed", contestant=PLAIN)),
        "ms a round": lambda group: figure(group.median("round_ms"), 2),
        "by local": lambda group: ratio(group.ratio("round_ms", contestant=LOCAL)),
        "predicted tokens a second": _prediction,
        "measured by predicted": _by_predicted,
        "drafted ahead": lambda group: f"{group.sum('ahead'):.0f} of {group.sum('trips'):.0f}",
        "late or absent": lambda group: f"{group.sum('missed'):.0f} of {group.sum('trips'):.0f}",
    }
    return str(Table(f"Nodes and wires, {dtype}", rows, ("contestant",), columns, note))


def predicted_rate(contestant: str, loopback: Row) -> float:
    """Tokens per second over a relay, from the figures over loopback (same prompt and repeat): each
    round takes longer by the relay's delay. 0 for contestants without a relay, and for drafting
    ahead."""
    if not contestant.startswith("relay") or contestant.endswith(AHEAD):
        return 0.0
    # The third word of a `relay_name`.
    relay_ms = float(contestant.split()[2])
    # Not the figure `round_ms`: tokens a second include the first round.
    round_ms = 1000 * loopback["per_round"] / loopback["speed"]
    return float(1000 * loopback["per_round"] / (round_ms + relay_ms))


def _prediction(group: Group) -> str:
    value = group.middle("predicted")
    return f"{value:.1f}" if value else ""


def _by_predicted(group: Group) -> str:
    if not group.middle("predicted"):
        return ""
    return f"{group.middle(lambda row: row['speed'] / row['predicted']):.2f}"


def _capacity_table(dtype: str, samples: Sequence[Row]) -> str:
    local = [sample["figures"][LOCAL] for sample in samples]
    loopback = [sample["figures"][LOOPBACK] for sample in samples]
    draft = [ms for one in local for ms in one["draft_ms"] if ms]
    verify = [ms for one in local for ms in one["verify_ms"]]
    transfers = [
        trip - busy
        for one in loopback
        for trip, busy in zip(one["trip_ms"], one["busy_ms"], strict=True)
    ]
    transfer_ms = sorted(transfers)[len(transfers) // 2] if transfers else 0.0
    bound = upper_bound(draft, verify)
    rows = [
        {
            "clients": clients,
            "wire": ms,
            "nodes": nodes,
            "times": client_ratio(nodes, draft, verify, ms, clients),
        }
        for clients in CLIENTS
        for ms in (transfer_ms, *map(float, RELAYS_MS))
        for nodes in CAPACITY_NODES
    ]
    note = (
        "Simulated from rounds with local SSMs: the number of clients with nodes for each client "
        f"without, at the same rate. Bound: 1 + drafting / verifying = {bound:.2f} (arXiv "
        f"2606.25091). Criterion: {LEAST_OF_BOUND} of it. The first delay is loopback's. 0: with "
        "that delay not even one client has the rate."
    )
    columns: dict[str, Callable[[Group], object]] = {
        "clients without nodes": lambda group: group["clients"],
        "wire, ms": lambda group: f"{group['wire']:.2f}",
        "nodes": lambda group: group["nodes"],
        "clients for one": lambda group: f"{group['times']:.2f}",
        "of the bound": lambda group: f"{group['times'] / bound:.2f}",
    }
    return str(Table(f"Clients, {dtype}", rows, ("clients", "wire", "nodes"), columns, note))


def _served_table(dtype: str, samples: Sequence[Row]) -> str:
    note = (
        f"Texts at once, preset {PRESET}, greedy, {PARTS} nodes. Bound: 1 + drafting / verifying "
        f"of `{LOCAL}` with as many clients. Criterion: {LEAST_OF_BOUND} of it. Nodes, wire and "
        "the LLM share this machine's cores."
    )

    def bound(group: Group) -> float:
        return group.middle(lambda row: 1 + row["local_draft_ms"] / row["local_verify_ms"])

    rows = [
        {
            **row,
            **{f"local_{name}": s["figures"][LOCAL][name] for name in ("draft_ms", "verify_ms")},
        }
        for s in samples
        for row in long_rows([s])
    ]
    columns: dict[str, Callable[[Group], object]] = {
        "clients": lambda group: group["clients"],
        "SSMs": lambda group: group["contestant"],
        "tokens a second": lambda group: figure(group.median("speed"), 1),
        "by local": lambda group: ratio(group.ratio("speed", contestant=LOCAL)),
        "bound": lambda group: f"{bound(group):.2f}",
    }
    # These samples have no prompt.
    options = {"block": ("clients", "repeat"), "over": "repeat"}
    keys = ("clients", "contestant")
    return str(Table(f"Clients served, {dtype}", rows, keys, columns, note, options))


def failures(results: Results) -> tuple[str, ...]:
    """A sentence for each text that differs from plain decoding's text."""
    return tuple(
        f"{name}, {sample['prompt']}: its ids are not plain decoding's"
        for sample in results.samples
        if "prompt" in sample
        for name, figures in sample["figures"].items()
        if figures["ids"] != sample["figures"][PLAIN]["ids"]
    )
