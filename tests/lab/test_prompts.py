"""Prompts from text, from uploaded files, and from domains of the examples."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.prompts import load_prompts
from core.errors import ConfigError
from lab.examples import domains_of, example_prompts, of_domains
from lab.prompts import (
    MAX_PROMPTS,
    StudyPrompt,
    prompts_from_file,
    prompts_from_text,
    unique_prompts,
)


def test_a_line_is_a_prompt_and_a_line_of_dashes_separates_longer_ones() -> None:
    result = prompts_from_text("Once\n\n  \r\nTwice  \n")
    assert [one.text for one in result] == ["Once", "Twice  "]
    assert [one.id for one in result] == ["1", "2"]
    result = prompts_from_text("def f():\n    x\n\n---\nQ: 1+1\nA:\n --- \n\n")
    assert [one.text for one in result] == ["def f():\n    x", "Q: 1+1\nA:"]


@pytest.mark.parametrize("typed", ["", "\n \n", "---\n---"])
def test_a_text_without_a_prompt_is_refused(typed: str) -> None:
    with pytest.raises(ConfigError, match="at least one prompt"):
        prompts_from_text(typed)


def test_too_many_prompts_are_refused() -> None:
    lines = "\n".join(f"prompt {i}" for i in range(MAX_PROMPTS))
    assert len(prompts_from_text(lines)) == MAX_PROMPTS
    with pytest.raises(ConfigError, match=f"at most {MAX_PROMPTS}"):
        prompts_from_text(lines + "\none more")


def test_a_jsonl_file_has_a_prompt_a_line() -> None:
    lines = [
        {"prompt": "Once", "domain": "stories", "id": "a"},
        {"text": "Twice", "id": "a"},
        {"prompt": "Thrice", "id": 7, "other": [1]},
        {"prompt": "Four", "id": 0, "domain": None},
        {"prompt": "Five", "id": None},
        {"prompt": "Six", "id": ""},
    ]
    content = "\ufeff" + "\n\n".join(json.dumps(line) for line in lines) + "\n"
    result = prompts_from_file("My.JSONL", content.encode())
    assert result == (
        StudyPrompt("a", "Once", "stories"), StudyPrompt("a-2", "Twice"),
        StudyPrompt("7", "Thrice"), StudyPrompt("0", "Four"), StudyPrompt("9", "Five"),
        StudyPrompt("11", "Six"),
    )  # fmt: skip
    assert prompts_from_file("x.txt", b"Once\nTwice")[1].text == "Twice"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"prompt": "fine"}\n{"prompt": ', "line 2 is"),
        ("x.jsonl", b"[1, 2]", "line 1 is"),
        ("x.jsonl", b"null", "line 1 is"),
        ("x.jsonl", b'{"prompt": ""}', "its prompt not empty"),
        ("x.jsonl", b'{"prompt": 3}', "its prompt not empty"),
        ("x.jsonl", b'{"domain": "math"}', "its prompt not empty"),
        ("x.jsonl", b'{"prompt": "x", "id": "' + b"i" * 81 + b'"}', "prompt id is"),
        ("x.jsonl", b'{"prompt": "x", "domain": "' + b"d" * 81 + b'"}', "domain is"),
        ("x.jsonl", b'{"prompt": "x", "domain": "none"}', "domain is 'none'"),
        ("x.jsonl", b'{"prompt": "\\ud800"}', "prompt is"),
        ("x.jsonl", b"[" * 100_000, "line 1 is"),
        ("x.jsonl", b'{"prompt": "x"}\n{"prompt": "\\ud800"}', "line 2: "),
        ("x.jsonl", b"", "at least one prompt"),
        ("x.txt", b"caf\xe9", "byte 3 is not"),
        ("x.txt", b"\xff\xfe\x00", "text in UTF-8"),
        ("x.csv", b"prompt", "a .txt or .jsonl file"),
        ("jsonl", b"{}", "a .txt or .jsonl file"),
    ],
)
def test_a_wrong_file_is_refused_with_the_wrong_line(name: str, content: bytes, message: str):
    with pytest.raises(ConfigError) as caught:
        prompts_from_file(name, content)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500, "the message does not repeat a long file"


@given(st.lists(st.sampled_from(["x", "x-2", "x-3", "y", "x-2-2"]), min_size=1, max_size=12))
def test_ids_are_made_unique_and_the_first_keeps_its_own(ids: list[str]) -> None:
    result = unique_prompts(StudyPrompt(one, "text") for one in ids)
    assert len({one.id for one in result}) == len(ids)
    assert result[0].id == ids[0]


@pytest.mark.parametrize("length", [78, 79, 80])
def test_a_repeated_long_id_is_cut_before_its_number(length: int) -> None:
    line = json.dumps({"prompt": "x", "id": "i" * length})
    result = prompts_from_file("x.jsonl", "\n".join([line] * 10).encode())
    ids = [one.id for one in result]
    assert ids[:2] == ["i" * length, f"{'i' * min(length, 78)}-2"] and ids[9].endswith("i-10")
    assert len({*ids}) == 10 and max(map(len, ids)) <= 80


def test_the_examples_are_the_prompts_of_the_benchmarks() -> None:
    examples, prompts = example_prompts(), load_prompts()
    fields = [[(one.id, one.text, one.domain) for one in each] for each in (examples, prompts)]
    assert fields[0] == fields[1]
    assert domains_of(examples) == ("stories", "dialogue", "math", "code")


def test_the_first_prompts_of_each_chosen_domain() -> None:
    examples = example_prompts()
    result = of_domains(examples, ["code", "stories"], 2)
    assert [one.domain for one in result] == ["stories", "stories", "code", "code"]
    assert result[0] == examples[0]
    for chosen, count in ((["cooking"], 2), ([], 2), (["code"], 0), (["code"], 2.5)):
        with pytest.raises(ConfigError):
            of_domains(examples, chosen, count)  # type: ignore[arg-type]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        example_prompts(tmp_path / "none.jsonl")
