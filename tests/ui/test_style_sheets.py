"""Rules with `:has` must not make a change of one picture restyle the page.

After each change inside an element that may match a rule with `:has`, Blink restyles many
elements below this element. A selector must therefore name the element with `:has` and the
styled element.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ui

SHEETS = sorted(Path(ui.__file__).parent.rglob("*.css"))
# Classes of Gradio that elements around a picture have.
AROUND_EVERYTHING = {".block", ".html-container", ".column", ".row", ".tabitem"}
# Allowed, since it depends on the classes of html's children.
ALLOWED = {"html:has(> .dark)"}


def test_no_has_makes_a_change_of_a_picture_restyle_the_page() -> None:
    found = [
        f"{sheet.name}: {selector}"
        for sheet in SHEETS
        for selector in selectors(sheet.read_text(encoding="utf-8"))
        if restyles_much(selector)
    ]
    assert not found


@pytest.mark.parametrize(
    ("selector", "restyles"),
    [
        ("html:has(.running) #run", True),
        ("body:has(#tabs) footer", True),
        (".block:has(.ss-shell)", True),
        ("div.html-container:has(> div > .ss-shell)", True),
        (".ss-chip:has(.ss-mass) > *", True),
        ("#side:has(.opened) #board > :not(#notice)", True),
        ("#live-validity:not(:has(.sp-line))", False),
        ("#side:has(.opened) #board > :is(.block, .column)", False),
        ("#board > *", False),
    ],
)
def test_selectors_that_restyle_much_are_recognised(selector: str, restyles: bool) -> None:
    assert restyles_much(selector) is restyles


def restyles_much(selector: str) -> bool:
    if ":has(" not in selector or selector in ALLOWED:
        return False
    compounds = list(split(selector, " >+~"))
    with_has = [compound for compound in compounds if ":has(" in compound]
    return not names(compounds[-1]) or not all(names(one) - AROUND_EVERYTHING for one in with_has)


def names(compound: str) -> set[str]:
    """The ids, classes, attributes and tags of a compound selector, except html, body and div."""
    positive = without(without(compound, ":has("), ":not(")
    tags = set(re.findall(r"(?:^|[(,\s])([a-z]\w*)", positive))
    return set(re.findall(r"[#.][\w-]+|\[[^\]]+\]", positive)) | tags - {"html", "body", "div"}


def without(compound: str, function: str) -> str:
    while (start := compound.find(function)) >= 0:
        depth, end = 1, start + len(function)
        while depth:
            depth += {"(": 1, ")": -1}.get(compound[end], 0)
            end += 1
        compound = compound[:start] + compound[end:]
    return compound


def split(text: str, separators: str) -> Iterator[str]:
    part, depth = "", 0
    for character in text:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character in separators and not depth:
            if part:
                yield part
            part = ""
        else:
            part += character
    if part:
        yield part


def selectors(sheet: str) -> Iterator[str]:
    for preamble in re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", sheet, flags=re.S)):
        head = preamble.rpartition(";")[2].strip()
        if not head.startswith("@"):
            yield from (" ".join(one.split()) for one in split(head, ","))
