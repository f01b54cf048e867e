"""The speedup of an LLM by SSMs: expected tokens, best lengths, verdicts and the command."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import zoo.__main__ as command
from core.engine.engine import Engine
from core.errors import ConfigError
from core.models.loading.load import load_models
from core.speculation_length.cost_model.verify_costs import VerifyCosts
from zoo import speedup
from zoo.round_times import LONGEST, RoundMs, RoundTimes, Workload
from zoo.speedup import Speedup, measure_speedups, prompts_of, table

ROOT = Path(__file__).resolve().parents[2]
LLM = ROOT / "bundled" / "llm"
SSM = ROOT / "bundled" / "ssm-dialogue"


def round_times(*accepted: int, step: float = 0.1, llm: float = 1.0) -> RoundTimes:
    """`step`: milliseconds of each draft step after the first; `llm`: those of an LLM pass."""
    rounds = [RoundMs(llm, 0.2, step * (LONGEST - 1), 0.3, number) for number in accepted]
    return RoundTimes(rounds)


def best_length(drafts: RoundTimes, t: float) -> tuple[int, float]:
    costs = {n: 1.0 + (t - 1.0) * n for n in range(LONGEST + 1)}
    engine: Any = SimpleNamespace(costs=SimpleNamespace(verify=VerifyCosts(costs, 64)))
    return speedup._best_length(engine, round_times(0, 0, step=0.0), drafts)


def test_expected_tokens_of_a_shorter_chain_are_those_accepted_by_then() -> None:
    result = round_times(0, 3, 8)
    assert result.tokens_per_pass == pytest.approx(1 + 11 / 3)
    assert [result.expected_tokens(n) for n in (1, 3, 5, 8)] == pytest.approx(
        [1 + 2 / 3, 1 + 6 / 3, 1 + 8 / 3, 1 + 11 / 3]
    )


def test_the_length_is_long_where_drafts_are_good_and_cheap() -> None:
    cheap_length, gain = best_length(round_times(8, 8, 7), t=1.0)
    # A round brings 8.67 tokens in 2.2 ms: 1.0 for the LLM pass, 0.2 and 7 x 0.1 for the draft
    # steps, 0.3 for the rest.
    assert cheap_length == 8 and gain == pytest.approx((1 + 23 / 3) * 1.3 / 2.2)
    costly_length, _ = best_length(round_times(8, 8, 7), t=3.0)
    assert costly_length < cheap_length
    poor_length, loss = best_length(round_times(0, 0, 0, 1), t=1.2)
    assert poor_length == 1 and loss < 1


def test_the_table_has_a_row_and_a_sentence_for_each_ssm() -> None:
    one = Speedup("ssm-a", 0.5, 2.0, 0.1, 3, 1.3, 1.21, 1.1, 1.4)
    lines = table([one, replace(one, name="b", measured=1.14, low=None, high=None)])
    row = ["ssm-a", "50%", "2.00", "0.10", "3", "1.30x", "1.21x", "(1.10", "to", "1.40)"]
    assert lines[1].split() == row and lines[2].endswith("1.14x")
    assert lines[-2] == (
        "ssm-a: worth using here: with chains of 3 1.21 times as fast as the LLM alone."
    )
    assert lines[-1].startswith("b: not decided by one prompt")


@pytest.mark.parametrize(
    ("measured", "low", "high", "verdict"),
    [
        (1.2, 1.01, 1.4, "worth using here"),
        (1.03, 1.01, 1.06, "hardly worth using here"),
        (0.8, 0.7, 1.04, "not worth using here"),
        (1.14, 0.9, 1.3, "not decided by these prompts"),
        (0.99, 0.9, 1.06, "not decided by these prompts"),
    ],
)
def test_a_verdict_needs_an_interval_that_allows_it(measured, low, high, verdict):
    result = Speedup("ssm", 0.0, 1.0, 0.1, 3, 0.3, measured, low, high)
    assert table([result])[-1].startswith(f"ssm: {verdict}: ")


def test_a_ratio_is_taken_within_a_prompt_and_its_interval_over_prompts() -> None:
    alone, speculative = (
        RoundTimes([], [10.0, 20.0, 10.0, 20.0]),
        RoundTimes([], [10.0, 40.0, 12.0, 44.0]),
    )
    measured, low, high = speedup._ratio(speculative, alone, 2)
    assert (measured, low, high) == pytest.approx((1.6, 1.1, 2.1))
    assert speedup._ratio(speculative, alone, 1) == (1.6, None, None)


def test_the_llm_accepts_all_of_its_own_drafts() -> None:
    engine = Engine(load_models(str(LLM), [str(LLM), str(SSM)], "float32", "cpu"))
    workload = Workload(["class Stack:\n    def push"], 28, repeats=1)
    itself, ssm, together = measure_speedups(engine, workload, lambda _: None)
    assert itself.acceptance == 1.0 and itself.tokens_per_pass == pytest.approx(LONGEST + 1)
    assert ssm.acceptance is not None and 0 <= ssm.acceptance < 1
    assert 1 <= ssm.tokens_per_pass < itself.tokens_per_pass
    assert itself.cost is not None and ssm.cost is not None and ssm.cost < itself.cost
    assert together.length == 0 and together.predicted is None
    assert all(one.measured > 0 for one in (itself, ssm, together))


def test_the_command_prints_and_writes_its_results(tmp_path, capsys):
    arguments = ("evaluate", "--llm", LLM, "--ssm", SSM, "--count", "2", "--tokens", "24",
                 "--repeats", "1", "--out", tmp_path)  # fmt: skip
    assert command.main([str(each) for each in arguments]) == 0
    written = json.loads((tmp_path / "worth.json").read_text("utf-8"))
    assert [one["name"] for one in written["pairs"]] == ["ssm-dialogue", "all, `best`"]
    assert written["prompts"] == 2
    printed = capsys.readouterr().out
    assert f"{written['pairs'][0]['measured']:.2f}x" in printed and "ssm-dialogue: " in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "out is None: a prepared folder, or --llm with --ssm"),
        (("--llm", LLM), "ssm is 0: one SSM or more"),
        (
            ("--llm", LLM, "--ssm", SSM, "--tokens", "2"),
            "tokens is 2: it must be a whole number from 18 to 100000",
        ),
        (("--llm", LLM, "--ssm", SSM, "--prompts", "none"), "prompts is 'none': a file of JSON"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: tuple[object, ...], message: str, capsys):
    assert command.main(["evaluate", *map(str, arguments)]) == 2
    assert message in capsys.readouterr().err


def test_prompts_are_spread_over_their_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": str(n)}) for n in range(10)))
    assert prompts_of(file, 3) == ["0", "3", "6"]
    assert len(prompts_of(file, 50)) == 10
    file.write_text('{"text": 1}')
    with pytest.raises(ConfigError, match="a file of JSON lines, each with prompt"):
        prompts_of(file, 1)
