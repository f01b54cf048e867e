"""The words, runs and questions of the lessons."""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import pytest

from core import Engine
from core.config import Request
from core.events import (
    Combined,
    Event,
    RanksInfo,
    RankTraffic,
    RoundCompleted,
    RunCompleted,
    RunStats,
    Verified,
)
from tests.core.engines import rounds_of
from tests.family import SSMS
from tests.synthetic import synthetic_run
from ui.components import PICTURES as drawn_pictures
from ui.learn.layout import ABOVE, BELOW, coming_words
from ui.learn.lessons import LESSONS, Lesson, judge, lesson_of, missing_reason, request_of
from ui.learn.lessons.answers import is_right
from ui.learn.lessons.choosing import LENGTH
from ui.learn.lessons.lecture import Lecture
from ui.learn.lessons.lesson import Setup
from ui.learn.lessons.measured import (
    TIMES,
    Evidence,
    Measured,
    compare_repeats,
    measured_row,
    runs_table_value,
    time_words,
    times,
)
from ui.learn.lessons.sharing import SHARED, SHARING, explain_left_out, nothing_drafted
from ui.learn.lessons.time import PIPELINE
from ui.learn.parts import dock_of, lesson_value
from ui.run.values import PICTURES
from ui.run.view import reduce_all
from ui.shared.board import DOCK
from ui.words.glossary import GLOSSARY

KEYS = [lesson.key for lesson in LESSONS]
HALVES = RanksInfo("tp", (1, 1))

EXPLAINED = {
    2: ("SSM", "LLM", "draft", "round", "accepted", "bonus"),
    3: ("tree", "node", "branch", "width"),
    4: ("vote",),
    5: ("temperature", "seed", "rejected"),
    6: ("speculation length", "goodput"),
    7: ("pipeline", "hit", "miss"),
    8: ("speculation(?! length)",),
    9: ("routing", "regret"),
    10: ("scheduler", "queue"),
    11: ("layer", "streamed"),
    12: ("wire", "round trip"),
    13: ("rank", "exchange"),
}
TERMS = {term: number for number, terms in EXPLAINED.items() for term in terms}
JARGON = (
    "logit|kv|prefill|argmax|throughput|latency|autoregressive|drafter|expansion|tensor|softmax"
    "|inference|batch|parallel|decoder|policy|cache|sampling|distribution|baseline|greedy"
)


def words(lesson: Lesson) -> str:
    question = lesson.question
    texts = [lesson.title, *lesson.text, lesson.look, lesson.attempt.words, lesson.attempt.button]
    return re.sub("“[^”]*”", "", " ".join([*texts, question.words, question.where, question.needs]))


def setups(lesson: Lesson) -> list[Setup]:
    return [*lesson.example, *([lesson.attempt.setup] if lesson.attempt.setup else [])]


@pytest.mark.parametrize("lesson", LESSONS, ids=KEYS)
def test_a_lesson_and_its_sentences_are_short(lesson: Lesson) -> None:
    text = " ".join(lesson.text)
    assert 90 <= len(text.split()) <= 160
    assert len(lesson.look.split()) <= 50 and len(lesson.attempt.words.split()) <= 40
    sentences = re.split(r"(?<=[.?:])\s", " ".join([text, lesson.look, lesson.attempt.words]))
    assert max(len(one.split()) for one in sentences) <= 32
    assert lesson.question.words.rstrip(").").split("(")[0].strip().endswith("?")


@pytest.mark.parametrize("number", range(1, len(LESSONS) + 1))
def test_no_technical_word_is_used_before_it_is_explained(number: int) -> None:
    text = words(lesson_of(number))
    early = [
        term
        for term, explained in TERMS.items()
        if number < explained and re.search(rf"\b{term}(e?s|ed)?\b", text, re.IGNORECASE)
    ]
    assert not early
    assert not re.findall(rf"\b(?:{JARGON})s?\b", text, re.IGNORECASE)


