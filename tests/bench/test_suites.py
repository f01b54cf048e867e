"""Suites measure, continue and report; speeds are not checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.chart import chart
from bench.prompts import load_prompts
from bench.results import Results
from bench.suites.acceptance import Acceptance
from bench.suites.batch import BatchSizes
from bench.suites.cpu_bundled import CpuBundled
from bench.suites.cpu_tables import ASSISTED, LOOKUP, Variant, best_variant, fastest_of_each_drafter
from bench.suites.fusion import Fusion, fusion_tables
from bench.suites.length import Length
from bench.suites.length_tables import FIXED, PLAIN, POLICIES
from bench.suites.load import PLAIN as LOAD_PLAIN
from bench.suites.load import Load, load_requests
from bench.suites.load import tables as load_tables
from bench.suites.overhead import Overhead, overhead_configs
from bench.suites.passes import Passes
from bench.suites.pipeline import Pipeline
from bench.suites.pipeline_tables import pipeline_rows
from bench.suites.routing import CREDIT, REWORDED, TURNING, Routing
from bench.suites.tables import Tables
from bench.suites.tables_report import BEST, BOTH, NO_DIFFERENCE, TABLE_TOO
from bench.suites.tables_report import PLAIN as NO_DRAFTERS
from core.config import PRESETS
from tests.family import SSMS

Samples = list[dict[str, Any]]
VARIANTS = (Variant(ASSISTED, 3, "ssm-code", "constant"), Variant(LOOKUP, 3))
THEIRS = ("transformers generate", ASSISTED, LOOKUP)
ACROSS = [row for row in pipeline_rows() if row.live == 8 and row.temperature == 0][:1]
SEGMENT = 12  # tokens of each domain in a spliced text
PASSES = ("LLM", "LLM, general path", "SSM", "5 SSMs, one after another", "5 SSMs, together")


def check_batch(samples: Samples) -> None:
    for sample in samples:
        assert [figures["tokens"] for figures in sample["figures"].values()] == [16, 16]


def check_passes(samples: Samples) -> None:
    assert all(set(s["ms"]) >= set(PASSES) and min(s["ms"].values()) > 0 for s in samples)


def check_overhead(samples: Samples) -> None:
    """The stages add up to the time outside passes, which is shorter than the round."""
    for sample in samples:
        assert set(sample["rounds"]) == set(overhead_configs())
        assert {nodes for nodes, *_ in sample["rounds"]["plain"]} == {0.0}
        for _, outside, *stages, round_ms in (one for r in sample["rounds"].values() for one in r):
            assert 0 < outside < round_ms and sum(stages) == pytest.approx(outside, abs=1e-3)


def check_contest(samples: Samples) -> None:
    swept, blocks = ([s for s in samples if s["kind"] == kind] for kind in ("sweep", "block"))
    assert {s["prompt"] for s in swept}.isdisjoint(s["prompt"] for s in blocks)
    for block in blocks:
        assert list(block["figures"]) == [*PRESETS, *THEIRS]
        assert all(f["tokens"] == 2 and f["seconds"] > 0 for f in block["figures"].values())


def check_lengths(samples: Samples) -> None:
    contest, hopeless = samples[1:]
    assert {figures["tokens"] for figures in contest["figures"].values()} == {4}
    assert sum(contest["figures"][PLAIN]["depths"]) == 0
    assert max(contest["figures"]["fixed 1"]["depths"]) == 1
    prompts = load_prompts()
    assert [each["prompt"] for each in hopeless["blocks"]] == [prompts[0].id, prompts[30].id]


def check_pipeline(samples: Samples) -> None:
    serial, across = (samples[0]["figures"][name] for name in ("off", "across"))
    assert serial["tokens"] == across["tokens"] > 8 and serial["digest"] == across["digest"]
    assert serial["hits"] == 0 < across["hits"]


def check_load(samples: Samples) -> None:
    """A closed loop, then an open loop; every text is plain decoding's."""
    assert [sample["loop"] for sample in samples] == ["closed", "open"]
    for figures in (one for sample in samples for one in sample["figures"].values()):
        assert figures["differ"] == 0 and figures["speed"] > 0
        assert 0 < figures["ttft_ms_p50"] <= figures["ttft_ms_p99"]


def check_routing(samples: Samples) -> None:
    own, turning, spliced = (sample for sample in samples if "text" in sample)
    for sample in (own, turning):
        assert {figures["tokens"] for figures in sample["figures"].values()} == {4}
    assert turning["prompt"] == "turning-stories-code" and turning["text"] == "turning"
    assert {figures["tokens"] for figures in spliced["figures"].values()} == {2 * SEGMENT}
    credit = spliced["figures"][CREDIT]
    assert len(credit["searches"]) == 1 and credit["to_oracle"] >= 0
    assert credit["rounds"] < 2 * SEGMENT, "the recorded text is accepted"


