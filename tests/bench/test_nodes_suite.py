"""The tables of suite `nodes`, the simulation of clients, and the relay. A nightly test runs the
suite."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.capacity import client_ratio, rate_of, upper_bound
from bench.context import Context
from bench.prompts import load_prompts
from bench.relay import forward
from bench.relay import main as relay_main
from bench.results import Results
from bench.settings import Settings
from bench.suites.nodes import (
    AHEAD,
    LOCAL,
    LOOPBACK,
    PLAIN,
    SERVED_WAYS,
    NodesSuite,
    failures,
    relay_name,
    tables,
)
from core.models.loading.load import load_models


def text(speed: float, round_ms: float, ids: list[int], trip: float = 0.0) -> dict[str, Any]:
    """`trip`: ms of a round trip, 0 without a node."""
    return {
        "speed": speed, "per_round": 2.0, "round_ms": round_ms, "verify_ms": [4.0],
        "draft_ms": [2.0], "trip_ms": [trip] * bool(trip), "busy_ms": [1.0] * bool(trip),
        "missed": 0, "ahead": 0, "trips": 1 if trip else 0, "ids": ids,
    }  # fmt: skip


def results(relay_ids: list[int]) -> Results:
    """`relay_ids`: the token ids over the relay."""
    result = Results(Path("unused"), {}, [])
    figures = {
        PLAIN: text(250.0, 4.0, [1, 2]),
        LOCAL: text(320.0, 6.2, [1, 2]),
        LOOPBACK: text(312.5, 6.4, [1, 2], 1.5),
        relay_name(5): text(170.0, 11.6, relay_ids, 6.5),
    }
    result.samples.append({"dtype": "float32", "prompt": "p", "repeat": 0, "figures": figures})
    return result


def test_nodes_are_compared_with_local_ssms_and_the_prediction() -> None:
    speeds, clients = tables(results([1, 2]))
    lines = {line.split(" | ")[0].strip("| "): line for line in speeds.splitlines()}
    # Two tokens take 6.4 ms over loopback. The prediction for the relay is 2 tokens in 6.4 + 5 ms,
    # 175.4 a second. 170.0 is 0.97 of this prediction.
    assert "175.4 | 0.97 |" in lines["relay of 5 ms"] and "0 of 1" in lines["relay of 5 ms"]
    assert "1.03x" in lines[LOOPBACK] and "CoSine's paper" in speeds
    assert "= 1.50 (arXiv 2606.25091)" in clients and "| 16 | 20.00 | 4 |" in clients


def test_intervals_of_clients_are_over_repeats() -> None:
    result = results([1, 2])
    for repeat, speed in enumerate((100.0, 120.0, 110.0)):
        figures = {
            name: {"speed": speed, "verify_ms": 4.0, "draft_ms": 2.0} for name in SERVED_WAYS
        }
        sample = {"dtype": "float32", "clients": 4, "repeat": repeat, "figures": figures}
        result.samples.append(sample)
    assert "| 4 | local | 110.0 (100.0 to 120.0) | 1.00x (1.00 to 1.00) |" in tables(result)[-1]


def test_a_text_that_differs_from_plain_decoding_fails_the_suite() -> None:
    assert failures(results([1, 2])) == ()
    (failure,) = failures(results([1, 3]))
    assert failure.startswith("relay of 5 ms, p")


@pytest.mark.parametrize(("draft", "verify"), [(2.0, 4.0), (6.0, 3.0), (9.0, 3.0)])
def test_enough_nodes_reach_nearly_the_bound_and_too_few_do_not(
    draft: float, verify: float
) -> None:
    bound = upper_bound([draft], [verify])
    assert bound == 1 + draft / verify
    by_nodes = [client_ratio(n, [draft], [verify], 0.1, 4) for n in (1, 2, 8)]
    assert by_nodes == sorted(by_nodes) and 0.9 * bound <= by_nodes[-1] <= bound + 1e-9
    if draft > 2 * verify:
        assert by_nodes[0] < 0.9 * bound, "one node is the bottleneck"
    # Over a slow network the LLM waits, so it serves fewer clients at the same rate.
    assert client_ratio(8, [draft], [verify], 20.0, 4) < by_nodes[-1]


def test_with_many_clients_a_slow_network_costs_little() -> None:
    ratios = [client_ratio(8, [4.0], [4.0], 20.0, alone) for alone in (1, 4, 16)]
    assert ratios == sorted(ratios) and ratios[0] == 0 and ratios[-1] >= 0.9 * 2


def test_a_lone_client_waits_for_each_step_in_turn() -> None:
    assert rate_of(1, 0, [2.0], [3.0], 0.0) == pytest.approx(1000 / 5)
    assert rate_of(1, 4, [2.0], [3.0], 5.0) == pytest.approx(1000 / 10)
    # Eight clients share the LLM, which hardly waits.
    assert rate_of(8, 8, [2.0], [3.0], 5.0) == pytest.approx(1000 / (8 * 3), rel=0.05)


class ResetWriter:
    """A writer whose receiver has reset the connection."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def write(self, piece: bytes) -> None:
        pass

    async def drain(self) -> None:
        raise ConnectionResetError

    def close(self) -> None:
        self.closed.set()


def test_a_relay_stops_reading_when_its_receiver_is_gone() -> None:
    async def send() -> None:
        reader, writer = asyncio.StreamReader(), ResetWriter()
        forwarding = asyncio.create_task(forward(reader, writer, 0.0))  # type: ignore[arg-type]
        reader.feed_data(b"first")
        await asyncio.wait_for(writer.closed.wait(), 1)
        reader.feed_data(b"second")
        await asyncio.wait_for(forwarding, 1)

    asyncio.run(send())


def test_a_relay_without_arguments_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        relay_main([])
    assert "required: HOST:PORT, MS" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_suite_measures_over_processes_and_a_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = load_prompts()[:1]
    result = Results(Path("unused"), {}, [])
    monkeypatch.setattr(result, "add", result.samples.append)
    settings = Settings(1, 12, 1, ("float32",))
    context = Context(
        settings, prompts, prompts, result, lambda dtype: load_models(dtype=dtype), print
    )
    suite = NodesSuite(relays=(5,), clients=(2,))
    suite.measure(context)
    report = suite.report(context)
    assert report.failures == () and "Clients served, float32" in report.tables[-1]
    assert {*result.samples[1]["figures"]} == {*SERVED_WAYS}
    ahead = [
        result.samples[0]["figures"][name + AHEAD] for name in (LOCAL, LOOPBACK, relay_name(5))
    ]
    assert ahead[0]["ahead"] == 0 < ahead[1]["trips"]
    figures = result.samples[0]["figures"]
    assert min(figures[relay_name(5)]["trip_ms"]) >= 5, "the relay adds 5 ms"
    assert min(figures[LOOPBACK]["trip_ms"]) < 5