def test_every_word_is_explained_in_its_lesson() -> None:
    for term, number in TERMS.items():
        term = term.split("(")[0]
        assert term.lower() in " ".join(lesson_of(number).text).lower(), term
    for lesson in LESSONS:
        for one in lesson.words:
            word = one.word.removesuffix(" of an SSM").lower()
            assert word in " ".join((*lesson.text, lesson.title)).lower(), one.word


@pytest.mark.parametrize("lesson", LESSONS, ids=KEYS)
def test_a_lesson_states_no_result(lesson: Lesson) -> None:
    assert not re.findall(
        r"\d[\d.]*\s*(?:ms|milliseconds|per cent|%|times faster|×)", words(lesson)
    )


def test_lessons_name_pictures_and_columns_that_exist() -> None:
    assert len(LESSONS) == 13 and len(set(KEYS)) == 13
    for lesson in LESSONS:
        assert set(lesson.pictures) <= {*PICTURES, "requests"} and "strip" in lesson.pictures
        assert set(lesson.columns) <= set(GLOSSARY)
        assert lesson.question.point in (*lesson.pictures, "rows")
        labels = [setup.label for setup in setups(lesson)]
        assert len(set(labels)) == len(labels)
    assert [lesson_of(n).key for n in (None, 0, -3, 1, 13, 99)] == [
        KEYS[i] for i in (0, 0, 0, 0, 12, 12)
    ]


def test_lessons_call_things_as_the_page_does() -> None:
    """The page shows the names of tabs, not the titles of pictures."""
    titles = {picture.label for picture in drawn_pictures}
    for lesson in LESSONS:
        named = re.findall("“([^”]*)”", f"{lesson.look} {lesson.question.where}")
        assert not titles.intersection(named), lesson.key
        assert len(lesson.short) <= 14 and lesson.title.startswith(lesson.title[0].upper())


def test_before_its_run_a_lesson_says_what_will_be_seen() -> None:
    for lesson in LESSONS:
        notice = coming_words(lesson)
        assert notice.startswith("Press “Run the example”: here you will see the ")
        pictures = {**ABOVE, **BELOW}
        assert [name for name in lesson.pictures if pictures[name] not in notice] == []
        tab = dock_of(lesson)
        assert (f" Below, {tab.capitalize()} shows " in notice) == bool(tab), notice


@pytest.mark.parametrize("lesson", LESSONS, ids=KEYS)
def test_the_dock_opens_at_the_lessons_picture(lesson: Lesson) -> None:
    value = lesson_value(LESSONS.index(lesson) + 1, {})
    above = {"figures", "strip", "tree"}
    shown = dict(DOCK).get(value["dock"], ())
    inside = {one.name for one in shown} | ({"requests"} if value["dock"] == "requests" else set())
    assert {*lesson.pictures} <= above | inside
    assert lesson.question.point in above | inside | {"rows"}


@pytest.mark.parametrize("loaded", [("a", "b", "c"), ("org/one",), SSMS], ids=len)
def test_every_run_is_valid_whatever_is_loaded(loaded: tuple[str, ...]) -> None:
    for lesson in LESSONS:
        if missing_reason(lesson, loaded, HALVES):
            continue
        for setup in setups(lesson):
            request = request_of(setup, loaded)
            assert set(request.speculation.drafters) <= {*loaded, "ngram"}
            assert request == Request.from_plain(request.to_plain())
            assert request.sampling.seed is not None, "the same text for everybody"