def check_tables(samples: Samples) -> None:
    by_part = {name: [s for s in samples if s["part"] == name] for name in
               ("reads", "plans", "passes", "drafts", "rounds")}  # fmt: skip
    assert all(ns > 0 for s in by_part["reads"] for ns in s["figures"].values())
    for one in (one for s in by_part["plans"] for one in s["figures"].values()):
        assert {name for names in one["tables"] for name in names} == {"last token", "domain"}
        assert one["ns"] > 0 and one["predicted"] > 0
    plain, both = ([run["token_ids"] for run in s["runs"]] for s in by_part["passes"])
    assert plain == both and {len(ids) for ids in plain} == {8}
    (drafts,) = (s["figures"]["table"] for s in by_part["drafts"])
    assert drafts["contexts"] <= drafts["looked"] <= drafts["in_turn"] and drafts["us"] > 0
    for sample in by_part["rounds"]:
        looking = {name: one["looking"] for name, one in sample["figures"].items()}
        assert looking[BEST] == 0 < looking[TABLE_TOO] < 1


@pytest.mark.parametrize("count", [1, 7, 14, 60])
def test_load_requests_have_every_prompt(make_context: Any, count: int) -> None:
    requests = load_requests(make_context(prompts=count), LOAD_PLAIN, count, first=3)
    assert len({request.prompt for request in requests}) == count


def test_the_chart_of_load_has_every_percentile(tmp_path: Path) -> None:
    values = {
        name: {"speed": 1.0, "differ": 0}
        | {
            f"{m}_p{p}": p + 1000 * (m == "ttft_ms")
            for m in ("ttft_ms", "tpot_ms")
            for p in PERCENTILES
        }
        for name in LOADS
    }
    samples: list[dict[str, Any]] = [
        {"loop": "open", "rate": str(rate), "repeat": repeat, "figures": values}
        for rate in (0.25, 0.5)
        for repeat in (0, 1)
    ]
    page = chart("\n".join(load_tables(Results(tmp_path / "r.json", {}, samples))))
    for name, base, digits in (("first token", 1000, 0), ("per token", 0, 1)):
        for share in PERCENTILES:
            assert f"<th>{name}, p{share}, ms</th>" in page
            assert f'"text":"{name}, p{share}, ms"' in page, "a panel"
            assert f"<td>{base + share:.1f} ({base + share:.1f} to" in page
        cell = " / ".join(f"{base + share:.{digits}f}" for share in PERCENTILES)
        assert page.count(f"<td>{cell}</td>") == 2 * len(LOADS), "all percentiles in one cell"
    assert page.index("<td>plain at 0.25</td>") < page.index("<td>plain at 0.5</td>")
    assert page.index("<td>plain at 0.5</td>") < page.index("<td>best, shared at 0.25</td>")


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_every_ratio_of_load_has_its_interval_over_repeats(tmp_path: Path, loop: str) -> None:
    """In the second repeat the machine is half as fast, which changes no ratio within a block."""
    samples = [
        {
            "loop": loop,
            "rate" if loop == "open" else "clients": "0.5",
            "repeat": repeat,
            "figures": {
                name: {"speed": 100 * gain / slow, "differ": 0}
                | {
                    f"{m}_p{p}": p * slow / gain
                    for m in ("ttft_ms", "tpot_ms")
                    for p in PERCENTILES
                }
                for name, gain in (("plain", 1.0), ("best, shared", best))
            },
        }
        for repeat, (slow, best) in enumerate(((1.0, 1.25), (2.0, 2.0), (1.0, 1.6)))
    ]
    throughput, *_, latency, _ = load_tables(Results(tmp_path / "r.json", {}, samples))
    assert f"Total tokens per second, {loop} loop" in throughput
    assert "| 125 (100 to 160), 1.60x (1.25 to 2.00) |" in throughput
    assert f"Latency, {loop} loop" in latency
    of_plain, of_best = [line for line in latency.splitlines() if " at 0.5 " in line]
    assert of_plain.count(" to ") == 6 and "x" not in of_plain
    assert of_best.count("0.62x (0.50 to 0.80) |") == 6


def test_turning_prompts_end_in_another_domain() -> None:
    turning, known = load_prompts(TURNING), {one.domain for one in load_prompts()}
    pairs = [one.id.split("-")[1:] for one in turning]
    assert len({*map(tuple, pairs)}) == len(turning) == 8
    for prompt, (begin, end) in zip(turning, pairs, strict=True):
        assert begin != end == prompt.domain and {begin, end} == {begin, end} & known
    assert {begin for begin, _ in pairs} == {end for _, end in pairs} == known
    parts = [part for one in turning for part in one.text.split("\n\n")[:1]]
    assert len({*parts}) == 8, "no two prompts begin with the same paragraph"


