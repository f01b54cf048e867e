"""The whole page on the bundled models in a real Chromium: what the panels show of votes, weights,
lengths and lanes equals what the store recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from core import Engine, load_models
from core.events import Combined, Drafted, Event, RoundCompleted, RunStarted, Verified
from core.worker import Worker
from storage import RunQuery, RunStore
from tests.ui.serving import served
from tests.ui.sites import OpenPage, ready, said, sessions, shot
from ui.context import Context, make_context
from ui.page import build_page
from ui.visitors import Access

pytestmark = pytest.mark.browser

TOKENS = 40
GLYPHS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[tuple[str, Context]]:
    """The page with the bundled models behind it."""
    folder = tmp_path_factory.mktemp("real")
    worker = Worker(Engine(load_models(llm="bundled", ssms=["bundled"])))
    with RunStore(folder / "runs.db") as store:
        context = make_context(worker, store, Access("127.0.0.1"), "specinfer", RunQuery)
        with served(build_page(context)) as url:
            yield url, context
        worker.close()


@dataclass(frozen=True)
class Recorded:
    """The events of one run, read back from the store, by round."""

    started: RunStarted
    drafted: list[Drafted]
    combined: list[Combined]
    verified: list[Verified]
    completed: list[RoundCompleted]


def recorded(context: Context) -> Recorded:
    context.store.flush()
    run_id = context.store.runs(RunQuery()).rows[0].run_id
    events = context.store.events(run_id)

    def of(kind: type[Event]) -> list[Any]:
        return [event for event in events if isinstance(event, kind)]

    kinds = (Drafted, Combined, Verified, RoundCompleted)
    return Recorded(of(RunStarted)[0], *map(of, kinds))


def pick(page: Any, field: str, option: str) -> None:
    """Choose in a menu as a visitor does."""
    page.locator(f"#{field} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def decode(page: Any, preset: str, **fields: str) -> None:
    """Run the story example under a preset and some fields of its own, to the end."""
    page.click("#example-story")
    page.get_by_text("Sampling", exact=True).click()
    page.locator("#sampling-max_new_tokens input[type=number]").fill(str(TOKENS))
    pick(page, "preset", preset)
    if fields:
        page.get_by_text("Every setting of the engine").click()
        for name, value in fields.items():
            pick(page, f"field-{name}", value)
    page.click("#live-run")
    said(page, "Finished: ")
    settled(page)


def settled(page: Any) -> None:
    """Every picture has drawn what it was sent, also those out of sight, which take a second."""
    page.wait_for_function(
        """() => { const now = performance.now();
        if (document.querySelector('[data-pending]')) window.calm = null;
        else window.calm ??= now;
        return window.calm && now - window.calm > 300; }"""
    )


def choose(page: Any, number: int) -> None:
    """Select a round by its text."""
    page.locator(f"#live-strip .ss-round[data-r='{number}']").first.click()
    page.locator("#live-proposals").get_by_text(f"Round {number + 1}:").wait_for()
    page.locator("#live-tree").get_by_text(f"Round {number + 1}", exact=True).wait_for()
    settled(page)


CHIPS = """rows => rows.map((row) => [...row.querySelectorAll(".ss-chip")].map((chip) => ({
  text: chip.querySelector(".ss-chip-text").textContent,
  mass: chip.querySelector(".ss-chip-mass").textContent,
  score: chip.querySelector(".ss-chip-score").textContent,
  won: "won" in chip.dataset, dropped: "dropped" in chip.dataset,
  accepted: "accepted" in chip.dataset })))"""


def chips(page: Any) -> list[list[dict[str, Any]]]:
    """The proposals' chips, a list for each drafter, in the order drawn (by depth)."""
    return list(page.locator("#live-proposals .ss-votes tbody tr").evaluate_all(CHIPS))


def number_in(text: str) -> float:
    """The number that a short label holds; what is written as <0.01 counts as 0."""
    found = re.search(r"(<?)([\d.]+)", text)
    assert found, text
    return 0.0 if found[1] else float(found[2])


def close(text: str, value: float) -> bool:
    return number_in(text) == pytest.approx(value, abs=0.0105)


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


def with_draft(run: Recorded, dropping: bool = False) -> list[int]:
    """Rounds that drafted, some of which dropped something."""
    found = [r for r, tree in enumerate(run.combined) if tree.token_ids]
    return [r for r in found if run.combined[r].dropped] if dropping else found