def test_the_ssm_of_the_text_drafts_where_there_is_one_and_too_few_are_reported() -> None:
    (setup,) = LESSONS[1].example
    assert request_of(setup, SSMS).speculation.drafters == ("ssm-dialogue",)
    assert request_of(setup, ("x", "y")).speculation.drafters == ("x",)
    vote = next(lesson for lesson in LESSONS if lesson.key == "vote")
    assert "needs 2 small models (SSMs), and only one is loaded" in missing_reason(vote, ("one",))
    assert "needs a small model (SSM), and none is loaded" in missing_reason(LESSONS[0], ())
    assert not missing_reason(vote, ("one", "two"))
    assert [lesson.key for lesson in LESSONS if missing_reason(lesson, ("one",))] == [
        "vote",
        "routing",
        "halves",
    ]
    assert "python app.py --llm-ranks tp=2" in missing_reason(LESSONS[-1], ("one",))
    assert not missing_reason(LESSONS[-1], ("one",), HALVES)
    # The lesson describes layers that are each divided into two halves.
    for division in (RanksInfo("pp", (1, 1)), RanksInfo("tp", (1, 1, 1, 1))):
        assert "python app.py --llm-ranks tp=2" in missing_reason(LESSONS[-1], ("one",), division)


def test_the_lesson_that_streams_layers_is_refused_where_they_cannot_be() -> None:
    refused = [one for one in LESSONS if missing_reason(one, SSMS, HALVES, can_stream=False)]
    assert [lesson.key for lesson in refused] == ["fitting"]
    reason = missing_reason(refused[0], SSMS, can_stream=False)
    assert reason.endswith("python app.py, without --offload and --llm-ranks")
    assert not missing_reason(refused[0], SSMS)


Runs = dict[str, list[Event]]
RunsOf = Callable[[str], Runs]


@pytest.fixture(scope="module")
def runs_of(bundled: Engine) -> RunsOf:
    """Cached, since decoding is slow."""
    lessons = dict(zip(KEYS, LESSONS, strict=True))

    @cache
    def decode(key: str) -> Runs:
        lesson = lessons[key]
        return {
            setup.label: with_traffic(lesson, events_of(bundled, setup)) for setup in setups(lesson)
        }

    return decode


@pytest.fixture
def runs(lesson: Lesson, runs_of: RunsOf) -> Runs:
    return runs_of(lesson.key)


def events_of(engine: Engine, setup: Setup) -> list[Event]:
    engine.stream_mbps, engine.wire_ms = setup.stream_mbps, setup.wire_ms
    try:
        return list(engine.generate(request_of(setup, engine.models.drafter_names)))
    finally:
        engine.stream_mbps = engine.wire_ms = 0


def with_traffic(lesson: Lesson, events: list[Event]) -> list[Event]:
    exchanged = tuple(RankTraffic(rank, 33, 40_960, 9.5) for rank in range(lesson.ranks))
    return [
        replace(event, traffic=exchanged)
        if lesson.ranks > 1 and isinstance(event, RoundCompleted)
        else event
        for event in events
    ]


def evidence_of(runs: Runs, latest: str = "") -> Evidence:
    lecture = Lecture()
    for label in sorted(runs, key=lambda label: label == latest):
        lecture.keep("any", measured_row(label, reduce_all(runs[label])))
    return lecture.evidence("any")


def left_out(events: list[Event]) -> float:
    """The mean number of drafted tokens that the scheduler left out of a round."""
    parts = [line.scheduled for line in rounds_of(events)]
    return sum(part.num_drafted - part.num_granted for part in parts if part) / len(parts)


def median_pass(events: list[Event]) -> float:
    spans = [
        span for line in rounds_of(events)[1:] for span in line.spans if span.name == "forward"
    ]
    return statistics.median(span.ms for span in spans)


def mean_round(events: list[Event]) -> float:
    prefill_end = max(span.end_ms for span in rounds_of(events)[0].spans if span.name == "prefill")
    return (events[-1].at_ms - prefill_end) / len(rounds_of(events))


def heaviest(events: list[Event]) -> str:
    weights = rounds_of(events)[-1].weights
    return max(weights, key=lambda name: weights[name])


