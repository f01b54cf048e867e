"""What a run of an LLM over ranks says of it, and where the page shows it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import Engine
from core.__main__ import main
from core.errors import ConfigError
from core.events import Event, RanksInfo, RankTraffic, RoundCompleted, RunStarted
from storage import RunStore
from tests.core.engines import engine_of, tables
from tests.logs import log_at
from tests.synthetic import synthetic_run
from ui.run.charts import timeline_value
from ui.run.frame import Frame
from ui.run.pass_words import ranks_words
from ui.run.view import reduce_all
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


def test_the_sentence_says_what_was_exchanged_and_whether_it_was_worth_it() -> None:
    assert ranks_words(INFO, TRAFFIC, 10.0) == (
        "The LLM is in 2 ranks (tp), each layer divided: in the latest pass of 10.0 ms they "
        "exchanged 33 times, 655 kB a rank, and that took 3.5 ms of rank 0, 4.2 ms of rank 1, "
        "waiting for each other included. Predicted for one process with a rank's threads: 13.0 ms "
        "if all work is divided, 6.5 ms if none is: the ranks are at most 1.3 times as fast, and "
        "slower where little of a small model's work is divided."
    )
    slower = ranks_words(INFO, TRAFFIC, 5.0)
    assert slower.endswith(
        "3.0 ms if all work is divided, 1.5 ms if none is: the ranks are slower."
    )
    stages = replace(INFO, split="pp")
    assert "no faster than in one process" in ranks_words(stages, TRAFFIC, 10.0)
    assert ranks_words(None, (), 1.0) == ranks_words(INFO, (), 1.0) == ""


def test_the_pipeline_picture_has_it_and_the_log_keeps_it(tmp_path: Path) -> None:
    events = over_ranks()
    with RunStore(log_at(tmp_path / "log.db")) as store:
        for event in events:
            store.record(event)
        assert store.flush(60)
        results = list(store.events(events[0].run_id))
    assert results == events
    view = reduce_all(results)
    value = timeline_value(Frame(view=view, detail=view.last, ended=True, at_end=True))
    assert "2 ranks (tp)" in value["moves"] and "33 times" in value["moves"]
    plain = reduce_all(synthetic_run(6))
    assert timeline_value(Frame(view=plain, detail=plain.last, ended=True))["moves"] == ""


def models_over(ranks: RanksInfo | None) -> ServedModels:
    llm, ssms = tables()
    if ranks is not None:
        llm.ranks = ranks  # type: ignore[attr-defined]
    worker: Any = type("Worker", (), {"engine": engine_of(llm, ssms)})
    return ServedModels(worker, ModelPair())


def test_the_header_says_it_of_the_llm_alone() -> None:
    ours, one = models_over(INFO), models_over(None)
    assert ours.ranks == INFO and one.ranks is None
    llm, *ssms = ours.infos
    infos = (llm, *(replace(one, role="ssm") for one in ssms))
    chips = header_value(infos, ranks=ours.ranks)["models"]
    assert chips["0"]["device"] == "cpu, 2 ranks (tp), each layer divided"
    assert {chip["device"] for key, chip in chips.items() if key != "0"} == {"cpu"}
    assert header_value(one.infos, ranks=one.ranks)["models"]["0"]["device"] == "cpu"


def test_a_round_on_the_device_is_refused_by_name() -> None:
    llm, ssms = tables()
    models = engine_of(llm, ssms).models
    llm.ranks = INFO  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="on_device is True: not with an LLM over ranks"):
        Engine(models, on_device=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--llm-ranks", "tp=x"], "llm_ranks is 'tp=x': tp=N or pp=N"),
        (["--llm-ranks", "tp=2", "--offload", "disk"], "only without --offload"),
    ],
)
def test_both_command_lines_refuse_alike(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(words)
    assert main([*words, "--prompt", "x"]) == 2
    assert message in capsys.readouterr().err
