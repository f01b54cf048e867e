"""Normalising is exact where it acts and does nothing elsewhere."""

import pytest

from zoo.text import ascii_punctuation, join_wrapped_lines, long_lines, quotes_any

LINE = "The quick brown fox isn't quick enough to jump over all of these dogs."


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_typographic_signs_become_ascii_and_letters_stay(given: str, expected: str) -> None:
    assert ascii_punctuation(given) == expected


def test_wrapped_paragraphs_are_joined_and_paragraphs_stay_apart() -> None:
    wrapped = "Goat, Dog, and Cow\nwere great friends. One\nday they went.\n \nThey came\nback."
    assert join_wrapped_lines(wrapped) == (
        "Goat, Dog, and Cow were great friends. One day they went.\n\nThey came back."
    )


def test_verse_and_speech_keep_their_lines() -> None:
    verse = "Mirror, mirror on the wall,\nWho is fairest of us all?\n\nTom ran.\nHe fell."
    assert join_wrapped_lines(verse) == verse


def test_only_lines_of_the_length_asked_for_are_kept() -> None:
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