ANSWERS: dict[str, Callable[[list[list[Event]]], Any]] = {
    "memory": lambda runs: median_pass(runs[1]) / median_pass(runs[0]),
    "ssm": lambda runs: max(line.num_accepted for line in rounds_of(runs[0])),
    "tree": lambda runs: len(rounds_of(runs[1])) - len(rounds_of(runs[0])),
    "vote": lambda runs: heaviest(runs[0]),
    "acceptance": lambda runs: sum(
        len(li.token_ids) - li.num_accepted for li in rounds_of(runs[0])
    ),
    "length": lambda runs: (
        100 * statistics.mean(line.num_accepted >= 3 for line in rounds_of(runs[0]))
    ),
    "pipeline": lambda runs: sum(one.hit for line in rounds_of(runs[1]) for one in line.ahead),
    "sharing": lambda runs: left_out(runs[1]),
    "fitting": lambda runs: median_pass(runs[2]) / median_pass(runs[1]),
    "wire": lambda runs: mean_round(runs[1]) - mean_round(runs[0]),
    "halves": lambda runs: sum(line.traffic[1].collectives for line in rounds_of(runs[1])),
    "loses": lambda runs: mean_round(runs[1]) / mean_round(runs[0]),
    "routing": lambda runs: max(rounds_of(runs[0])[-1].routing, key=lambda one: one.score).drafter,
}


@pytest.mark.parametrize("lesson", LESSONS, ids=KEYS)
def test_the_question_is_answered_by_the_runs(lesson: Lesson, runs: Runs) -> None:
    assert all(isinstance(events[-1], RunCompleted) for events in runs.values())
    evidence = evidence_of(runs, lesson.example[-1].label)
    answer = ANSWERS[lesson.key]([runs[setup.label] for setup in setups(lesson)])
    right, line = judge(lesson.question, evidence, answer)
    assert right, (answer, lesson.question.answer(evidence), line)
    assert line.kind == "good" and line.text.startswith("Right. ") and len(line.text) > 20
    wrong_answer = "nobody" if isinstance(answer, str) else answer * 1.5 + 2
    wrong, hint = judge(lesson.question, evidence, wrong_answer)
    assert not wrong and lesson.question.where in hint.text


@pytest.mark.parametrize("lesson", LESSONS, ids=KEYS)
def test_without_its_run_a_question_says_what_to_do_first(lesson: Lesson) -> None:
    right, line = judge(lesson.question, Evidence(MappingProxyType({})), 1.0)
    assert not right and line.text == lesson.question.needs


def test_runs_are_as_their_lessons_describe(runs_of: RunsOf) -> None:
    rows = evidence_of(runs_of("memory")).rows
    assert [row.pass_tokens for row in rows.values()] == [1, 8, 16]
    assert list(rows) == ["1 token in a pass", "8 tokens in a pass", "16 tokens in a pass"]
    texts = [reduce_all(events).token_ids for events in runs_of("tree").values()]
    assert texts[0] == texts[1]
    plain, tree = (len(rounds_of(runs)) for runs in list(runs_of("fitting").values())[1:])
    assert plain > 3 * tree, "each saved pass saves a transfer of the LLM"


@pytest.mark.parametrize("lesson", LESSONS, ids=KEYS)
def test_an_example_takes_two_seconds_at_most(lesson: Lesson, runs: Runs) -> None:
    """At 20 ms a round, a hundred rounds take two seconds."""
    assert sum(len(rounds_of(runs[setup.label])) for setup in lesson.example) <= 100


def test_the_task_of_lesson_tree_can_be_done(runs_of: RunsOf) -> None:
    """In some round the accepted branch does not begin with the root's first child."""
    events = [one for one in runs_of("tree")["width 3"] if isinstance(one, (Combined, Verified))]
    pairs = list(zip(events[::2], events[1::2], strict=True))
    first_children = [
        min(node for node, parent in enumerate(tree.parents) if parent == -1) for tree, _ in pairs
    ]
    assert any(
        verdict.path and verdict.path[0] != first
        for (_, verdict), first in zip(pairs, first_children, strict=True)
    )


def test_a_shared_budget_without_a_draft_is_reported() -> None:
    run = measured_row(SHARED, reduce_all(synthetic_run(4)))
    for drafted, is_reported in ((0.0, True), (6.0, False)):
        row = replace(run, num_drafted=drafted, num_verified=0.0)
        evidence = Evidence(MappingProxyType({SHARED: row}))
        assert ("nothing was drafted" in nothing_drafted(evidence)) == is_reported
        assert ("Nothing was drafted" in explain_left_out(evidence)) == is_reported
    assert SHARING.outcome is nothing_drafted


