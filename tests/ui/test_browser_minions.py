"""The whole page on the bundled models in a real Chromium: votes and weights as recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui.charted import check_curve, check_lanes, check_lengths
from tests.ui.decoded import Recorded, close, decode, recorded, select_round, settled, with_draft
from tests.ui.sites import OpenPage, ready, replayed, shot
from ui.context import Context

pytestmark = pytest.mark.browser

GLYPHS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})


CHIPS = """rows => rows.map((row) => [...row.querySelectorAll(".ss-chip")].map((chip) => ({
  text: chip.querySelector(".ss-chip-text").textContent,
  mass: chip.querySelector(".ss-chip-mass").textContent,
  score: chip.querySelector(".ss-chip-score").textContent,
  won: "won" in chip.dataset, dropped: "dropped" in chip.dataset,
  accepted: "accepted" in chip.dataset })))"""


def chips(page: Any) -> list[list[dict[str, Any]]]:
    """The proposals' chips, a list for each drafter, in the order drawn (by depth)."""
    return list(page.locator("#live-proposals .ss-votes tbody tr").evaluate_all(CHIPS))


def check_grid(page: Any, run: Recorded, number: int) -> None:
    """Every chip against the events: token, score, mass, and what was dropped."""
    tree, drafted = run.combined[number], run.drafted[number]
    shown = chips(page)
    names = run.started.drafters
    lost = dict(zip(tree.dropped, tree.dropped_masses, strict=True))
    assert sum(map(len, shown)) == sum(len(draft.token_ids) for draft in drafted.drafts)
    for draft in drafted.drafts:
        row = shown[names.index(draft.drafter)]
        order = sorted(range(len(draft.token_ids)), key=lambda j: (draft.depths[j], j))
        for chip, j in zip(row, order, strict=True):
            assert chip["text"].startswith(draft.texts[j].translate(GLYPHS)[:3])
            assert close(chip["score"].split()[-1], draft.scores[j])
            assert chip["dropped"] == ((draft.drafter, j) in tree.dropped)
            if (draft.drafter, j) in lost and tree.rule != "log_pool":
                assert close(chip["mass"], lost[draft.drafter, j])
    won = [chip for row in shown for chip in row if chip["won"]]
    assert len(won) == (len(tree.token_ids) if tree.winner else 0)
    assert sum(chip["accepted"] for chip in won) == (
        len(run.verified[number].path) if tree.winner else 0
    )
    weights = page.locator("#live-proposals .ss-weight-number").all_text_contents()
    for text, name in zip(weights, names, strict=True):
        assert close(text.split(" ")[0], tree.weights[name])
        assert close(text.split(" ")[-1], run.completed[number].weights[name])


def check_dropped(page: Any, run: Recorded, number: int) -> None:
    """What lost the vote, or its place, is dotted in the tree."""
    tree, drafted = run.combined[number], run.drafted[number]
    paths: dict[tuple[str, int], tuple[int, ...]] = {}
    for draft in drafted.drafts:
        for j, token_id in enumerate(draft.token_ids):
            above = paths.get((draft.drafter, draft.parents[j]), ())
            paths[draft.drafter, j] = (*above, token_id)
    different = {paths[pair] for pair in tree.dropped}
    assert page.locator("#live-tree .ss-n-dropped").count() == len(different)


def check_weights_line(page: Any, run: Recorded) -> None:
    """It has a point for each round and ends where the recorded weights do."""
    label = page.locator("#live-proposals .ss-mini-svg").get_attribute("aria-label")
    history = [tree.weights for tree in run.combined if tree.weights]
    assert f"Weights over {len(history)} rounds" in label
    for name, weight in history[-1].items():
        assert f"{name} {weight:.2f}" in label
    rounds = [(number, tree.weights) for number, tree in enumerate(run.combined) if tree.weights]
    names = run.started.drafters
    lines = [[(number, weights[name]) for number, weights in rounds] for name in names]
    check_curve(page, "#live-proposals", lines)


def check_vote(page: Any, run: Recorded, number: int) -> None:
    """The winner, by how much, and the length that was chosen next."""
    tree, panel = run.combined[number], page.locator("#live-proposals")
    assert panel.locator("tr[data-won] .ss-who").inner_text().split("\n")[-1] == tree.winner
    told = panel.locator(".ss-vote-said").inner_text()
    assert told.startswith(f"{tree.winner} won: mass {tree.masses[0]:.2f} of ")
    said_why = page.locator("#live-lengths .ss-choice-said").inner_text()
    assert run.completed[number].length_reason.replace("->", "→") in said_why


def vote(page: Any, where: str) -> tuple[str, str]:
    """The sentence of the vote and the grid of all that was proposed."""
    panel = page.locator(f"#{where}-proposals")
    return panel.locator(".ss-vote-said").inner_text(), panel.locator(".ss-votes").inner_text()


def test_minions_the_vote_on_the_page_is_the_recorded_one_and_so_is_its_replay(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0]))
    decode(page, "minions")
    run = recorded(real[1])
    assert run.started.config["speculation"]["combine"] == "vote"
    check_weights_line(page, run)
    check_lengths(page, run)
    live = vote(page, "live")
    for number in (*with_draft(run, dropping=True)[:2], with_draft(run)[-1]):
        select_round(page, number)
        check_grid(page, run, number)
        check_dropped(page, run, number)
        check_vote(page, run, number)
    check_lanes(page, run, number)
    shot(page, "minions-1280-light")
    replayed(page)
    settled(page)
    assert vote(page, "sessions") == live


def test_vote_tree_keeps_what_the_events_say(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0], width=1920, height=1000))
    decode(page, "specinfer-paper", combine="vote_tree")
    run = recorded(real[1])
    number = with_draft(run, dropping=True)[0]
    select_round(page, number)
    check_grid(page, run, number)
    check_dropped(page, run, number)
    kept = len(run.combined[number].token_ids)
    words = page.locator("#live-proposals .ss-dial-words").inner_text()
    assert words.startswith(f"{kept} of ")
    shot(page, "vote-tree-1920-light")


def test_log_pool_shows_the_pooled_score_beside_each_ssms_own(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0], dark=True))
    decode(
        page,
        "specinfer",
        combine="log_pool",
        weights="paper (stays even: log_pool has no winner to reward)",
    )
    run = recorded(real[1])
    number = with_draft(run)[0]
    select_round(page, number)
    check_grid(page, run, number)
    tree = run.combined[number]
    first = [row[0]["mass"] for row in chips(page)]
    assert all("∏" in mass and close(mass, tree.masses[0]) for mass in first)
    shot(page, "log-pool-1280-dark")
