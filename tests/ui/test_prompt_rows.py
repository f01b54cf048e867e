"""The rows of the Prompts tab, from a study and from past runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from core.errors import UnknownRunError
from core.events import Combined, Event, RoundCompleted, Scheduled, Verified
from lab.measured import Measured, measure_run
from lab.order import Cell
from lab.prompts import StudyPrompt
from lab.study import PLAIN, Configuration, Study, plain_configuration
from lab.tables import configuration_row, same_text
from tests.synthetic import DRAFTERS, Mechanisms, synthetic_run
from tests.ui.fakes import plain_twin, with_request
from ui.compare.comparison import comparison_rows
from ui.prompts.row_settings import settings_of_run
from ui.prompts.rows import of_runs, of_study, profit_words, prompts_table_value, rows_plain
from ui.prompts.run_figures import PastRun, RunFigures

PROMPTS = (StudyPrompt("1", "one\ntwo", "code"), StudyPrompt("2", "x" * 300))


def study() -> Study:
    tree = Configuration("tree", SpeculationConfig.preset("specinfer"))
    both = (plain_configuration(), tree)
    return Study("s", "prompts", "", "", ("llm",), SamplingParams(), both, PROMPTS)


def results() -> dict[Cell, Measured]:
    entries = {}
    for i, prompt in enumerate(PROMPTS):
        events = synthetic_run(6, seed=i, run_id=f"tree-{i}")
        entries[Cell("tree", prompt.id, 0)] = measure_run(events)
        entries[Cell(PLAIN, prompt.id, 0)] = measure_run(plain_twin(events))
    return entries


def past_run(
    run_id: str, prompt: str, preset: str = "specinfer", num_live: int = 0, **changes: Any
) -> PastRun:
    fields, dtype = changes.pop("fields", {}), changes.pop("dtype", "float32")
    sampling = SamplingParams(**changes)
    base = SpeculationConfig.preset(preset, sampling.temperature).to_plain()
    request = Request(prompt, sampling, SpeculationConfig.from_plain({**base, **fields}))
    events = synthetic_run(4, seed=len(run_id), run_id=run_id)
    events[0] = replace(with_request(events[0], request), dtype=dtype)
    events = events if request.speculation.drafters else plain_twin(events)
    return run_of(prompt, [scheduled_in(event, num_live) for event in events])


def run_of(prompt: str, events: list[Event]) -> PastRun:
    figures = RunFigures(SimpleNamespace(events=lambda run_id: tuple(events)))
    return replace(
        next(figures.of([SimpleNamespace(run_id="x", status="completed")])), prompt=prompt
    )


def scheduled_in(event: Event, num_live: int) -> Event:
    if not num_live or not isinstance(event, RoundCompleted):
        return event
    scheduled = Scheduled("shared", num_live, 1, 0, None, None, 2, 2, 4, 4, 0.1, "", "it pays")
    return replace(event, scheduled=scheduled)


def test_each_prompt_has_a_row_with_its_speed_up_and_plain_rows_come_last() -> None:
    lines = [line for line in of_study(study(), results()) if line.row.configuration == "tree"]
    rows = [line.row for line in lines]
    assert [row.prompt for row in rows] == ["1", "2"]
    for row, prompt in zip(rows, PROMPTS, strict=True):
        ours, plain = results()[Cell("tree", prompt.id, 0)], results()[Cell(PLAIN, prompt.id, 0)]
        assert row.ratio == ours.stats.tokens_per_second / plain.stats.tokens_per_second
        assert row.mean_acceptance_length == ours.stats.mean_acceptance_length
        assert row.rate_per_position == ours.stats.acceptance_rate_per_position
        assert row.same.kind == "identical"
    assert {line.against for line in lines} == {"plain decoding of the same prompt in this study"}
    listed = [(line.row.configuration, line.row.prompt) for line in of_study(study(), results())]
    assert listed == [("tree", "1"), ("tree", "2"), (PLAIN, "1"), (PLAIN, "2")]


def test_texts_are_judged_as_in_a_comparison_with_the_place_of_a_difference() -> None:
    kinds = [row["same_text"] for row in rows_plain(of_study(study(), results()))]
    rows = comparison_rows(study(), results(), lambda run_id: ())
    compared = {row["name"]: row["same_text"] for row in rows}
    grid = configuration_row(study(), results(), "tree").same.kind
    assert kinds == ["identical", "identical", "base", "base"]
    assert compared == {"tree": grid, PLAIN: "base"} and grid == "identical"
    result, cell = results(), Cell("tree", "1", 0)
    ids = list(result[cell].token_ids)
    ids[3] += 1

    result[cell] = replace(result[cell], token_ids=tuple(ids))
    same = same_text(study(), result, [cell])
    assert (same.kind, same.first) == ("differs", (cell, 3))


def test_what_the_table_shows() -> None:
    value = prompts_table_value("s", of_study(study(), results()), DRAFTERS, chosen="tree")
    first, second = value["rows"]["0"], value["rows"]["1"]
    assert value["of"] == "s" and value["chosen"] == "tree"
    assert first["prompt"] == "one two" and first["domain"] == "code"
    assert first["settings"] == "tree" and first["detail"] == "temperature 0, 128 tokens"
    assert len(second["prompt"]) == 120 and second["domain"] == ""
    assert first["slot"] == DRAFTERS.index(first["best"])
    assert first["drafters"] == {str(i): name for i, name in enumerate(DRAFTERS)}
    assert (first["runs"], first["run"]) == (1, "tree-0")


def test_the_prompt_that_profits_most_is_named_with_the_reason() -> None:
    lines = [line for line in of_study(study(), results()) if line.row.configuration == "tree"]
    gains = (3.5, 1.25)
    lines = [
        replace(line, row=replace(line.row, mean_acceptance_length=gain))
        for line, gain in zip(lines, gains, strict=True)
    ]
    sentence = profit_words(lines)
    most, least = lines
    assert sentence.startswith("Drafts help most in “one two”: 3.50 tokens / pass, 2.5 of ")
    assert f"most of them by {most.row.best_drafter}; least in “" in sentence
    assert f"0.2 of {least.row.drafted_per_pass:.1f} accepted / pass" in sentence
    assert profit_words(lines[::-1]) == sentence and profit_words(lines[:1]) == ""
    value = prompts_table_value("s", lines, DRAFTERS, chosen="tree", words="More.")
    assert (value["gains"], value["words"]) == (sentence, "More.")
    assert prompts_table_value("s", lines, DRAFTERS, chosen="another")["gains"] == ""


def test_a_tie_has_no_first_and_no_last() -> None:
    lines = [line for line in of_study(study(), results()) if line.row.configuration == "tree"]

    def words_of_gains(*gains: float) -> str:
        rows = [
            replace(lines[0].row, prompt=str(gain), mean_acceptance_length=gain) for gain in gains
        ]
        return profit_words([replace(lines[0], row=row) for row in rows])

    tied = words_of_gains(3.368, 3.371)
    assert tied.startswith("Drafts help every prompt alike: 3.37 tokens / pass, a count")
    assert "most" not in tied and "least" not in tied
    partly = words_of_gains(3.371, 3.368, 2.0)
    assert (
        "help most in “one two” and 1 more: 3.37 tokens / pass; least" in partly
        and "least in “one two”: 2.00 tokens / pass, 1.0 of" in partly
    )


def test_the_measure_of_the_profit_is_named_and_whether_speed_ups_show_it() -> None:
    lines = [line for line in of_study(study(), results()) if line.row.configuration == "tree"]

    def words_of_ratios(*ratios: tuple[float, ...]) -> str:
        pairs = zip(lines, ratios, strict=True)
        rows = [replace(line.row, ratios=own, ratio=max(own, default=None)) for line, own in pairs]
        return profit_words([replace(line, row=row) for line, row in zip(lines, rows, strict=True)])

    by_count = "That is by tokens / pass, a count, not a time."
    assert words_of_ratios((), ()).endswith(by_count)
    for others in ((1.09,), (1.0, 1.2)):
        assert "A speed-up of one sample ranks no prompt" in words_of_ratios((1.03,), others)
    assert "the ranges of their repeats overlap" in words_of_ratios((1.0, 1.2), (1.1, 1.3))
    assert words_of_ratios((1.4, 1.5), (1.1, 1.3)).endswith(
        "By speed-up it is “one two”: 1.50x (1.40 to 1.50)."
    )


def test_one_speed_up_is_called_a_sample_and_what_tokens_per_pass_cannot_gain_noise() -> None:
    line, _, plain, _ = of_study(study(), results())

    def notes(*ratios: float) -> tuple[Any, ...]:
        row = replace(line.row, mean_acceptance_length=1.83, ratios=ratios, ratio=median(ratios))
        (shown,) = prompts_table_value("s", [replace(line, row=row)], [])["rows"].values()
        return shown["samples"], shown["spread"], shown["noise"]

    assert notes(3.58) == (1, "one sample", "noise, since 1.83 tokens per pass gain no more")
    assert notes(1.5) == (1, "one sample", "")
    above = "above 1.83x, the tokens per pass, is noise"
    assert notes(1.5, 1.2, 2.0) == (3, "1.20 to 2.00 in 3 samples", above)
    differing = "the samples differ too much to tell"
    assert notes(0.06, 1.2, 1.5) == (3, "0.06 to 1.50 in 3 samples", differing)
    for other in (plain, replace(line, row=replace(line.row, ratio=None, ratios=()), against="")):
        (shown,) = prompts_table_value("s", [other], [])["rows"].values()
        assert (shown["spread"], shown["noise"]) == ("", ""), (
            "the row is not compared with anything"
        )


def test_a_row_has_the_speed_up_of_each_repeat() -> None:
    row = next(line.row for line in of_study(study(), results()) if line.row.ratio is not None)
    assert row.ratios and median(row.ratios) == row.ratio


def test_a_row_without_drafts_says_why() -> None:
    result = results()
    for prompt, idle in (("1", "no draft beats plain decoding"), ("2", "")):
        cell, base = Cell("tree", prompt, 0), result[Cell(PLAIN, prompt, 0)]
        result[cell] = replace(base, run_id="r", accepted_by=result[cell].accepted_by, idle=idle)
    lines = of_study(study(), result)
    notes = [row["idle"] for row in prompts_table_value("s", lines, DRAFTERS)["rows"].values()]
    assert notes == ["did not draft: no draft beats plain decoding", "did not draft", "", ""]
    plain = [row["idle"] for row in rows_plain(lines)]
    assert plain == ["no draft beats plain decoding", "", None, None]
    assert {line.row.idle for line in of_study(study(), results())} == {None}


def test_past_runs_of_one_prompt_are_one_row() -> None:
    lines = of_runs([past_run(f"r{i}", text) for i, text in enumerate("aba")])
    assert [line.text for line in lines] == ["a", "b"]
    assert [line.row.runs for line in lines] == [("r0", "r2"), ("r1",)]
    assert lines[0].latest == "r0"
    assert all(line.row.ratio is None and not line.against for line in lines)


def test_past_runs_of_other_settings_have_their_own_rows() -> None:
    others = {"22": {"preset": "minions"}, "333": {"seed": 7}, "4444": {"temperature": 0.8}}
    others |= {"55555": {"fields": {"speculation_length": 3}}, "666666": {"dtype": "bfloat16"}}
    runs = [past_run(run_id, "a", **changes) for run_id, changes in others.items()]
    lines = of_runs([past_run("1", "a"), *runs])
    first, *others = [line.row.runs for line in lines]
    assert first == ("1", "333"), "a seed makes no other settings"
    assert others == [("22",), ("4444",), ("55555",), ("666666",)]
    assert {line.row.prompt for line in lines} == {"1"}
    labels = [line.row.configuration for line in lines]
    assert len(set(labels)) == 5 and labels[0].startswith("specinfer · temperature 0")
    assert labels[1] == "minions" and "temperature 0.8" in labels[2]
    assert "speculation_length=3" in labels[3]
    both_dtypes = [line for line in lines if line.row.runs in (("1", "333"), ("666666",))]
    assert len({line.row.configuration for line in both_dtypes}) == 2
    (line,) = of_runs([past_run("1", "a", temperature=0), past_run("22", "a", temperature=0.0)])
    assert line.row.runs == ("1", "22")


def test_a_speed_up_is_relative_to_plain_runs_of_the_same_request() -> None:
    plain = "autoregressive"
    runs = [past_run("1", "a"), past_run("22", "a", plain), past_run("333", "a", plain, seed=3)]
    runs += [
        past_run("4444", "b"),
        past_run("55555", "c", temperature=0.8),
        past_run("666666", "c", plain),
    ]
    runs += [past_run("7777777", "d", dtype="bfloat16"), past_run("88888888", "d", plain)]
    a, b, c, d = of_runs(runs)
    speeds = [run.figures.stats.tokens_per_second for run in runs]
    assert a.row.ratio == (speeds[0] / speeds[1] + speeds[0] / speeds[2]) / 2
    assert a.against == "2 plain runs of the same prompt, sampling and LLM"
    assert [line.row.ratio for line in (b, c, d)] == [None, None, None]


def test_a_prompt_has_the_domain_of_any_of_its_runs() -> None:
    domains = {"22": "code"}
    runs = [past_run("1", "a"), past_run("22", "a", "minions"), past_run("333", "b")]
    lines = of_runs(runs, lambda run: domains.get(run.figures.run_id, ""))
    assert [line.row.domain for line in lines] == ["code", "code", ""]


def test_rows_for_files_have_the_same_values() -> None:
    (line,) = of_runs([past_run("1", "a"), past_run("22", "a", "autoregressive")])
    (row,) = rows_plain([line])
    assert (row["prompt"], row["settings"], row["runs"]) == ("a", "specinfer", ["1"])
    assert row["speed_up"] == line.row.ratio and row["against"] == line.against
    assert row["drafters"] == list(DRAFTERS) and row["domain"] == ""


def test_a_past_run_is_read_once_and_a_lost_one_is_left_out() -> None:
    read: list[str] = []

    def events(run_id: str) -> tuple[Event, ...]:
        read.append(run_id)
        if run_id == "gone":
            raise UnknownRunError("gone")
        return tuple(synthetic_run(4, run_id=run_id, end="cut" if run_id == "cut" else "completed"))

    figures = RunFigures(SimpleNamespace(events=events))
    statuses = {"a": "completed", "gone": "completed", "cut": "completed", "b": "failed"}
    rows = [SimpleNamespace(run_id=i, status=status, prompt=i) for i, status in statuses.items()]
    assert [run.figures.run_id for run in figures.of(iter(rows))] == ["a"]
    assert [run.figures.run_id for run in figures.of(iter(rows))] == ["a"]
    assert read == ["a", "gone", "cut", "gone", "cut"]


def run_with_auto_nodes(run: str, nodes: int, preset: str = "specinfer") -> PastRun:
    row = past_run(run, "a", preset)
    request = Request("a", speculation=SpeculationConfig.preset(preset))
    started = with_request(synthetic_run(4, run_id=run)[0], request)
    speculation = {**started.config["speculation"], "max_tree_nodes": nodes}
    started = replace(started, config={**started.config, "speculation": speculation})
    return replace(row, settings=settings_of_run(started))


def test_runs_whose_trees_were_cut_to_other_sizes_have_their_own_rows() -> None:
    lines = of_runs([run_with_auto_nodes(f"r{i}", nodes) for i, nodes in enumerate((8, 2, 8))])
    assert [line.row.runs for line in lines] == [("r0", "r2"), ("r1",)]
    names = [line.row.configuration for line in lines]
    assert names == ["specinfer · trees of at most 8 nodes", "specinfer · trees of at most 2 nodes"]
    lines = of_runs([run_with_auto_nodes("r0", 64, "best"), run_with_auto_nodes("r1", 48, "best")])
    assert [line.row.runs for line in lines] == [("r0", "r1")]


def test_scheduled_runs_and_those_among_others_have_their_own_rows_and_plain_runs() -> None:
    plain = past_run("p0", "a", "autoregressive")
    runs = [past_run("r0", "a"), *(past_run(f"r{n}", "a", num_live=n) for n in (1, 3)), plain]
    lines = of_runs(runs)
    names = ["", " · schedule shared", " · schedule shared beside others"]
    assert [line.row.configuration for line in lines] == [f"specinfer{name}" for name in names]
    assert [line.plain for line in lines] == [1, 1, 0], (
        "a plain run that was decoded alone is no baseline of the last row"
    )
    assert lines[2].row.ratio is None and "schedule shared beside others" in lines[2].detail
    plain_among_others = past_run("p1", "a", "autoregressive", num_live=2)
    assert [line.plain for line in of_runs([*runs, plain_among_others])] == [1, 1, 1]


def test_fused_runs_have_their_own_rows_and_the_best_ssm_by_origins() -> None:
    fused = {"routing": "cosine", "routed_drafters": 2, "draft": "fused"}
    mechanisms = Mechanisms(routing="cosine", draft="fused")
    events = synthetic_run(20, seed=5, run_id="routed", mechanisms=mechanisms)
    routed = PastRun("p", past_run("routed", "p", fields=fused).settings, measure_run(events))
    lines = of_runs(
        [routed, past_run("other", "p"), past_run("wide", "p", fields={"routing": "cosine"})]
    )
    names = [line.row.configuration for line in lines]
    assert len(set(names)) == 3
    assert "routing=cosine" in names[0] and "draft=fused" in names[0] and names[1] == "specinfer"
    origins = Counter[str]()
    trees = [event for event in events if isinstance(event, Combined)]
    verdicts = [event for event in events if isinstance(event, Verified)]
    for tree, verdict in zip(trees, verdicts, strict=True):
        origins.update(tree.origins[node] for node in verdict.path)
    assert lines[0].row.best_drafter == origins.most_common(1)[0][0]
    shown = prompts_table_value("past", lines, DRAFTERS, chosen=names[0])
    assert [row["settings"] for row in shown["rows"].values()] == names