def test_only_unchecked_tokens_have_left_their_room_to_others() -> None:
    run = measured_row(SHARED, reduce_all(synthetic_run(4)))
    for verified, is_told in ((7.5, True), (12.0, False)):
        row = replace(run, num_drafted=12.0, num_verified=verified)
        text = explain_left_out(Evidence(MappingProxyType({SHARED: row})))
        assert text.startswith(f"In a round {verified:.1f} of 12.0 drafted tokens were checked.")
        assert ("The room of the others" in text) == is_told


@pytest.mark.parametrize(
    ("rounds_ms", "words", "explanation"),
    [
        ((8.0, 9.0, 9.5), "Here it loses in each of 3 repeats: ", "was slower."),
        ((1.1, 1.0, 1.2), "Here it wins in each of 3 repeats, ", "was faster."),
        ((1.1, 9.0, 1.2), "Here no difference is shown: ", "no difference is shown."),
        ((9.0,), "", "tokens (one sample) to be as fast as the LLM alone, and wrote"),
    ],
)
def test_lesson_loses_reports_also_that_drafting_wins(
    rounds_ms: tuple[float, ...], words: str, explanation: str
) -> None:
    loses = next(lesson for lesson in LESSONS if lesson.key == "loses")
    plain, long = (setup.label for setup in loses.example)
    base = row_with_repeats(plain, "round_ms", [1.0] * len(rounds_ms))
    assert base.stats.num_new_tokens / base.stats.num_rounds > 1.2
    drafting = row_with_repeats(long, "round_ms", rounds_ms)
    evidence = Evidence(MappingProxyType({plain: base, long: drafting}))
    outcome, explained = loses.outcome(evidence), loses.question.explain(evidence)
    assert outcome.startswith(words) and bool(outcome) == bool(words)
    assert explanation in explained
    median = statistics.median(rounds_ms)
    assert loses.question.answer(evidence) == pytest.approx(median)
    assert explained.startswith(f"A round needed {median:.1f} tokens (")
    assert f"{median:.1f}" not in outcome, "that is the answer to the question below"
    assert not loses.outcome(Evidence(MappingProxyType({plain: base})))


def test_a_lesson_that_compares_times_of_runs_measures_them_in_turns() -> None:
    for lesson in LESSONS:
        assert lesson.timed or not {"round_ms", "tokens_per_second"} & {*lesson.columns}, lesson.key
        table = runs_table_value(Evidence({}), lesson.columns, timed=lesson.timed)
        note = "medians of repeats" if lesson.timed else "medians of a run's passes"
        has_times = {*TIMES} & {*lesson.columns}
        assert table["note"] == (f"times: {note}" if has_times else ""), lesson.key
        assert not lesson.timed or table["timed"]


def test_a_time_is_the_median_of_repeats_with_their_range() -> None:
    one = row_with_repeats("one", "round_ms", (2.0, 3.0, 2.5))
    two = row_with_repeats("two", "round_ms", (4.0, 9.0, 5.5))
    evidence = Evidence(MappingProxyType({"one": one, "two": two}))
    columns = ("num_rounds", "round_ms")
    table = runs_table_value(evidence, columns, timed=True)
    assert table["note"] == "times: medians of 3 repeats" and table["timed"] == {"1": True}
    first = table["rows"]["0"]
    assert first["cells"]["1"] == "2.50" and first["ranges"] == {"1": "2.00 to 3.00"}
    assert time_words(one, "round_ms") == "2.5 ms (2.0 to 3.0 in 3 repeats)"
    ratio = compare_repeats((one, two), "round_ms", operator.truediv)
    assert (ratio.value, ratio.low, ratio.high, ratio.groups) == (2.2, 2.0, 3.0, 3)
    measuring = runs_table_value(evidence, columns, timed=True, measuring=True)["rows"]["0"]
    assert measuring["cells"] == {"0": first["cells"]["0"], "1": "…"} and not measuring["ranges"]
    single = Evidence(MappingProxyType({"one": replace(one, repeats=())}))
    table = runs_table_value(single, columns, timed=True)
    assert table["note"] == "times: one sample where no range is below"
    assert not table["rows"]["0"]["ranges"] and len(times(single.rows["one"], "round_ms")) == 1