def case(
    suite: Any, count: int, check: Callable[[Samples], Any], *words: str, **changes: Any
) -> Any:
    nightly = suite.name in ("acceptance", "length", "load", "pipeline", "routing")
    marks = [pytest.mark.nightly] if nightly else []
    return pytest.param(suite, changes, count, check, words, id=suite.name, marks=marks)


PERCENTILES = (50, 95, 99)
LOADS = ("plain", "best, shared", "cosine, shared", "cosine, cosine")
COMPARED = ("coupled / plain top-k, union of 5", "union of 5 / best single SSM")
CASES = (
    case(
        BatchSizes(sizes=(1, 2), presets=("autoregressive", "specinfer")),
        *(4, check_batch, "| autoregressive |", "2 at a time"),
    ),
    case(Passes(counts=(1, 3)), 4, check_passes, "Medians of 2 repeats", "| 3 tokens |", repeats=2),
    case(Overhead(families=("bundled",)), 2, check_overhead, "| a round |", prompts=1),
    case(
        CpuBundled(temperatures=(0.8,), variants=VARIANTS),
        *(2 + 2, check_contest, "1.00x (1.00 to 1.00)"),
        *(f"| {name} |" for name in (*PRESETS, *THEIRS)),
        tokens=2,
    ),
    case(
        Load(clients=(3,), rates=(1.0,), contestants=LOADS),
        *(
            2,
            check_load,
            "| cosine, cosine |",
            "Latency, open loop",
            "`cosine, shared` against plain, the worst load",
            "`best, shared` against `best, each`, 8 clients",
            "plain's p99 per token over `best, shared`'s, the worst rate below capacity",
        ),
        tokens=4,
        prompts=2,
    ),
    case(
        Routing(orders=(("stories", "code"),)),
        *(
            3 + 2,
            check_routing,
            "| credit, 2 |",
            "other words",
            "Spliced texts",
            "prompts that change their domain",
            "How soon a good SSM drafts: Spliced texts",
            "turning: `credit, 2`: a good SSM found within 24 tokens",
            "spliced: `credit` with 2 against all, all tokens over all passes",
            "spliced: regret of `credit, 2` to the oracle",
            "own: `credit, 2`: the best fixed SSM drafts by token 16",
        ),
        tokens=4,
        prompts=1,
    ),
    case(
        Fusion(contestants=("vote_tree", "fused by credit, all")),
        *(2, len, "Fusion at 8 nodes, T = 0.8", "all tokens over all passes"),
        tokens=4,
        prompts=1,
    ),
    case(
        Tables(
            reads=500,
            kilobytes=(16, 65_536),
            memory=(1,),
            features=(2,),
            vocabularies=(64,),
            families=("bundled",),
            temperatures=(0.0,),
            contestants=(NO_DRAFTERS, BOTH),
        ),
        *(2 + 1 + 2 + 1 + 2, check_tables, NO_DIFFERENCE, "within 1 MB", "| in turn |"),
        *("of 2 texts loop", "tokens per pass | at least 2.8 |", "joined row, accesses a token"),
    ),
    case(
        Acceptance(parts=("lookup",)),
        *(2 * 5, len, "suffix + table, 16 nodes", "SSMs + suffix + table, 60 nodes"),
        tokens=5,
    ),
    case(Acceptance(parts=("same",)), 5 * (len(SSMS) + 1), len, *COMPARED, tokens=5),
    case(
        Length(temperatures=(0.0,), hopeless_prompts=2),
        *(3, check_lengths, "goodput / trend", *(f"| {name} |" for name in (*FIXED, *POLICIES))),
        tokens=4,
    ),
    case(
        Pipeline(only=tuple(ACROSS)),
        *(2, check_pipeline, "| across |", "2 of 2", "across: gain / bound"),
        tokens=4,
        repeats=2,
    ),
)


@pytest.fixture
def few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open loops serve two requests at once; segments are short; two prompts have other
    wordings."""
    monkeypatch.setattr("bench.suites.load.MAX_CONCURRENT", 2)
    monkeypatch.setattr("bench.suites.routing.SEGMENT", SEGMENT)
    reworded, lines = tmp_path / "reworded.jsonl", REWORDED.read_text("utf-8").splitlines()
    reworded.write_text("\n".join(lines[:2]), "utf-8")
    monkeypatch.setattr("bench.suites.routing.REWORDED", reworded)


@pytest.fixture
def modules_of_suite(suite: Any, request: pytest.FixtureRequest) -> None:
    """Loads transformers' modules before the suites that run them."""
    if suite.name in ("cpu-bundled", "passes"):
        request.getfixturevalue("modules")


