"""Which texts become documents, and how texts are normalised."""

import json
from pathlib import Path

import pytest

from core.errors import ConfigError
from zoo.corpora import (
    END_OF_TEXT,
    library_corpora,
    prompt_lines,
    python_files,
    read_corpora,
    standard_library,
)
from zoo.text import ascii_punctuation, join_wrapped_lines, long_lines, quotes_any

PROMPT = "Once there was a line of a prompt that is certainly longer than sixty characters."


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "tests" / "lib"
    for name in (
        "one.py", "package/two.py", "package/test_three.py", "testing/eight.py", "note.txt",
        "test/four.py", "package/tests/five.py", "editor/idle_test/deep/six.py",
        "site-packages/other/seven.py",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f'"""The file {name}."""\n', encoding="utf-8")
    return root


def corpora(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_python_files_leave_out_folders_of_tests_and_of_other_packages(library: Path) -> None:
    kept = [path.relative_to(library).as_posix() for path in python_files(library)]
    assert kept == ["one.py", "package/test_three.py", "package/two.py", "testing/eight.py"]


def test_the_real_standard_library_is_read_without_its_tests() -> None:
    root = standard_library()
    kept = {path.relative_to(root).as_posix() for path in python_files(root)}
    assert {"ast.py", "json/decoder.py", "unittest/case.py"} <= kept
    assert not any(
        set(name.split("/")[:-1]) & {"test", "tests", "idle_test", "site-packages"} for name in kept
    )


def test_documents_are_split_at_separator_lines_only(tmp_path: Path, library: Path) -> None:
    text = f"One {END_OF_TEXT} still one\n{END_OF_TEXT}\nTwo\n{END_OF_TEXT}\n\n{END_OF_TEXT}\n"
    math, code = read_corpora(corpora(tmp_path / "c", math__m=text), library, (), seed=0)
    assert (math.name, code.name) == ("math", "code")
    assert sorted(math.documents) == [f"One {END_OF_TEXT} still one", "Two"]


def test_story_lines_are_joined_and_dialogue_lines_are_not(tmp_path: Path, library: Path) -> None:
    folder = corpora(tmp_path / "c", stories__s="A fox\nran.", dialogue__d="User: a\nuser: “b”")
    stories, dialogue, _ = read_corpora(folder, library, (), seed=0)
    assert stories.documents == ("A fox ran.",)
    assert dialogue.documents == ('User: a\nuser: "b"',)


def test_a_document_that_quotes_a_prompt_is_refused_and_counted(
    tmp_path: Path, library: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": f"short\n{PROMPT}"}) + "\n", encoding="utf-8")
    text = f"\n{END_OF_TEXT}\n".join(
        [f"Now.\n{PROMPT}\nThen.", "short", PROMPT[:58], "same", "same"]
    )
    folder = corpora(tmp_path / "c", math__m=text)
    (library / "one.py").write_text(f"x = '{PROMPT}'\n", encoding="utf-8")
    math, code = read_corpora(folder, library, prompt_lines(prompts), seed=0)
    assert sorted(math.documents) == sorted(["short", PROMPT[:58], "same"])
    source = math.sources[0]
    assert (source.num_documents, source.num_refused, source.num_duplicates) == (3, 1, 1)
    assert (code.sources[0].num_documents, code.sources[0].num_refused) == (3, 1)


def test_order_is_shuffled_by_the_seed_alone(tmp_path: Path, library: Path) -> None:
    text = f"\n{END_OF_TEXT}\n".join(f"document {i}" for i in range(50))
    folder = corpora(tmp_path / "c", math__m=text)
    first, again, other = (read_corpora(folder, library, (), seed)[0] for seed in (1, 1, 2))
    assert first == again
    assert first.documents != other.documents
    assert set(first.documents) == set(other.documents)


def test_a_library_corpus_has_code_and_its_docstrings(library: Path) -> None:
    (library / "broken.py").write_bytes(b"# coding: no-such-code\n")
    (library / "old.py").write_text("print 'no longer Python'\n", encoding="utf-8")
    docs, code = library_corpora(library, 10_000, (), seed=0)
    assert "The file one.py." in docs.documents
    assert '"""The file one.py."""' in code.documents
    assert "print 'no longer Python'" in code.documents


def test_a_library_corpus_stays_within_its_size(library: Path) -> None:
    _, code = library_corpora(library, 60, (), seed=0)
    assert 0 < code.sources[0].num_bytes <= 60


def test_missing_or_unreadable_corpora_are_named(tmp_path: Path, library: Path) -> None:
    with pytest.raises(ConfigError, match=r"corpora is .*nowhere.*a folder with \.txt files in"):
        read_corpora(tmp_path / "nowhere", library, (), seed=0)
    folder = corpora(tmp_path / "c", math__m="fine")
    (folder / "math" / "n.txt").write_bytes(b"\xff\xfe not UTF-8")
    with pytest.raises(ConfigError, match=r"n\.txt.*UTF-8"):
        read_corpora(folder, library, (), seed=0)


@pytest.mark.parametrize("content", ["not json", '{"text": "no prompt"}', "[1]"])
def test_a_prompts_file_of_another_format_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"prompts is .*each with a prompt"):
        prompt_lines(path)


LINE = "The quick brown fox isn't quick enough to jump over all of these dogs."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“Yes,” she said, ‘it’s’", "\"Yes,\" she said, 'it's'"),
        ("1–2 — and −3…", "1-2 -- and -3..."),
        ("caf\u00e9 na\u00efve \u014ba", "caf\u00e9 na\u00efve \u014ba"),
        ("one\r\ntwo  \nthree\r", "one\ntwo\nthree\n"),
        ("He said, â€œWowâ€™sâ€ now", 'He said, "Wow\'s" now'),
        ("sch\u00c3\u00b6n â\x80\x93 gut", "sch\u00f6n - gut"),
        (
            "\u0645\u0631\u062d\u0628\u0627 \u4f60\u597d",
            "\u0645\u0631\u062d\u0628\u0627 \u4f60\u597d",
        ),
    ],
)
def test_punctuation_becomes_ascii_and_letters_are_unchanged(text: str, expected: str) -> None:
    assert ascii_punctuation(text) == expected


def test_lines_of_a_paragraph_are_joined_and_paragraphs_are_not() -> None:
    wrapped = "Goat, Dog, and Cow\nwere great friends. One\nday they went.\n \nThey came\nback."
    assert join_wrapped_lines(wrapped) == (
        "Goat, Dog, and Cow were great friends. One day they went.\n\nThey came back."
    )


def test_verse_and_speech_keep_their_lines() -> None:
    verse = "Mirror, mirror on the wall,\nWho is fairest of us all?\n\nTom ran.\nHe fell."
    assert join_wrapped_lines(verse) == verse


def test_only_lines_of_the_given_length_or_more_are_kept() -> None:
    assert long_lines([f"short\n{LINE}\n" + "x" * 59, "y" * 60], 60) == (LINE, "y" * 60)


@pytest.mark.parametrize(
    "document",
    [
        f"before\n{LINE}\nafter",
        f"in a row: {LINE} And on.",
        "The quick brown fox isn’t quick enough\n  to jump over all of these dogs.",
    ],
)
def test_a_quote_is_found_however_it_is_wrapped(document: str) -> None:
    assert quotes_any(document, long_lines([LINE], 60))


def test_a_part_of_a_line_is_no_quote() -> None:
    assert not quotes_any(LINE[:-2], long_lines([LINE], 60))
