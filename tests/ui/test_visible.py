"""Nothing that was typed turns a line of the page about, or hides in it."""

from __future__ import annotations

import re

from storage import RunStore
from tests.synthetic import synthetic_run
from tests.ui.boards import ALL, context
from ui.components.assets import ASSETS
from ui.sessions.history import list_values
from ui.sessions.retention import about_run
from ui.shared.parts import notice_value
from ui.words.messages import Line
from ui.words.visible import SIGNS, visible

EVIL = "a\u202ebc\u2066d"
SEEN = "a⟨RLO⟩bc⟨LRI⟩d"


def test_what_turns_a_line_about_or_cannot_be_seen_stands_as_a_sign() -> None:
    assert visible(EVIL) == SEEN
    assert visible("\x00\x7f\x9b\ufeff") == "␀␡⟨9B⟩⟨BOM⟩"
    kept = "tab\tline\nשלום می\u200cخواهم 👩\u200d💻 \u00a0ü"
    assert visible(kept) == kept


def test_the_signs_are_those_of_the_pictures() -> None:
    script = (ASSETS / "text.js").read_text(encoding="utf-8")
    table = script[script.index("NAMED") : script.index("};")]
    pairs = re.findall(r'"\\u([0-9a-f]{4})": "(⟨\w+⟩)"', table)
    joiners = {"\u200c", "\u200d"}
    assert {chr(int(code, 16)): sign for code, sign in pairs} == {
        **SIGNS,
        **{one: sign for code, sign in pairs if (one := chr(int(code, 16))) in joiners},
    }


def test_a_note_and_a_notice_keep_their_direction(store: RunStore) -> None:
    for event in synthetic_run(2, seed=0):
        store.record(event, "a")
    store.annotate("synthetic-0", EVIL)
    made = context(store)
    value, *_ = list_values(made, ALL, "", "", "all", "newest", 1)
    assert value["rows"]["0"]["note"] == SEEN
    assert about_run(made, ALL, "synthetic-0")[2] == EVIL, "what stands in the box is kept again"
    assert notice_value([Line("info", EVIL)])["lines"]["0"]["text"] == SEEN
    assert store.run("synthetic-0").note == EVIL, "kept as it was typed"