@pytest.mark.usefixtures("modules_of_suite", "few_repetitions", "few_requests")
@pytest.mark.parametrize(("suite", "changes", "count", "check", "words"), CASES)
def test_a_suite_measures_continues_and_reports(
    make_context: Any,
    suite: Any,
    changes: dict[str, Any],
    count: int,
    check: Callable[[Samples], Any],
    words: tuple[str, ...],
) -> None:
    def interrupt(message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite.measure(make_context(interrupt, **changes))
    context = make_context(**changes)
    first = json.dumps(context.results.samples)
    assert context.results.found == 1
    suite.measure(context)
    assert json.dumps(context.results.samples[:1]) == first
    suite.measure(context)
    assert len(context.results.samples) == count, "existing samples are not measured again"
    check(context.results.samples)
    report = suite.report(context)
    assert report.failures == () and all(word in "".join(report.tables) for word in words)


class TestCpuBundled:
    @pytest.mark.parametrize(
        ("sweeps", "best"),
        [
            ([{"3": 1.0, "5": 2.0}, {"3": 4.0, "5": 1.0}], "5"),  # all tokens over all seconds
            ([{"3": 0.1, "5": 1.0}, {"5": 1.0}], "5"),  # 3 is not in every sweep
            ([{}, {"5": 1.0}], "5"),  # no LOOKUP in the first sweep
            ([{}], ""),
        ],
    )
    def test_the_fastest_variant_of_the_sweep_competes(
        self, make_context: Any, sweeps: list[dict[str, float]], best: str
    ) -> None:
        results = make_context().results
        key = {"kind": "sweep", "dtype": "float32", "temperature": 0.0}
        for seconds in sweeps:
            entries = {f"{LOOKUP} {n}": {"tokens": 4, "seconds": s} for n, s in seconds.items()}
            other = {f"{ASSISTED} x": {"tokens": 4, "seconds": 0.1}}
            results.add({**key, "figures": {**entries, **other}})
        assert best_variant(results, "float32", 0.0, LOOKUP) == (best and f"{LOOKUP} {best}")
        assert best_variant(results, "float32", 0.0, ASSISTED) == f"{ASSISTED} x"
        assert best_variant(results, "float32", 0.8, LOOKUP) == ""

    def test_each_drafter_keeps_its_fastest_settings(self) -> None:
        variants = [Variant(ASSISTED, n, ssm, "constant") for ssm in "ab" for n in (3, 5, 8)]
        variants += [Variant(LOOKUP, 3), Variant(LOOKUP, 5)]
        seconds = (3.0, 1.0, 2.0, 9.0, 8.0, 7.0, 0.2, 0.1)
        figures = {
            str(v): {"tokens": 2, "seconds": s} for v, s in zip(variants, seconds, strict=True)
        }
        kept = fastest_of_each_drafter(variants, figures, 1)
        assert [(v.family, v.ssm, v.count) for v in kept] == [
            (ASSISTED, "a", 5), (ASSISTED, "b", 8), (LOOKUP, "", 5)
        ]  # fmt: skip
        # Without figures of LOOKUP, all settings of LOOKUP are kept.
        partial_figures = {str(variants[0]): {"tokens": 4, "seconds": 0.1}}
        kept = fastest_of_each_drafter([variants[0], *variants[-2:]], partial_figures, 1)
        assert kept == (variants[0], *variants[-2:])

    def test_only_the_kept_settings_run_on_further_sweep_prompts(self, make_context: Any) -> None:
        lookups = (Variant(LOOKUP, 3), Variant(LOOKUP, 5))
        suite = CpuBundled(temperatures=(0.0,), variants=lookups, settings_kept=1)
        context = make_context(prompts=1, tokens=4)
        suite.measure(context)
        first, *others = [set(s["figures"]) for s in context.results.where(kind="sweep")]
        assert first == set(map(str, lookups)) and len(others) == 3
        assert len(set.union(*others)) == 1


def test_without_fusion_by_credit_the_table_has_no_claims(tmp_path: Path) -> None:
    results = Results.open(tmp_path / "fusion.json", {"suite": "fusion"})
    figures = {"vote_tree": {"tokens": 8, "rounds": 4, "seconds": 1.0}}
    results.add({"temperature": 0.0, "prompt": "p", "repeat": 0, "figures": figures})
    (table,) = fusion_tables(results)
    assert "vote_tree" in table and "Claims" not in table