def test_a_mechanism_that_was_slower_in_every_repeat_is_explained() -> None:
    for lesson, column, faster, slower in (
        (PIPELINE, "round_ms", (9.0, 9.5), (9.1, 9.6)),
        (LENGTH, "tokens_per_second", (50.0, 51.0), (49.0, 50.0)),
    ):
        one, other = (setup.label for setup in setups(lesson))
        for first, second, explained in (
            (faster, slower, True),
            (slower, faster, False),
            (faster, slower[::-1], False),
            (faster[:1], slower[:1], False),
        ):
            rows = {
                one: row_with_repeats(one, column, first),
                other: row_with_repeats(other, column, second),
            }
            assert bool(lesson.outcome(Evidence(MappingProxyType(rows)))) == explained
        assert not lesson.outcome(Evidence(MappingProxyType({one: row(label=one)})))


def row_with_repeats(label: str, column: str, values: Sequence[float]) -> Measured:
    repeats = tuple(
        row(label=label, stats=stats_at(value))
        if column == "tokens_per_second"
        else row(label=label, **{column: value})
        for value in values
    )
    return replace(repeats[0], repeats=repeats)


def stats_at(tokens_per_second: float) -> RunStats:
    return replace(row().stats, tokens_per_second=tokens_per_second)


def row(**changes: Any) -> Measured:
    return replace(measured_row("x", reduce_all(synthetic_run(8))), **changes)


def evidence_of_passes(*passes_ms: float) -> Evidence:
    pairs = zip((setup.label for setup in LESSONS[0].example), passes_ms, strict=True)
    return Evidence(MappingProxyType({label: row(label=label, pass_ms=ms) for label, ms in pairs}))


def test_a_number_is_right_if_it_is_as_close_as_the_table_can_be_read() -> None:
    ratio, count = LESSONS[0].question, LESSONS[1].question
    assert is_right(ratio, 1.34, 1.3) and is_right(ratio, 1.34, 1.4) and is_right(ratio, 1.34, 1.25)
    assert not is_right(ratio, 1.34, 1.5) and not is_right(ratio, 1.34, 8)
    assert is_right(count, 3.0, 3) and not is_right(count, 3.0, 3.2)
    for answer in (float("nan"), float("inf"), "three"):
        assert not is_right(ratio, 1.34, answer)


@pytest.mark.parametrize(
    ("eight", "words"),
    [(0.8, "That cannot be"), (1.3, "is room that guessing can use"), (9.0, "has no room")],
)
def test_the_ratio_of_pass_times_is_explained_or_called_impossible(
    eight: float, words: str
) -> None:
    right, line = judge(LESSONS[0].question, evidence_of_passes(1.0, eight), eight)
    assert right and words in line.text


@pytest.mark.parametrize("one_ms", [0.45, 0.549, 1.04, 23.4])
@pytest.mark.parametrize("factor", [1.049, 2.46, 3.449])
def test_the_ratio_of_the_times_in_the_table_is_a_right_answer(
    one_ms: float, factor: float
) -> None:
    """The table rounds the times."""
    evidence = evidence_of_passes(one_ms, one_ms * factor)
    shown = runs_table_value(evidence, ("pass_ms",))["rows"].values()
    first, second = (float(shown_row["cells"]["0"]) for shown_row in shown)
    right, line = judge(LESSONS[0].question, evidence, float(f"{second / first:.1f}"))
    assert right, line.text


