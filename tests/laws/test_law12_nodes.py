"""Laws 1 and 2 with the bundled SSMs on two drafter nodes."""

from dataclasses import replace
from functools import cache

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.events import RoundCompleted
from tests.core.engines import by_run, ids_of_events, rounds_of, tokens_by_drafter
from tests.core.remote_ssms.served import engine_over, server_of
from tests.laws.runs import PLAIN, ids_of, prompts
from tests.laws.traps import unlikely_node_accepted

SAMPLINGS = {
    "greedy": SamplingParams(20, ignore_eos=True),
    "match": SamplingParams(20, temperature=0.8, seed=5, ignore_eos=True),
}
PRESETS = {
    name: SpeculationConfig.preset(name) for name in ("specinfer", "cosine", "best", "minions")
}
AHEAD = {
    f"{name}, ahead": replace(PRESETS[name], pipeline="ahead") for name in ("specinfer", "minions")
}


def parts_of(engine: Engine) -> list[list[str]]:
    names = list(engine.models.ssms)
    return [names[:2], names[2:]]


@cache
def plain(engine: Engine, text: str, sampling: SamplingParams) -> list[int]:
    return ids_of(engine, Request(text, sampling, PLAIN))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("config", (PRESETS | AHEAD).values(), ids=PRESETS | AHEAD)
def test_a_request_alone_has_the_text_of_plain_decoding(
    bundled: Engine, config: SpeculationConfig, sampling: SamplingParams
) -> None:
    engine, _ = engine_over(bundled.models, parts_of(bundled))
    for text in prompts(2):
        events = list(engine.generate(Request(text, sampling, config)))
        assert ids_of_events(events) == plain(bundled, text, sampling)
        for tokens in tokens_by_drafter(events):
            assert any(tokens[name] for name in bundled.models.ssms)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_control_an_accepted_node_of_another_token_is_noticed(
    bundled: Engine, sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = engine_over(bundled.models, parts_of(bundled))
    (text,) = prompts(1)
    expected = plain(bundled, text, sampling)
    unlikely_node_accepted(monkeypatch)
    assert ids_of(engine, Request(text, sampling, PRESETS["specinfer"])) != expected


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("schedule", ["each", "cosine", "shared"])
def test_several_requests_have_the_texts_of_plain_decoding_while_a_node_is_killed(
    bundled: Engine, schedule: str, sampling: SamplingParams
) -> None:
    models, parts = bundled.models, parts_of(bundled)
    engine, transport = engine_over(models, parts, schedule=schedule)
    config = SpeculationConfig.preset("cosine")
    requests = [Request(text, sampling, config) for text in prompts(3)]
    count, events = 0, []
    for event in engine.generate_many(requests):
        events.append(event)
        if isinstance(event, RoundCompleted):
            count += 1
            if count == 4:
                transport.kill(0)
            elif count == 10:
                transport.start(0, server_of(models, parts[0]))
    texts = [ids_of_events(run) for run in by_run(events)]
    assert texts == [plain(bundled, text, sampling) for text in prompts(3)]
    states = {trip.state for one in rounds_of(events) for trip in one.nodes}
    assert states == {"in_time", "absent"}
