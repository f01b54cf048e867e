"""The pictures in a real Chromium draw their values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui.components.bare import HEIGHT, Pictures
from tests.ui.components.gallery import ORDER, values_of
from tests.ui.components.samples import HOSTILE, deep_tree

pytestmark = pytest.mark.browser

TREE_NODES = """() => Object.fromEntries([...document.querySelectorAll(".ss-node")].map((node) => [
  node.dataset.key,
  { kind: node.classList[1].slice(5), text: node.querySelector(".ss-node-text").textContent,
    by: [...node.querySelectorAll(".ss-svg-badge text")].map((b) => b.textContent).join(""),
    top: node.transform.baseVal.consolidate().matrix.f }]))"""


# For each rejected node: whether its strike is slanted, and whether the strike's middle is on the
# text.
STRUCK = """() => [...document.querySelectorAll(".ss-n-rejected")].map((node) => {
  const [mark, text] = [".ss-strike", ".ss-node-text"]
    .map((css) => node.querySelector(css).getBBox());
  const middle = mark.y + mark.height / 2;
  return [mark.height > 0, middle > text.y && middle < text.y + text.height];
})"""


def as_shown(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "↵")


def test_the_tree_is_its_value_at_every_stage(pictures: Pictures) -> None:
    stages_of_a_round(pictures)
    verdict_of_a_round(pictures)
    value = values_of("lost")["tree"]
    drawn = pictures.show("lost", "tree").evaluate(TREE_NODES)
    lost = {key[1:]: node for key, node in drawn.items() if key.startswith("d")}
    assert set(lost) == set(value["dropped"]) and lost
    for key, told in value["dropped"].items():
        assert lost[key]["kind"] == "dropped" and lost[key]["text"] == as_shown(told["t"])
        assert lost[key]["by"] == "".join("ABC"[int(drafter)] for drafter in told["by"])
    words = pictures.page.locator(".ss-tree .ss-words").text_content()
    assert words.endswith(f"; {len(lost)} lost the vote (dotted).")
    for scene, ends in (("vote", " Dotted: lost the vote."), ("commit", "")):
        words = pictures.show(scene, "tree").locator(".ss-tree .ss-words").text_content()
        assert words.startswith("One pass of the LLM brought") and words.endswith(ends or words)
        assert ("Dotted" in words) == bool(ends) == bool(values_of(scene)["tree"]["dropped"])
    drawn = pictures.show("plain", "tree").evaluate(TREE_NODES)
    assert set(drawn) == {"-1", "own"} and drawn["own"]["kind"] == "plain"
    before_the_first_round(pictures)


def stages_of_a_round(pictures: Pictures) -> None:
    page = pictures.show("draft", "tree")
    value = values_of("draft")["tree"]
    drafts = page.evaluate(TREE_NODES)
    assert len(drafts) == 1 + sum(len(draft) for draft in value["drafts"].values())
    assert {node["by"] for key, node in drafts.items() if key.startswith("d1.")} == {"B"}
    assert page.locator(".ss-heading").all_text_contents() == [
        f"{le}  {t['name']}" for le, t in zip("ABC", value["drafters"].values(), strict=True)
    ]
    assert not {"accepted", "rejected"} & {node["kind"] for node in drafts.values()}
    pictures.show("combine", "tree")
    assert page.locator(".ss-stage[aria-current]").get_attribute("data-stage") == "combine"
    combined = page.evaluate(TREE_NODES)
    assert "own" not in combined and "pending" in {node["kind"] for node in combined.values()}
    pictures.show("verify", "tree")
    assert "LLM wanted" in page.locator(".ss-n-recovered").text_content()
    pictures.show("commit", "tree")
    words = page.locator(".ss-tree .ss-words").text_content()
    assert words.startswith("One pass of the LLM brought")


def verdict_of_a_round(pictures: Pictures) -> None:
    value = values_of("verify")["tree"]
    drawn = pictures.show("verify", "tree").evaluate(TREE_NODES)
    assert {key for key in drawn if key.isdigit()} == set(value["nodes"])
    for key, node in value["nodes"].items():
        assert drawn[key]["kind"] == node["outcome"]
        assert drawn[key]["text"] == as_shown(node["t"])
        assert drawn[key]["by"] == "".join("ABC"[int(drafter)] for drafter in node["by"])
    assert drawn["-1"]["text"] == as_shown(value["root"]["t"])
    # A horizontal strike through punctuation would look like a dash.
    rejected = {k: node for k, node in value["nodes"].items() if node["outcome"] == "rejected"}
    for text, is_aslant in ((" l", False), ("1", False), (".", True), (" -", True)):
        changed = {key: {**node, "t": text} for key, node in rejected.items()}
        pictures.give({"tree": {**value, "nodes": {**value["nodes"], **changed}}})
        assert pictures.rest().evaluate(STRUCK) == [[is_aslant, True]] * len(changed) != []
    pictures.show("verify", "tree")
    own = {name: drawn["own"][name] for name in ("kind", "text", "by")}
    assert own == {"kind": value["own"]["kind"], "text": as_shown(value["own"]["t"]), "by": ""}
    assert len([key for key in drawn if key.startswith("d")]) == len(value["dropped"])
    by_parent: dict[int, list[int]] = {}
    for key, node in value["nodes"].items():
        by_parent.setdefault(node["parent"], []).append(int(key))
    assert max(map(len, by_parent.values())) > 1
    for children in by_parent.values():
        tops = [drawn[str(key)]["top"] for key in sorted(children)]
        assert tops == sorted(tops), "siblings in their drafter's order"


def before_the_first_round(pictures: Pictures) -> None:
    root = values_of("begun")["tree"]["root"]["t"]
    page = pictures.show("begun", "tree")
    drawn = {key: node["text"] for key, node in page.evaluate(TREE_NODES).items()}
    assert root and drawn == {"-1": as_shown(root)}
    tree = page.locator("#picture-tree")
    assert tree.locator(".ss-round-name").inner_text() == "Before round 1"
    words = "The text so far is the prompt; nothing is drafted yet."
    assert tree.locator(".ss-words").inner_text() == words
    label = tree.locator("svg.ss-tree-svg").get_attribute("aria-label")
    assert label == f"Token tree, Before round 1: {words}"


# The number of edges whose path goes down, sideways and down again.
BESIDE = r"""() => [...document.querySelectorAll("#picture-tree .ss-edge")]
  .filter((edge) => /V.*H.*V/.test(edge.getAttribute("d"))).length"""
VIEWPORT = """() => { const v = document.querySelector("#picture-tree .ss-viewport");
  const box = (node) => node.getBoundingClientRect();
  const own = v.querySelector(".ss-n-bonus, .ss-n-plain, .ss-n-recovered");
  const svg = box(v.querySelector("svg"));
  const texts = [...v.querySelectorAll(".ss-node-text")];
  return { inside: box(own).right <= box(v).right && box(own).left >= box(v).left,
    left: v.scrollLeft, wide: v.scrollWidth > v.clientWidth + 1, width: v.clientWidth,
    smallest: Math.min(...texts.map((node) => Math.round(box(node).height))),
    token: v.dataset.zoom * texts[0].getAttribute("font-size"), zoom: Number(v.dataset.zoom),
    height: box(v).height, above: svg.top - box(v).top, below: box(v).bottom - svg.bottom,
    whole: v.scrollHeight <= v.clientHeight + 20 && v.scrollWidth <= v.clientWidth + 20,
    more: [...document.querySelectorAll("#picture-tree .ss-more")].map((node) =>
      node.hidden ? "" : node.textContent) }; }"""


def viewport_of(pictures: Pictures, scene: str) -> Any:
    return pictures.show(scene, "tree").evaluate(VIEWPORT)


def scroll(pictures: Pictures, left: int) -> Any:
    script = "(left) => document.querySelector('#picture-tree .ss-viewport').scrollTo(left, 0)"
    pictures.page.evaluate(script, left)
    return pictures.rest().evaluate(VIEWPORT)


def set_width(pictures: Pictures, width: int) -> None:
    pictures.mount()
    script = "(px) => { document.querySelector('#picture-tree').style.maxWidth = px; }"
    pictures.page.evaluate(script, f"{width}px")


def test_a_tree_fills_its_panel_is_legible_and_shows_the_llms_own_token(pictures: Pictures) -> None:
    small = viewport_of(pictures, "plain")
    assert 1.2 < small["zoom"] <= 1.7
    assert small["above"] == pytest.approx(small["below"], abs=3), "in the middle"
    large = viewport_of(pictures, "large")
    assert large["zoom"] <= 1
    assert pictures.page.locator(".ss-node").count() == 96 + 2
    assert large["smallest"] >= 10, "smaller text cannot be read from afar"
    assert large["height"] < 600, "the panel scrolls, the page does not grow"
    pictures.page.get_by_role("button", name="Fit the whole tree").click()
    assert pictures.rest().evaluate(VIEWPORT)["whole"]
    the_own_token_stays_in_sight(pictures)
    what_is_cut_is_counted(pictures)
    pictures.mount()
    viewport_of(pictures, "deep")
    narrow = pictures.look(width=390).evaluate(VIEWPORT)
    assert narrow["width"] < 380 and narrow["inside"] and narrow["smallest"] >= 10


def the_own_token_stays_in_sight(pictures: Pictures) -> None:
    set_width(pictures, 880)
    deep = viewport_of(pictures, "deep")
    assert 780 < deep["width"] < 880, "as wide as on the page in a window of 1280 pixels"
    assert deep["inside"] and not deep["wide"] and deep["smallest"] >= 10
    longer = viewport_of(pictures, "folded")
    assert longer["inside"] and not longer["wide"] and longer["smallest"] >= 10
    assert longer["more"] == [""] * 4, "in two bands, both fully in sight"
    # If not folded into two bands, this tree would have small letters.
    pictures.give({"tree": deep_tree(7)})
    chain = pictures.rest().evaluate(VIEWPORT)
    assert chain["token"] > 17 and not chain["wide"] and chain["more"] == [""] * 4
    deeper = viewport_of(pictures, "deeper")
    assert deeper["inside"] and deeper["wide"] and deeper["smallest"] >= 10
    scroll(pictures, 90)
    assert viewport_of(pictures, "deeper-verify")["left"] == 90, "where the visitor scrolled to"
    viewport_of(pictures, "deep")
    pictures.page.get_by_role("button", name="Zoom in").click()
    zoomed = scroll(pictures, 0)["zoom"]
    deeper = viewport_of(pictures, "deeper")
    assert deeper["left"] == 0 and deeper["zoom"] == zoomed


def what_is_cut_is_counted(pictures: Pictures) -> None:
    set_width(pictures, 750)
    deep = viewport_of(pictures, "deep")
    assert deep["inside"] and not deep["wide"] and deep["width"] < 720
    assert deep["token"] >= 10 and deep["more"] == [""] * 4
    before, after, above, below = viewport_of(pictures, "deeper")["more"]
    hidden = int(before.removeprefix("← ").removesuffix(" more"))
    assert 1 < hidden < 30 and after == ""
    assert scroll(pictures, 0)["more"] == ["", f"{hidden} more →", above, below]
    pictures.page.get_by_role("button", name="Fit the whole tree").click()
    assert pictures.rest().evaluate(VIEWPORT)["more"] == [""] * 4, "nothing is cut"


def test_siblings_in_one_row_are_alternatives_and_no_phrase(pictures: Pictures) -> None:
    tree = deep_tree(1)
    leaf = {**tree["nodes"]["0"], "outcome": "rejected"}
    tree["nodes"] |= {str(i): leaf for i in range(2, 40)}
    pictures.give({"tree": tree})
    pictures.rest()
    beside = pictures.page.evaluate(BESIDE)
    assert pictures.page.locator(".ss-or").count() == beside > 20
    pictures.give({"tree": deep_tree(1)})
    pictures.rest()
    assert pictures.page.locator(".ss-or").count() == 0


def test_drafters_that_agree_have_one_badge_where_a_tree_has_no_room_for_all(
    pictures: Pictures,
) -> None:
    drafters = {str(i): {"name": f"ssm-{i}", "slot": i} for i in range(5)}
    tree = deep_tree(6)
    proposal = tree["nodes"]["0"]["by"]["0"]
    for key, node in tree["nodes"].items():
        few = {"4": 4}.get(key, 5) if node["outcome"] == "accepted" else 1
        node["by"] = dict.fromkeys(list(drafters)[:few], proposal)
    for width, agreed in ((1280, "ABCDE"), (640, "A–E")):
        set_width(pictures, width)
        pictures.give({"tree": {**tree, "drafters": drafters}})
        drawn = pictures.rest().evaluate(TREE_NODES)
        labels = {5: agreed, 4: "ABCD", 1: "A"}
        expected = {key: labels[len(node["by"])] for key, node in tree["nodes"].items()}
        assert {key: drawn[key]["by"] for key in expected} == expected
        seen = pictures.page.evaluate(VIEWPORT)
        assert seen["inside"] and not seen["wide"] and seen["smallest"] >= 10
        pictures.page.locator(".ss-node[data-key='0']").hover()
        card = pictures.page.locator("#ss-tip").inner_text()
        assert all(one["name"] in card for one in drafters.values())
        pictures.page.mouse.move(0, 0)


STRIP = """() => { const flow = document.querySelector("#picture-strip .ss-flow");
  const tokens = [...flow.querySelectorAll(".ss-tok[data-i]")];
  return { text: flow.textContent,
    kinds: tokens.map((node) => node.className.split("ss-k-")[1].split(" ")[0]),
    narrowest: Math.min(...tokens.map((node) => node.getClientRects()[0].width)),
    ends: flow.querySelectorAll(".ss-mark[data-glyph='↵']").length,
    noted: [...document.querySelectorAll("#picture-strip .ss-round[data-noted]")]
      .map((node) => node.dataset.r) }; }"""
COPIED = """() => { getSelection().selectAllChildren(document.querySelector(".ss-flow"));
  const copied = getSelection().toString(); getSelection().empty(); return copied; }"""


# Words that are broken at a line's end, and tokens that are drawn in several parts.
TORN = """() => { const flow = document.querySelector("#picture-strip .ss-flow");
  const tops = [], torn = [];
  for (const node of flow.querySelectorAll(".ss-tok[data-i]")) {
    const parts = [...node.getClientRects()].filter((box) => box.width > 0);
    if (parts.length > 1 && node.textContent !== "\\n") torn.push(node.textContent);
    const text = node.firstChild;
    for (let i = 0; text?.nodeType === 3 && i < text.length; i += 1) {
      const range = document.createRange();
      range.setStart(text, i);
      range.setEnd(text, i + 1);
      tops.push([text.data[i], range.getClientRects()[0]?.top]);
    }
  }
  let word = "";
  tops.forEach(([char, top], i) => {
    const [before, above] = tops[i - 1] ?? [" "];
    const within = /\\S/.test(char) && /\\S/.test(before);
    if (within && Math.abs(top - above) > 9) torn.push(word + char);
    word = /\\S/.test(char) ? word + char : "";
  });
  return torn; }"""
WORDS = (
    " ve",
    "getables",
    " and",
    " The",
    " G",
    "eral",
    "d",
    "'s",
    " are",
    " with",
    " t",
    "r",
    "ees",
)


def test_no_token_and_no_word_is_torn_at_a_lines_end(pictures: Pictures) -> None:
    strip = values_of("verify")["strip"]
    tokens = {
        str(i): {
            "t": WORDS[i % len(WORDS)],
            "r": i // 2,
            "k": ("accepted", "bonus")[i % 2],
            "by": "0",
        }
        for i in range(104)
    }
    page = pictures.show("verify", "strip")
    for width in range(280, 440, 9):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        pictures.give({"strip": {**strip, "run": str(width), "tokens": tokens}})
        pictures.rest()
        assert page.evaluate(TORN) == [], width
    giant = {"0": {"t": " short", "r": 0, "k": "plain", "by": ""}}
    giant |= {str(i): {"t": "x" * 7, "r": i, "k": "bonus", "by": ""} for i in range(1, 90)}
    giant["90"] = {"t": "y" * 500, "r": 90, "k": "bonus", "by": ""}
    pictures.give({"strip": {**strip, "run": "giant", "tokens": giant}})
    pictures.rest()
    inside = "(one) => one.scrollWidth <= one.clientWidth"
    assert page.locator("#picture-strip .ss-scroll").evaluate(inside), (
        "a token longer than a line is broken"
    )


SIDES = """() => [...document.querySelectorAll("#picture-strip .ss-tok")].map((node) =>
  Math.round(node.getBoundingClientRect().left))"""


def test_text_is_laid_out_in_its_own_direction_whatever_the_prompts_is(pictures: Pictures) -> None:
    strip = values_of("verify")["strip"]
    page = pictures.page
    for prompt, before in (("שלום עולם.", ""), ("שלום עולם.", "."), ("Hello.", "")):
        words = [before, "\n", "The", " answer", " is", " 36", "."] if before else []
        words = words or ["The", " answer", " is", " 36", "."]
        tokens = {
            str(i): {"t": word, "r": i, "k": "bonus", "by": ""} for i, word in enumerate(words)
        }
        value = {**strip, "run": prompt + before, "prompt": prompt, "tokens": tokens}
        pictures.give({"strip": value})
        pictures.rest()
        sides = page.evaluate(SIDES)[-5:]
        assert sides == sorted(sides), (prompt, before)


def test_the_strip_is_the_text_and_copies_as_it_is(pictures: Pictures) -> None:
    value = values_of("verify")["strip"]
    tokens = [value["tokens"][key] for key in sorted(value["tokens"], key=int)]
    page = pictures.show("verify", "strip")
    strip = page.evaluate(STRIP)
    assert strip["text"] == "".join(token["t"] for token in tokens)
    assert strip["kinds"] == [token["k"] for token in tokens]
    page.get_by_role("button", name="Show white space").click()
    copied = pictures.rest().evaluate(COPIED)
    assert copied.strip("\n") == strip["text"].strip("\n"), "the glyphs are not part of the text"
    page.get_by_role("button", name="Show white space").click()
    strip = pictures.show("feeds", "strip").evaluate(STRIP)
    assert len(strip["kinds"]) == strip["ends"] > 5
    assert strip["narrowest"] > 4, "wide enough to point at"
    assert not strip["text"].strip(), "the text is white space only"
    notes = values_of("vote")["strip"]["notes"]
    assert pictures.show("vote", "strip").evaluate(STRIP)["noted"] == list(notes)


def test_figures_inspector_and_legend_say_what_the_value_says(pictures: Pictures) -> None:
    values = values_of("verify")
    page = pictures.show("verify")
    script = """nodes => nodes.map((n) =>
      [n.dataset.key, n.querySelector('.ss-figure-value').textContent])"""
    cards = dict(page.locator(".ss-figure").evaluate_all(script))
    assert cards["num_rounds"] == str(int(values["figures"]["num_rounds"]))
    expected = values["figures"]["mean_acceptance_length"]
    assert float(cards["mean_acceptance_length"]) == pytest.approx(expected, abs=0.006)
    bars = page.locator(".ss-bar").count()
    assert bars == sum(len(rows) for rows in values["inspector"]["bars"].values())
    assert values["inspector"]["title"] in page.locator(".ss-inspected-title").text_content()
    legend = page.locator("#picture-strip .ss-legend").text_content()
    assert all(told["name"] in legend for told in values["strip"]["drafters"].values())
    page.locator(".ss-figure[data-key=speedup]").get_by_text("x speed-up, one sample").wait_for()
    pictures.show("plain", "figures")
    cards = dict(page.locator(".ss-figure").evaluate_all(script))
    assert cards["draft_acceptance_rate"] == "–", "no drafts, no rate"
    pictures.show("one", "figures")
    for key, words in (("num_rounds", "1 LLM pass"), ("num_new_tokens", "1 token")):
        assert page.locator(f".ss-figure[data-key={key}]").inner_text() == words
    pictures.show("budget", "inspector")
    note = page.locator("#picture-inspector .ss-meant")
    assert note.inner_text() == values_of("budget")["inspector"]["meant"] != ""
    pictures.show("empty", "inspector")
    assert note.is_hidden()


def near(texts: list[str], numbers: list[float], within: float = 0.006) -> bool:
    return [float(text) for text in texts] == pytest.approx(numbers, abs=within)


def test_proposals_and_votes_are_drawn_with_their_numbers(pictures: Pictures) -> None:
    a_vote(pictures)
    without_a_vote(pictures)
    the_dial_and_the_pool(pictures)
    page = pictures.show("budget", "proposals")
    why = page.locator("#picture-proposals .ss-no-node").filter(visible=True)
    assert why.all_inner_texts() == list(values_of("budget")["proposals"]["nodeless"].values())
    none = pictures.show("plain", "proposals").locator("#picture-proposals")
    assert none.locator(".ss-placeholder").inner_text().startswith("No drafter: the LLM wrote")
    assert none.locator("table.ss-votes").is_hidden()
    pictures.show("drawn", "proposals")
    told = []
    for row, chip in ((0, 0), (0, 1), (1, 0)):
        own = page.locator("#picture-proposals tbody tr").nth(row).locator(".ss-chip")
        own.nth(chip).dispatch_event("pointerover")  # hover() may scroll, and a scroll hides tips
        told.append(page.locator("#ss-tip").text_content())
    assert "drawn with0.250" in told[0] and "drawn with1" in told[1]
    assert "drawn with" not in told[2] and "score" in told[2], "only drawn tokens have it"


def a_vote(pictures: Pictures) -> None:
    value = values_of("vote")["proposals"]
    panel = pictures.show("vote", "proposals").locator("#picture-proposals")
    chips = [chip for row in value["rows"].values() for chip in row.values()]
    order = [
        token
        for row in value["rows"].values()
        for token in sorted(row.values(), key=lambda token: token["depth"])
    ]
    masses = panel.locator(".ss-chip-mass").all_text_contents()
    assert near([text.split()[1] for text in masses], [token["mass"] for token in order])
    assert "Σ: the weights of all SSMs that" in panel.locator(".ss-mass-meant").inner_text()
    assert panel.locator(".ss-chip[data-dropped]").count() == sum(not c["in_tree"] for c in chips)
    assert panel.locator(".ss-won:not([hidden])").all_text_contents() == ["★ won"]
    assert value["drafters"][value["winner"]]["name"] in panel.locator("tr[data-won]").inner_text()
    stars = panel.locator(".ss-chip[data-won]").all_text_contents()
    assert len(stars) == value["kept"]["nodes"] and all("★" in text for text in stars)
    assert panel.locator(".ss-vote-said").text_content() == value["sentence"]
    weights = panel.locator(".ss-weight-number").all_text_contents()
    assert near([text.split(" ")[0] for text in weights], list(value["weights"].values()))
    assert near([text.split(" ")[-1] for text in weights], list(value["after"].values()))
    ends = panel.locator(".ss-mini-end").all_text_contents()
    assert sorted(ends) == ["A", "B", "C"], "letters, not colour alone, tell them apart"
    dashes = panel.locator(".ss-mini-line").evaluate_all(
        "nodes => nodes.map((node) => node.getAttribute('stroke-dasharray'))"
    )
    assert len(dashes) == len(set(dashes)) == 3


VOTED = (".ss-mass-meant", ".ss-won", ".ss-dial", ".ss-vote-said", ".ss-mini", ".ss-weight")


def without_a_vote(pictures: Pictures) -> None:
    panel = pictures.show("verify", "proposals").locator("#picture-proposals")
    for part in (*VOTED, ".ss-chip-mass", ".ss-no-node"):
        assert not any(panel.locator(part).evaluate_all("all => all.map((n) => !n.hidden)")), part
    rows = values_of("verify")["proposals"]["rows"]
    assert panel.locator(".ss-chip").count() == sum(len(row) for row in rows.values())


def the_dial_and_the_pool(pictures: Pictures) -> None:
    panel = pictures.show("dial", "proposals").locator("#picture-proposals")
    kept = values_of("dial")["proposals"]["kept"]
    words = panel.locator(".ss-dial-words").text_content()
    assert words.startswith(f"{kept['nodes']} of {kept['all']} nodes kept")
    track = panel.locator(".ss-dial-track").bounding_box()["width"]
    fill = panel.locator(".ss-dial-fill").bounding_box()["width"]
    expected = (kept["nodes"] - kept["longest"]) / (kept["all"] - kept["longest"])
    assert fill / track == pytest.approx(expected, abs=0.03)
    meant = panel.locator(".ss-mass-meant")
    assert meant.inner_text().startswith("Σ: how likely the SSMs held the path")
    pictures.show("pool", "proposals")
    assert meant.inner_text() == (
        "∏: the geometric mean, by weight, of the SSMs' scores of this token "
        "after the one before it."
    )
    rows = values_of("pool")["proposals"]["rows"]
    assert panel.locator(".ss-dial").is_hidden()
    assert panel.locator(".ss-chip-mass").count() == sum(len(row) for row in rows.values())
    assert "∏" in panel.locator(".ss-chip-mass").first.text_content()


def test_hostile_text_is_inert_and_visible(pictures: Pictures) -> None:
    page = pictures.show("hostile")
    assert page.locator(".ss-plot .main-svg").count() >= 4
    assert page.locator(".ss-panel img, .ss-panel script").count() == 0
    assert page.locator(".ss-flow").evaluate("node => node.textContent") == "".join(HOSTILE)
    around = page.locator(".ss-strip .ss-template, .ss-strip .ss-prompt").all_text_contents()
    assert (around[0], around[2]) == HOSTILE[1:3] and len(around) == 3
    visible = page.locator(".ss-inspector .ss-sentence").text_content()
    assert "<img src=x onerror=" in visible and "${window.pwned" in visible and "⟨RLO⟩" in visible
    nodes = page.evaluate(TREE_NODES)
    assert nodes["2"]["text"].startswith("${window") and "␀␁␛[31m" in nodes["6"]["text"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".ss-node[data-key='0']").hover()
    assert "<img src=x" in page.locator("#ss-tip").text_content()
    assert page.evaluate("window.pwned") is None
    assert page.locator("[data-error]").count() == 0 and len(ORDER) == 8


LANE_WORDS = """() => ["plain", "ours"].map((name) => {
  const lane = document.querySelector(`#picture-figures [data-lane=${name}]`);
  return [Number(lane.dataset.tokens), lane.querySelector(".ss-lane-words").textContent]; })"""


def test_the_plain_lane_stops_where_the_texts_part(pictures: Pictures) -> None:
    value = dict(values_of("verify")["figures"])
    words = list(value["words"].values())
    for alike in (len(words), 3, 0):
        pictures.give({"figures": {**value, "alike": alike}})
        (written, plain), (_, ours) = pictures.rest().evaluate(LANE_WORDS)
        shown = "".join(plain.removeprefix("…").split())
        head = words[: min(written, alike)]
        assert written > 3 and "".join("".join(head).split()).endswith(shown), (alike, plain)
        assert bool(shown) == (alike > 0) and ours, (alike, plain, ours)