def test_an_empty_answer_is_not_called_wrong() -> None:
    right, line = judge(LESSONS[1].question, Evidence(MappingProxyType({"x": row()}), "x"), None)
    assert not right and line.kind == "info" and line.text.startswith("Write a number first.")


def test_exactly_one_answer_about_weights_is_right_also_if_they_are_almost_equal() -> None:
    question = LESSONS[3].question
    for a, right in ((1.002, question.besides[0]), (1.2, "a")):
        weights = {"a": a, "b": 1.0, "c": 0.9}
        evidence = Evidence(MappingProxyType({"x": row(weights=weights)}), "x")
        answers = [*weights, *question.besides]
        assert [one for one in answers if judge(question, evidence, one)[0]] == [right]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_ssm_of_the_texts_domain_gains_weight(bundled: Engine, temperature: float) -> None:
    vote = lesson_of(4)
    for setup, best in zip(setups(vote), ("ssm-dialogue", "ssm-code"), strict=True):
        request = request_of(replace(setup, temperature=temperature), SSMS)
        weights = rounds_of(list(bundled.generate(request)))[-1].weights
        others = [weight for name, weight in weights.items() if name != best]
        assert weights[best] > 2 * max(others), (setup.label, weights)


def test_routing_comes_to_choose_the_ssm_of_the_texts_domain(bundled: Engine) -> None:
    lesson = next(one for one in LESSONS if one.key == "routing")
    for setup, changes in zip(setups(lesson), (False, True), strict=True):
        events = list(bundled.generate(request_of(setup, SSMS)))
        routed = [
            [one.drafter for one in line.routing if one.role == "routed"]
            for line in rounds_of(events)
        ]
        assert routed[-1] == ["ssm-dialogue"] and (routed[0] != routed[-1]) == changes
        evidence = evidence_of({setup.label: events}, setup.label)
        assert lesson.question.answer(evidence) == "ssm-dialogue"


@pytest.mark.parametrize("absent", [("math", "stories"), ("code", "docs"), ("dialogue", "math")])
def test_routings_choice_changes_with_three_ssms_too(
    bundled: Engine, absent: tuple[str, ...]
) -> None:
    """The lesson requires three SSMs; the SSM of dialogues may be absent."""
    lesson = next(one for one in LESSONS if one.key == "routing")
    remaining = {
        name: ssm for name, ssm in bundled.models.ssms.items() if name[len("ssm-") :] not in absent
    }
    assert len(remaining) == lesson.ssms == 3 and lesson.attempt.setup is not None
    engine = Engine(replace(bundled.models, ssms=remaining))
    request = request_of(lesson.attempt.setup, tuple(remaining))
    routed = [
        {one.drafter for one in line.routing if one.role == "routed"}
        for line in rounds_of(list(engine.generate(request)))
    ]
    assert routed[0] != routed[-1]


def test_a_run_of_the_same_name_takes_the_place_of_the_older_one() -> None:
    lecture = Lecture()
    for label, run_id in (("a", "1"), ("b", "2"), ("a", "3")):
        lecture.keep("ssm", row(label=label, run_id=run_id))
    evidence = lecture.evidence("ssm")
    assert [(one.label, one.run_id) for one in evidence.rows.values()] == [("a", "3"), ("b", "2")]
    assert evidence.last is not None and evidence.last.run_id == "3"
    assert lecture.evidence("tree").last is None


def test_the_table_shows_what_was_measured() -> None:
    events = synthetic_run(8)
    view = reduce_all(events)
    evidence = Evidence(MappingProxyType({"x": measured_row("x", view)}), "x")
    shown = runs_table_value(evidence, ("num_new_tokens", "num_rounds", "pass_ms"))
    assert [one["t"] for one in shown["head"].values()] == ["tokens", "LLM passes", "ms / pass"]
    cells = shown["rows"]["0"]["cells"]
    assert cells["0"] == str(len(view.tokens)) and cells["1"] == str(len(rounds_of(events)))
    assert cells["2"] == f"{median_pass(events):.2f}" and shown["rows"]["0"]["latest"] is True