def test_minions_the_vote_on_the_page_is_the_recorded_one(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0]))
    decode(page, "minions")
    run = recorded(real[1])
    assert run.started.config["speculation"]["combine"] == "vote"
    for number in (*with_draft(run, dropping=True)[:2], with_draft(run)[-1]):
        choose(page, number)
        tree = run.combined[number]
        check_grid(page, run, number)
        check_dropped(page, run, number)
        panel = page.locator("#live-proposals")
        assert panel.locator("tr[data-won] .ss-who").inner_text().split("\n")[-1] == tree.winner
        told = panel.locator(".ss-vote-said").inner_text()
        assert told.startswith(f"{tree.winner} won: mass {tree.masses[0]:.2f} of ")
        said_why = page.locator("#live-lengths .ss-choice-said").inner_text()
        assert run.completed[number].length_reason.replace("->", "→") in said_why
    shot(page, "minions-1280-light")


def test_the_weights_line_ends_where_the_recorded_weights_do(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0]))
    decode(page, "minions")
    run = recorded(real[1])
    label = page.locator("#live-proposals .ss-mini-svg").get_attribute("aria-label")
    history = [tree.weights for tree in run.combined if tree.weights]
    assert f"Weights over {len(history)} rounds" in label
    for name, weight in history[-1].items():
        assert f"{name} {weight:.2f}" in label
    points = page.locator("#live-proposals .ss-mini-line").evaluate_all(
        "lines => lines.map((line) => line.getAttribute('d').split('L').length)"
    )
    assert points == [len(history)] * 3


def test_vote_tree_keeps_what_the_events_say(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0], width=1920, height=1000))
    decode(page, "specinfer-paper", combine="vote_tree")
    run = recorded(real[1])
    number = with_draft(run, dropping=True)[0]
    choose(page, number)
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
    choose(page, number)
    check_grid(page, run, number)
    tree = run.combined[number]
    first = [row[0]["mass"] for row in chips(page)]
    assert all("∏" in mass and close(mass, tree.masses[0]) for mass in first)
    shot(page, "log-pool-1280-dark")


def test_best_shows_estimates_reason_and_prediction_as_recorded(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0]))
    decode(page, "best")
    run = recorded(real[1])
    assert run.started.config["speculation"]["length"] == "goodput"
    number = max(range(len(run.completed)), key=lambda r: len(run.completed[r].estimates))
    choose(page, number)
    completed = run.completed[number]
    panel = page.locator("#live-lengths")
    reason = panel.locator(".ss-choice-said").inner_text()
    assert completed.length_reason.replace("->", "→") in reason
    columns = panel.locator(".ss-mini-col title").all_text_contents()
    assert len(columns) == len(completed.estimates) > 1
    for text, estimate in zip(columns, completed.estimates, strict=True):
        speed = 1000 * estimate.tokens / estimate.ms
        length, tokens = text.split(" tokens in ")[0].split(": ")
        assert length == f"length {estimate.length}" and close(tokens, estimate.tokens)
        assert number_in(text.split(", ")[1]) == pytest.approx(speed, abs=0.06)
    chosen = panel.locator(".ss-mini-chosen title").text_content()
    assert chosen.startswith(f"length {completed.next_speculation_length}:")
    told = page.locator("#live-timeline .ss-ahead-predicted").inner_text()
    predicted = re.search(r"predicted ([\d.]+) ms", told)
    assert predicted and float(predicted[1]) == pytest.approx(completed.predicted_ms, abs=0.06)
    check_lanes(page, run, number)
    shot(page, "best-1280-light")


def check_lanes(page: Any, run: Recorded, number: int) -> None:
    """The bars of the selected round are its spans."""
    plot = "document.querySelector('#live-timeline .ss-plot')"
    page.wait_for_function(f"{plot}.data?.[0].customdata.some((bar) => bar[0] === {number})")
    bars = page.evaluate(
        f"""() => {{ const trace = {plot}.data[0];
        return trace.base.map((start, i) => [trace.customdata[i][0], start, trace.x[i]])
          .filter((bar) => bar[0] === {number}).map((bar) => bar.slice(1)); }}"""
    )
    spans = [s for s in run.completed[number].spans if s.name != "prefill"]
    assert len(bars) >= len(spans)
    starts = sorted(start for start, _ in bars)[-len(spans) :]
    assert starts == pytest.approx(sorted(s.start_ms for s in spans), abs=2e-3)


def test_a_replay_shows_the_vote_that_live_showed(
    real: tuple[str, Context], browser_page: OpenPage
) -> None:
    page = ready(browser_page(real[0]))
    decode(page, "minions")
    live = page.locator("#live-proposals .ss-vote-said").inner_text()
    grid = page.locator("#live-proposals .ss-votes").inner_text()
    sessions(page)
    page.locator(".sp-open").first.click()
    said(page, "Finished: ", "sessions")
    settled(page)
    assert page.locator("#sessions-proposals .ss-vote-said").inner_text() == live
    assert page.locator("#sessions-proposals .ss-votes").inner_text() == grid
