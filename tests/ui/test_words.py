"""Texts, and names of quantities."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import ui
from core.engine.overlap import NO_OTHER_REQUEST
from core.events import Ahead
from tests.source import relative, sources, tree_of
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.synthetic.run import model_infos
from tests.ui.example_run import end_frame, run_events, run_view
from ui.components.pictures import PICTURES, GridLength, GridSpeed
from ui.run.explain import quote
from ui.run.frame import Frame
from ui.run.letters import letter, letters_of, slots_of
from ui.run.pipeline_notes import ALONE
from ui.run.values import figures_value, strip_value
from ui.run.view import reduce_all
from ui.shared.parts import header_value
from ui.words.glossary import GLOSSARY
from ui.words.messages import Line, ordinal, position_sentence, run_lines

UI = Path(ui.__file__).parent


OTHER_WORDS = re.compile(
    r"accepted of drafted|draft tokens accepted|of the draft was accepted|an acceptance rate of",
    re.IGNORECASE,
)


def test_quotes_are_short_and_visible_and_letters_and_ordinals_are_right() -> None:
    assert (
        quote("a\nb\t") == "“a↵b⇥”"
        and quote(" a b ") == "“␣a b ”"
        and quote("\x1b[31m\u202e\x00") == "“·[31m··”"
    )
    for text in HOSTILE_TEXTS:
        assert len(quote(text)) <= 44 and quote(text).isprintable()
    assert [letter(i) for i in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]
    teens = ["11th", "12th", "13th", "21st", "102nd", "111th"]
    assert [ordinal(n) for n in (11, 12, 13, 21, 102, 111)] == teens
    assert [ordinal(n) for n in (1, 2, 3, 4)] == ["1st", "2nd", "3rd", "4th"]


def test_the_position_sentence_and_the_chip_fit_the_frame() -> None:
    view = reduce_all(run_events()[:30])
    in_past = {"view": view, "run_id": "x", "known": 122, "known_rounds": 30}
    for words, chip, frame in (
        ("Press Run", None, Frame()),
        ("Starting.", "", Frame(run_id="x")),
        ("In the queue: 2nd in line.", "queued", Frame(run_id="x", place=2)),
        ("Writing: ", None, Frame(view=view, run_id="x", known=30, at_end=True)),
        (
            "The engine runs on, you are at round 8 of 30",
            "running",
            Frame(**in_past, mode="step"),
        ),
        (
            "Engine finished, you are at round 8 of 30",
            "playing back",
            Frame(**in_past, ended=True, mode="slow"),
        ),
        (
            "The engine runs on, you are at round 8 of 8",
            "running",
            Frame(**(in_past | {"known_rounds": 7}), mode="step"),
        ),
        ("Interrupted: ", "interrupted", Frame(**in_past, ended=True, at_end=True)),
        ("Finished: ", "completed", end_frame(run_view())),
        ("The engine closed", None, Frame(run_id="x", ended=True)),
    ):
        assert position_sentence(frame).startswith(words), (words, position_sentence(frame))
        assert chip is None or figures_value(frame, None)["state"] == chip
    endings = {"failed": "Failed after", "cancelled": "Stopped: ", "cut": "Interrupted: "}
    for end, words in endings.items():
        frame = end_frame(reduce_all(synthetic_run(4, seed=1, end=end)))
        assert position_sentence(frame).startswith(words)
        assert run_lines(frame)[0].kind == ("error" if end == "failed" else "info")


def test_a_run_that_found_no_other_request_says_what_to_do() -> None:
    first, *rest = run_view().rounds
    alone = replace(run_view(), rounds=(replace(first, notes=(NO_OTHER_REQUEST,)), *rest))
    frame = end_frame(alone)
    lines = run_lines(frame)
    assert Line("info", ALONE) in lines and "second tab" in ALONE
    assert not [line for line in lines if line.kind == "warn" or "nobody to draft" in line.text]
    assert strip_value(frame)["notes"] == {}, "nothing happened in that round"
    lost = replace(rest[0], notes=("drafter a failed; the run goes on without it",))
    frame = replace(frame, view=replace(alone, rounds=(alone.rounds[0], lost, *rest[1:])))
    warned = [line.text for line in run_lines(frame) if line.kind == "warn"]
    assert warned == ["Round 2: drafter a failed; the run goes on without it."]
    assert list(strip_value(frame)["notes"]) == ["1"]
    first, second, *rest = run_view().rounds
    ahead = replace(second, ahead=(Ahead("ssm-code", 0, 1.0, True, 4.0, 0.0),))
    view = replace(run_view(), rounds=(replace(first, notes=(NO_OTHER_REQUEST,)), ahead, *rest))
    lines = run_lines(end_frame(view))
    assert not [line for line in lines if "alone" in line.text or line.kind == "warn"]


def test_a_count_of_one_is_singular() -> None:
    view = reduce_all(synthetic_run(1, seed=1))
    one = end_frame(view)
    assert " in 1 round;" in position_sentence(one)
    token = replace(view, stats=replace(view.stats, num_new_tokens=1, num_rounds=2))
    assert "1 token in 2 rounds;" in position_sentence(replace(one, view=token))


# AMONG: words before a figure that allow a plural noun, as in "3 of 8 tokens".
COUNTED = re.compile(
    r" (?:[a-z]+ )?(?:tokens|rounds|passes|nodes|prompts|samples|blocks|texts|words|characters"
    r"|steps|layers)\b(?! / )"
)
AMONG = re.compile(r"\b(?:of|of its|of the|to)\s*$", re.IGNORECASE)


@pytest.mark.usefixtures("trees")
def test_no_figure_that_may_be_one_has_a_plural_noun() -> None:
    found = [
        f"{relative(path)}:{node.lineno}: {words}"
        for path in sources("core", "storage", "lab", "ui", "bench", "zoo")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.JoinedStr)
        for words in always_plural(node)
    ]
    assert not found, "use number_of (core/plurals.py), which writes both forms"


def always_plural(node: ast.JoinedStr) -> Iterator[str]:
    texts = [str(one.value) if isinstance(one, ast.Constant) else "" for one in node.values]
    for before, figure, after in zip(["", *texts], node.values, texts[1:], strict=False):
        if not isinstance(figure, ast.FormattedValue) or figure.format_spec is not None:
            continue
        is_constant = isinstance(figure.value, ast.Name) and figure.value.id.isupper()
        if COUNTED.match(after) and not AMONG.search(before) and not is_constant:
            yield f"{ast.unparse(figure)}{after[:20]}"


def test_a_drafter_without_a_model_has_a_chip_in_a_run_that_it_drafts_in() -> None:
    infos = model_infos()
    ssms = [info.name for info in infos if info.role == "ssm"]
    assert len(header_value(infos)["models"]) == len(infos)
    chips = list(header_value(infos, scores={"ngram": (3, 8), ssms[1]: (0, 5)})["models"].values())
    assert [chip["score"] for chip in chips[1:]] == [
        {"accepted": 0, "proposed": 0},
        {"accepted": 0, "proposed": 5},
        *({"accepted": 0, "proposed": 0} for _ in ssms[2:]),
        {"accepted": 3, "proposed": 8},
    ]
    assert chips[-1]["letter"] == letters_of(slots_of(["ngram"], infos))["ngram"]
    assert len(header_value(infos, scores={"ssm-gone": (3, 8)})["models"]) == len(infos)


def test_the_share_of_the_drafts_depth_has_one_word_on_every_tab() -> None:
    paths = (*UI.rglob("*.py"), *UI.rglob("*.js"))
    sources = {"/".join(path.parts[-2:]): path.read_text(encoding="utf-8") for path in paths}
    assert not [name for name, source in sources.items() if OTHER_WORDS.search(source)]
    scripts = ("assets/figures.js", "assets/compared.js", "assets/prompt_row.js")
    values = ("tune/values.py", "tune/words.py", "report/document.py", "run/temperature.py")
    for name in (*scripts, *values, "sessions/two_runs_tables.py"):
        assert '"draft_acceptance_rate"' in sources[name] and "GLOSSARY" in sources[name], name


# A label is written like "tokens / s".
IN_WORDS = re.compile(
    r"\b(tokens/s\b|(tokens|accepted|drafted|checked|exchanges|nodes verified|ms)"
    r" (a|per) (second|pass|round)\b)",
    re.IGNORECASE,
)
LITERAL = re.compile(r'"([^"\n]*)"|`([^`\n]*)`')
UNIT = "tokens/s"
"""The `unit` in a grid's value: a key that grid_words.js replaces by the quantity's label."""


def labels_of(script: str) -> list[str]:
    found = [one or other for one, other in LITERAL.findall(script)]
    return [label for label in found if label != UNIT and not re.search(r"\.($| )", label)]


def test_labels_write_a_quantity_in_one_form() -> None:
    labels = [
        (path.name, label)
        for path in sorted(UI.rglob("*.js"))
        for label in labels_of(path.read_text(encoding="utf-8"))
    ]
    labels += [(name, quantity.label) for name, quantity in GLOSSARY.items()]
    labels += [(make.name, make.label) for make in (*PICTURES, GridSpeed, GridLength)]
    assert any("tokens / s" in label for _, label in labels)
    wrong = [(name, label) for name, label in labels if IN_WORDS.search(label)]
    assert not wrong, wrong
    assert labels_of('x("Tokens per second")') == ["Tokens per second"], "control"
    assert IN_WORDS.search("Tokens per second"), "control"


# Names that differ from the quantities' labels.
SECOND_NAMES = re.compile(
    r"\bx plain\b|times plain|acceptance rate|^new tokens|rounds a run|of depth|speed up\b"
    r"|time to first|mean (acceptance )?length",
    re.IGNORECASE,
)


def constants_of(source: str) -> list[str]:
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [one.value for one in found if isinstance(one.value, str) and id(one) not in docs]
    return [one for one in texts if not re.search(r"\.($| )|^\w*$", one)]


def is_second_name(label: str) -> bool:
    labels = {one.label.lower() for one in GLOSSARY.values() if not one.label.isalpha()}
    text = label.strip(" ,:").lower()
    return (
        text in labels
        or any(one in text for one in labels if " / " in one)
        or bool(SECOND_NAMES.search(label))
    )


def test_a_quantity_is_named_by_the_glossary_alone() -> None:
    scripts = [(path, labels_of(path.read_text(encoding="utf-8"))) for path in UI.rglob("*.js")]
    modules = [(path, constants_of(path.read_text(encoding="utf-8"))) for path in UI.rglob("*.py")]
    named = [
        (path.name, label)
        for path, labels in (*scripts, *modules)
        for label in labels
        if path.name != "glossary.py" and is_second_name(label)
    ]
    assert not named, named
    for control in ("speed-up", " tokens / pass", "Accepted of depth", "x plain, median in pairs"):
        assert is_second_name(control), control
    assert "y tokens / s" in constants_of('f"{x}y tokens / s"'), "control"


def glossary_names(script: str) -> set[str]:
    single = re.findall(r'\bGLOSSARY(?:\.|\[")(\w+)|\bkey: "\w+", of: "(\w+)"', script)
    taken_apart = re.findall(r"\{([^{}]*)\} = GLOSSARY\b", script)
    parts = [part.split(":")[0].strip() for names in taken_apart for part in names.split(",")]
    return {name for pair in single for name in pair if name}.union(filter(None, parts))


def test_scripts_name_quantities_that_exist() -> None:
    scripts = {path.name: path.read_text(encoding="utf-8") for path in UI.rglob("*.js")}
    found = {name: glossary_names(script) for name, script in scripts.items()}
    missing = {
        name: names - set(GLOSSARY) for name, names in found.items() if names - set(GLOSSARY)
    }
    assert not missing
    assert {"num_rounds", "mean_acceptance_length"} <= found["regret.js"], "control"
    controls = """const { a_b: A, c } = GLOSSARY; GLOSSARY.d + GLOSSARY["e"].x
      { key: "f", of: "g" }"""
    assert glossary_names(controls) == {"a_b", "c", "d", "e", "g"}, "control"
