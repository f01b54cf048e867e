"""The sentences of the pipeline panel and their numbers, in a real Chromium."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.ui.components.bare import Pictures
from tests.ui.components.gallery import values_of
from tests.ui.components.test_picture_values import near

pytestmark = pytest.mark.browser

HIDDEN = None
WON = (
    "auto's last trial, after round 14: its rounds with drafting ahead were faster, "
    "104.8 ms against 121.8 ms, "
)
EARLY = (
    "2 drafts were ready before their round (✔); 1 of them ran beside a pass over another "
    "request, 1.25 ms hidden."
)
PAUSED = (
    "Round 5: predicted 19.0 ms, measured 55.2 ms in its stages; median prediction error 66 %. "
    "Both cover this request's work only; not included in its "
    "80.1 ms: 19.9 ms of pauses between its stages, in which the SSMs may draft ahead, 5.00 ms of "
    "drafting hidden behind another request's pass."
)
LONGER = (
    "Round 5: predicted 31.0 ms, measured 34.9 ms with the pause before it; "
    "median prediction error 11 %. "
    "From its first stage to its last it took 27.1 ms. The measured time also has the host's work "
    "since the previous round, and sums overlapping stages."
)
# Scene, part of the panel, the whole text of that part.
SAID = (
    ("paused", "predicted", PAUSED),
    ("longer", "predicted", LONGER),
    (
        "alone",
        "sums",
        "Nothing of this run was drafted ahead: pipeline=across drafts while the LLM verifies "
        "another request, and there was none. Run in a second tab at the same time, or choose "
        "pipeline=ahead.",
    ),
    ("alone", "predicted", "Only length=goodput predicts how long a round will take."),
    (
        "alone-yet",
        "sums",
        "So far nothing of this run was drafted while the LLM verified another request.",
    ),
    (
        "unlike",
        "round",
        "Round 5, from drafts begun during round 4: ssm-code hit, 1.25 ms saved (4 guesses, "
        "together 28 %); ssm-dialogue hit, 1.25 ms saved (3 guesses, together 25 %); "
        "ssm-stories miss, nothing saved, 0.50 ms wasted (no guess was made in time).",
    ),
    (
        "over",
        "round",
        "Round 5 (4 guesses, together 28 %): ssm-code drafted for a next round, but the text "
        "ended, 1.50 ms wasted.",
    ),
    (
        "tried",
        "verdict",
        "auto's last trial, after round 13: rounds are faster without drafting ahead, "
        "10.6 ms against 21.6 ms.",
    ),
    ("across", "verdict", HIDDEN),
    ("across", "what", HIDDEN),
    ("across", "key", HIDDEN),
    ("chance", "verdict", WON + "by chance: nothing drafted ahead had been used."),
    (
        "chance-elsewhere",
        "verdict",
        WON + "though nothing drafted ahead had been used in this run.",
    ),
    (
        "alike",
        "verdict",
        "auto's last trial, after round 14: neither way is clearly faster, "
        "10.3 ms a round with drafting ahead, 10.2 ms without.",
    ),
    (
        "early",
        "round",
        "Round 5: ssm-code drafted early, though not during a pass: nothing hidden; "
        "ssm-dialogue 1.25 ms hidden.",
    ),
    ("early", "sums", EARLY),
    ("never", "key", HIDDEN),
)
# Scene, part of the panel, place, piece: the part's text starts ("^") or ends ("$") with the piece.
PIECES = (
    ("ahead", "round", "^", "Round 5, from drafts begun during round 4 (3 guesses, together 62 %)"),
    ("ahead", "key", "^", "Outlined bars: drafting for the next round"),
    ("ahead", "what", "^", "A hit: the LLM wrote"),
    (
        "ahead",
        "what",
        "$",
        "In brackets: the number of predicted continuations, and the predicted probability, by "
        "the SSM that scored the tree, that the LLM writes one of them.",
    ),
    ("across", "round", "^", "Round 5: "),
    ("chance", "sums", "^", "Drafted ahead: 0 hits (✔) and 17 misses (✗)"),
    (
        "tried",
        "trials",
        "$",
        "Found after round 4, 7.00 ms a round with it and 10.2 ms without: on with it; "
        "round 13, 21.6 ms a round with it and 10.6 ms without: on without it.",
    ),
    ("never", "sums", "^", "Nothing is drafted ahead: the SSMs choose every token"),
)
PARTS = """() => { const panel = document.querySelector("#picture-timeline");
  const said = (node) => node.checkVisibility() ? node.innerText : null;
  const parts = ["sums", "predicted", "verdict", "round", "what", "trials", "key"];
  const words = [...panel.querySelectorAll(".ss-share-word")];
  return { ...Object.fromEntries(parts.map((name) =>
      [name, said(panel.querySelector(`.ss-ahead-${name}`))])),
    words: said(panel.querySelector(".ss-words")),
    between: words.find((node) => node.textContent.includes("between"))?.title,
    up: [...panel.querySelectorAll(".ss-mini-up")].some((node) => node.checkVisibility()) }; }"""


def said_of(pictures: Pictures) -> dict[str, dict[str, Any]]:
    scenes = {scene for scene, *_ in (*SAID, *PIECES)} | {"verify", "others", "ahead-end", "split"}
    return {name: pictures.show(name, "timeline").evaluate(PARTS) for name in sorted(scenes)}


def test_every_case_has_its_sentence(pictures: Pictures) -> None:
    said = said_of(pictures)
    wrong = [(s, p, said[s][p]) for s, p, w in SAID if said[s][p] != w]
    for scene, part, where, words in PIECES:
        pattern = "^" * (where == "^") + re.escape(words) + "$" * (where == "$")
        if not re.search(pattern, said[scene][part] or ""):
            wrong.append((scene, part, said[scene][part]))
    assert not wrong
    assert said["ahead"]["round"].count("together") == 1 < said["ahead"]["round"].count(";")
    assert "not included" not in said["ahead"]["predicted"], (
        "a millisecond is too little to be mentioned"
    )
    sums_and_predictions(said)
    work_done_at_once(said)
    time_between_stages(said)
    each_drafters_work_ahead(said)


def sums_and_predictions(said: dict[str, dict[str, Any]]) -> None:
    value = values_of("ahead")["timeline"]
    ahead, words = value["ahead"], said["ahead"]["sums"]
    misses = ahead["misses"] - ahead["unused"]
    counted = f"{ahead['hits']} hits (✔), {misses} misses (✗) and {ahead['unused']} not used"
    assert counted in words
    assert f"{ahead['saved']:.1f} ms saved, {ahead['wasted']:.1f} ms wasted" in words
    assert f"for {100 * value['overlap']:.0f} % of the LLM's time a drafter worked too" in words
    assert ahead["wasted"] > ahead["saved"]
    assert said["ahead"]["verdict"] == (
        "More drafting time was wasted than saved "
        f"({ahead['wasted']:.1f} ms against {ahead['saved']:.1f} ms). "
        "This does not show which is faster: compare with pipeline off, or let auto try both."
    )
    told, own = said["ahead"]["predicted"], value["rounds"][str(value["sel"])]
    times = re.search(r"predicted ([\d.]+) ms, measured ([\d.]+) ms", told)
    assert times and near(list(times.groups()), [own["p"], own["ms"]], 0.051)
    assert re.search(r"median prediction error \d+ %", told)
    ahead = values_of("split")["timeline"]["ahead"]
    misses = ahead["misses"] - ahead["unused"]
    counted = f"{ahead['hits']} hits (✔), {misses} misses (✗) and {ahead['unused']} not used"
    assert counted in said["split"]["sums"]
    ahead = values_of("across")["timeline"]["ahead"]
    assert said["across"]["sums"] == (
        f"{ahead['hits']} drafts were ready before their round (✔); {ahead['beside']} of them ran "
        f"beside a pass over another request, {ahead['saved']:.1f} ms hidden."
    )
    assert not said["across"]["up"] and said["ahead"]["up"]


def work_done_at_once(said: dict[str, dict[str, Any]]) -> None:
    value, words = values_of("verify")["timeline"], said["verify"]["words"]
    total, stages = value["total"], sum(value["share"].values())
    assert stages == pytest.approx(total, rel=1e-3)
    assert f"The run: {total:.1f} ms measured" in words
    assert "largest share" in words and "at once" not in words
    value, words = values_of("ahead")["timeline"], said["ahead"]["words"]
    total, stages = value["total"], sum(value["share"].values())
    assert stages > 1.05 * total
    assert (
        f"The run: {total:.1f} ms; shares are of the stages' {stages:.1f} ms, since drafters and "
        "LLM worked at once; largest share: "
    ) in words
    assert "took turns" in said["verify"]["words"] and "took turns" not in words


def time_between_stages(said: dict[str, dict[str, Any]]) -> None:
    words = said["others"]["words"]
    assert "largest share: between stages, " in words
    assert words.split(" %", 1)[1].startswith(": other requests' turns, and bookkeeping.")
    between = "no model worked for this request: other requests' turns, "
    assert between in said["others"]["between"]
    assert "no model worked for this request" in said["ahead"]["between"]
    assert "other requests" not in said["across"]["words"], "they took hardly any time"


def each_drafters_work_ahead(said: dict[str, dict[str, Any]]) -> None:
    value = values_of("ahead-end")["timeline"]
    begun = "Round 20, from drafts begun during round 19: "
    parts = said["ahead-end"]["round"].removeprefix(begun).split("; ")
    says = {
        "": "hit, ",
        "wrong": "miss, nothing saved",
        "unused": "right, but the round did not use its draft",
        "ended": "drafted for a next round, but the text ended",
    }
    own = value["round"].values()
    assert {"unused", "ended"} <= {one["why"] for one in own}
    for part, one in zip(parts, own, strict=True):
        name = value["drafters"][one["d"]]["name"]
        assert part.startswith(f"{name} {says[one['why']]}")
        wasted = re.search(r"([\d.]+) ms wasted \(3 guesses, together 6", part)
        assert wasted and float(wasted[1]) == pytest.approx(one["wasted"], abs=0.051)
