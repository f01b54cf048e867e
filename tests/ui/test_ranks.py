"""An LLM that is divided over ranks, in a run's events and on the page."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import Engine
from core.__main__ import main
from core.errors import ConfigError
from core.events import Event, RanksInfo, RankTraffic, RoundCompleted, RunStarted, Span
from tests.core.engines import engine_of, tables
from tests.synthetic import synthetic_run
from tests.ui.reports import last_timeline
from ui.run.charts import timeline_value
from ui.run.frame import Frame
from ui.run.pass_words import LEAST_PASSES, ranks_words
from ui.run.view import RoundView, reduce_all
from ui.server.arguments import parse
from ui.server.loaded_models import ServedModels
from ui.server.model_swap import ModelPair
from ui.shared.parts import header_value

INFO = RanksInfo("tp", (7_000_000, 7_000_004))
TRAFFIC = (RankTraffic(0, 33, 655_360, 3.5), RankTraffic(1, 33, 655_360, 4.25))


def over_ranks() -> list[Event]:
    return [
        replace(event, ranks=INFO)
        if isinstance(event, RunStarted)
        else replace(event, traffic=TRAFFIC)
        if isinstance(event, RoundCompleted)
        else event
        for event in synthetic_run(6)
    ]


def line_of(pass_ms: float, waited_ms: Sequence[float], nodes: int = 0) -> RoundView:
    """`waited_ms`: for each rank, the milliseconds of the pass that the rank spent on exchanges."""
    traffic = tuple(RankTraffic(rank, 33, 655_360, ms) for rank, ms in enumerate(waited_ms))
    spans = (Span("llm", "forward", 1.0, 1.0 + pass_ms),)
    return RoundView(0, 0, 1, 0, nodes, 0, spans, {}, traffic=traffic)


# Measured passes of the bundled LLM with tp=2, in plain decoding on two busy cores.
RECORDED = [
    line_of(pass_ms, waited_ms)
    for pass_ms, *waited_ms in json.loads(Path(__file__).with_name("rank_passes.json").read_text())
]


def test_the_sentence_has_the_exchanges_and_whether_ranks_are_worth_it() -> None:
    exchanges = (
        "The LLM is in 2 ranks (tp), each layer divided: in the latest pass of 10.0 ms they "
        "exchanged 33 times, 655 kB a rank, and that took 3.5 ms of rank 0, 4.2 ms of rank 1, "
        "waiting for each other included. "
    )
    line = line_of(10.0, (3.5, 4.24))
    early = "5 passes of about one width tell whether the ranks are worth it."
    for count in range(1, 5):
        assert ranks_words(INFO, [line] * count) == exchanges + early
    assert ranks_words(INFO, [line] * 5) == exchanges + (
        "The run's 5 passes over 1 token took 10.0 ms (median), computing in them rank 0 6.5 ms, "
        "rank 1 5.8 ms (lower quartile). Predicted for one process with a rank's threads: 6.5 ms "
        "if no work is divided, 12.3 ms if all is: the ranks are 0.65 to 1.23 times as fast, "
        "slower where little of a small model's work is divided."
    )
    slower = ranks_words(INFO, [line_of(5.0, (3.5, 4.25))] * 5)
    assert slower.endswith("2.2 ms if all is: the ranks are slower, at most 0.45 times as fast.")
    stages = replace(INFO, split="pp")
    assert "no faster than in one process" in ranks_words(stages, [line])
    assert ranks_words(None, [line]) == ranks_words(INFO, [line_of(1.0, ())]) == ""
    assert ranks_words(INFO, []) == ""
    assert ranks_words(INFO, [line_of(0.0, (0.0, 0.0))] * 5).endswith(early)


def verdict_of(rounds: Sequence[RoundView]) -> str:
    (verdict,) = re.findall(r"the ranks are (slower|[\d.]+ to)", ranks_words(INFO, rounds))
    return str(verdict)


def test_recorded_ranks_are_called_slower_in_every_round() -> None:
    rounds = range(LEAST_PASSES, len(RECORDED) + 1)
    assert {verdict_of(RECORDED[:count]) for count in rounds} == {"slower"}


@pytest.mark.parametrize(
    "outlier",
    [line_of(2000.0, (0.1, 0.1)), line_of(0.1, (0.0, 0.0)), line_of(2000.0, (1999.9, 1999.9))],
)
def test_one_outlier_does_not_change_the_verdict_on_the_ranks(outlier: RoundView) -> None:
    for place in range(LEAST_PASSES, len(RECORDED)):
        rounds = [*RECORDED[:place], outlier, *RECORDED[place + 1 :]]
        assert verdict_of(rounds[: place + 1]) == verdict_of(rounds) == "slower"
    faster = [line_of(10.0, (2.0, 2.0))] * 9
    assert verdict_of([*faster, outlier]) == verdict_of(faster) == "0.80 to"


def test_passes_of_other_widths_are_not_mixed_in() -> None:
    trees = [line_of(8.0, (3.0, 3.0), nodes) for nodes in (4, 7, 5, 5, 6)]
    chains = [line_of(900.0, (899.0, 899.0))] * 4
    words = ranks_words(INFO, [*chains, *trees])
    assert "The run's 5 passes over 5 to 8 tokens took 8.0 ms (median), computing" in words
    assert "0.62 to 1.25 times" in words


def test_the_pipeline_picture_has_the_exchanges() -> None:
    events = over_ranks()
    view = reduce_all(events)
    value = timeline_value(Frame(view=view, detail=view.last, ended=True, at_end=True))
    assert "2 ranks (tp)" in value["moves"] and "33 times" in value["moves"]
    assert last_timeline(events)["moves"] == value["moves"]
    plain = reduce_all(synthetic_run(6))
    assert timeline_value(Frame(view=plain, detail=plain.last, ended=True))["moves"] == ""


def models_over(ranks: RanksInfo | None) -> ServedModels:
    llm, ssms = tables()
    if ranks is not None:
        llm.ranks = ranks  # type: ignore[attr-defined]
    worker: Any = type("Worker", (), {"engine": engine_of(llm, ssms)})
    return ServedModels(worker, ModelPair())


def test_the_header_names_the_ranks_of_the_llm_only() -> None:
    divided, undivided = models_over(INFO), models_over(None)
    assert divided.ranks == INFO and undivided.ranks is None
    llm, *ssms = divided.infos
    infos = (llm, *(replace(one, role="ssm") for one in ssms))
    chips = header_value(infos, ranks=divided.ranks)["models"]
    assert chips["0"]["device"] == "cpu, 2 ranks (tp), each layer divided"
    assert {chip["device"] for key, chip in chips.items() if key != "0"} == {"cpu"}
    assert header_value(undivided.infos, ranks=undivided.ranks)["models"]["0"]["device"] == "cpu"


def test_whole_rounds_on_a_device_are_refused_with_ranks() -> None:
    llm, ssms = tables()
    models = engine_of(llm, ssms).models
    llm.ranks = INFO  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="on_device is True: not with an LLM over ranks"):
        Engine(models, on_device=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--llm-ranks", "tp=x"], "llm_ranks is 'tp=x': tp=N or pp=N"),
        (["--llm-ranks", "tp=2", "--offload", "disk"], "only without --offload"),
    ],
)
def test_both_command_lines_refuse_alike(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(arguments)
    assert main([*arguments, "--prompt", "x"]) == 2
    assert message in capsys.readouterr().err
