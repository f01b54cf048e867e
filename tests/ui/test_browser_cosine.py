"""Two simultaneous requests with preset and schedule `cosine`, in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.events import RoundCompleted
from tests.ui import decoded, routed, sites
from tests.ui.browser.looks import at_rest
from tests.ui.gates import PASS_S, PassGate, gated_passes
from tests.ui.reading import becomes, click_in_motion
from ui.live.handlers import record_opening
from ui.server.context import Context

pytestmark = pytest.mark.browser

TOKENS = 80
OTHER_PROMPT = "class Stack:\n    def __init__(self):\n        self.items = []\n"
WATCH = """() => { window.seen = {}; setInterval(() => {
  const panel = document.querySelector("#requests");
  const rows = [...panel.querySelectorAll(".sp-requests tbody tr")].map((row) => ({
    ...row.dataset, own: row.className === "sp-own",
    cells: [...row.children].map((cell) => cell.innerText) }));
  const state = { why: panel.querySelector(".sp-all-reason").textContent, rows };
  window.seen[JSON.stringify(state)] = state;
}, 50); }"""
GRANTED = "(where) => document.querySelector(`#${where}-lengths .ss-choice-granted`).textContent"


SECOND_ROW = "#requests .sp-requests tbody tr:nth-child(2)"


@pytest.fixture
def gate(bundled: Engine) -> Iterator[PassGate]:
    with gated_passes(bundled.models.llm) as gate:
        yield gate


def test_two_requests_are_drawn_as_they_were_recorded(
    real: sites.Served, gate: PassGate, browser_page: sites.OpenPage
) -> None:
    url, context = real
    page = sites.wait_ready(browser_page(url))
    decoded.prepare(page, "cosine", TOKENS, panes=False)
    sites.open_drawer(page).get_by_label("Ignore EOS").check()
    sites.close_drawer(sites.wait_form_settled(page))
    sites.dock(page, "requests")  # a pane that is not open is not drawn
    page.locator("#requests .sp-all-pool").get_by_text("No request is decoded now").wait_for()
    page.evaluate(WATCH)
    schedule = page.locator("#requests-schedule").get_by_label("cosine: like lengths together")
    schedule.focus()
    schedule.press("Space")  # the pane is scrolled to what has the focus
    sites.until(page, lambda: context.model_host.schedule == "cosine")
    gate.closed, gate.pass_s = True, PASS_S
    sampling = SamplingParams(TOKENS, ignore_eos=True)
    asked = Request(OTHER_PROMPT, sampling, SpeculationConfig.preset("cosine"))
    another = context.hub.start(asked, "another")
    click_in_motion(page, "#live-run")
    gate.step_until_drawn(page, SECOND_ROW)
    gate.closed = False
    decoded.wait_finished(page)
    sites.until(page, lambda: another.is_done)
    seen = list(page.evaluate("() => window.seen").values())
    own, other = (decoded.recording_of(context, run) for run in (own_run(seen), another.run_id))
    assert own.started.run_id != other.started.run_id
    assert speculation_of(own) == ("cosine", "fused", "across")
    assert sum(grant_of(round_event).num_live == 2 for round_event in own.completed) > 10, (
        "the requests were not decoded at once"
    )
    check_panel(seen, own, other)
    decoded.wait_all_drawn(sites.all_panes(page))
    check_pictures(page, own, [*KINDS])
    sites.shot(page, "cosine-two-requests")
    check_sessions(page, context, own)


def own_run(seen: Sequence[dict[str, Any]]) -> str:
    results = {row["run"] for state in seen for row in state["rows"] if row["own"]}
    assert len(results) == 1, results
    return str(results.pop())


def speculation_of(run: decoded.Recorded) -> tuple[str, str, str]:
    asked = run.started.config["speculation"]
    return asked["routing"], asked["draft"], asked["pipeline"]


def grant_of(round_event: RoundCompleted) -> Any:
    assert round_event.scheduled is not None and round_event.scheduled.schedule == "cosine"
    return round_event.scheduled


def check_panel(
    seen: Sequence[dict[str, Any]], own: decoded.Recorded, other: decoded.Recorded
) -> None:
    compared = 0
    for state in seen:
        if len(state["rows"]) != 2 or any(row["round"] == "0" for row in state["rows"]):
            continue
        assert [row["own"] for row in state["rows"]].count(True) == 1
        last = [
            (own if row["own"] else other).completed[int(row["round"]) - 1] for row in state["rows"]
        ]
        for row, round_event in zip(state["rows"], last, strict=True):
            part = grant_of(round_event)
            nodes = (part.num_drafted, part.num_granted, round_event.num_accepted)
            assert (int(row["drafted"]), int(row["granted"]), int(row["accepted"])) == nodes
            words = f"{part.length_limit} tokens, {part.drafter_limit} SSMs"
            assert row["cells"][2] == (words if part.length_limit else "nothing")
            assert f"{part.num_granted} of {part.num_drafted}" in row["cells"][3]
            words = " ".join(row["cells"])
            assert row["own"] or ("another visitor's request" in words and "class" not in words)
        group = [
            round_event
            for row, round_event in zip(state["rows"], last, strict=True)
            if row["cells"][5] == "in the pass"
        ]
        assert {grant_of(round_event).num_batch for round_event in group} == {len(group)}
        assert state["why"] in {grant_of(round_event).reason for round_event in group}
        compared += 1
    assert compared, "the panel never showed both requests"


ANSWERED = """() => { const dock = document.querySelector("#live-dock");
  const box = (node) => node?.getBoundingClientRect();
  const [edge, row] = [box(dock), box(dock.querySelector(".ss-parts-rows tbody tr"))];
  const rows = [...dock.querySelectorAll(".ss-votes tbody tr")].map((one) => box(one).height);
  return { at: dock.dataset.at, seen: Boolean(row) && row.height > 0 && row.bottom <= edge.bottom,
    rows: rows.length && rows.every((height) => height > 0) }; }"""


def test_from_the_opened_page_two_clicks_say_which_drafter_serves_what(
    real: sites.Served, browser_page: sites.OpenPage
) -> None:
    """A chosen preset runs at once if the page shows a finished run."""
    url, context = real
    record_opening(context)
    page = sites.wait_ready(browser_page(url, width=1280, height=800))
    sites.until(page, lambda: context.opening.source() is not None)
    sites.wait_notice(page, "This is a recorded run")
    sites.choose(page, "preset", "cosine")
    sites.wait_notice(page, "Finished: ")
    becomes(page, ANSWERED, {"at": "who", "seen": True, "rows": True})
    page.locator("#live-dock .sp-dock-tab", has_text="Why").click()
    sites.ran_after(page, context, lambda: sites.choose(page, "preset", "specinfer"))
    assert page.locator("#live-dock").get_attribute("data-at") == "why", (
        "the visitor's choice of a tab stays"
    )
    chips_stay_beside_the_tabs(page)


BESIDE = """() => {
  const box = (one) => one.getBoundingClientRect();
  const [first, second] = document.querySelectorAll(".sp-chip:not([hidden])");
  const tabs = [...document.querySelectorAll("#tabs [role=tab]")].map((one) => box(one).right);
  return Boolean(second) && box(first).left >= Math.max(...tabs);
}"""


def chips_stay_beside_the_tabs(page: Any) -> None:
    becomes(page, BESIDE, True)
    sites.sessions(page)
    becomes(page, BESIDE, True)
    page.set_viewport_size({"width": 1290, "height": 800})
    at_rest(page)
    sites.turn_to(page, "Live")
    page.locator("#live-run").wait_for()
    becomes(page, BESIDE, True)


def check_pictures(
    page: Any, run: decoded.Recorded, kinds: Sequence[str], where: str = "live"
) -> None:
    routed.check_strip(page, run, where)
    sites.wait_notice(page, "Which drafter served which part of the text: ", where)
    meant = page.locator(f"#{where}-routing .ss-parts-meant")
    meant.get_by_text("In each round the SSMs with the highest scores draft").wait_for()
    results = {
        name: [number for number in decoded.with_draft(run) if KINDS[name](run, number)]
        for name in kinds
    }
    # On a busy machine the schedule may allow one SSM in every round: nothing is fused then.
    one_ssm = all(num_drafting(run, number) == 1 for number in decoded.with_draft(run))
    assert all(found or (one_ssm and name in FUSED) for name, found in results.items()), results
    for number in sorted({numbers[len(numbers) // 2] for numbers in results.values() if numbers}):
        if where != "live":
            decoded.click_round(page, number, where)
        routed.check_round(page, run, number, where)
        check_grant(page, run.completed[number], where)


def num_drafting(run: decoded.Recorded, number: int) -> int:
    return sum(one.role in routed.DRAFTING for one in run.completed[number].routing)


def num_trunk_owners(run: decoded.Recorded, number: int) -> int:
    pairs = zip(run.combined[number].origins, routed.trunk_of(run, number), strict=True)
    return len({whose for whose, on_trunk in pairs if on_trunk})


def tries_an_ssm(run: decoded.Recorded, number: int) -> bool:
    return any(one.role == "explored" for one in run.completed[number].routing)


BESIDE_ANOTHER = "another request beside it"
TWO_ON_TRUNK, SIDE_LEAVES = FUSED = ("tokens of two SSMs on the trunk", "side leaves")
KINDS: dict[str, Callable[[decoded.Recorded, int], bool]] = {
    TWO_ON_TRUNK: lambda run, n: num_trunk_owners(run, n) == 2,
    SIDE_LEAVES: lambda run, n: not all(routed.trunk_of(run, n)),
    "an SSM that is tried": tries_an_ssm,
    BESIDE_ANOTHER: lambda run, n: grant_of(run.completed[n]).num_live == 2,
}


def check_grant(page: Any, event: RoundCompleted, where: str) -> None:
    part = grant_of(event)
    are = "request was" if part.num_live == 1 else "requests were"
    nodes = "node that it" if part.num_drafted == 1 else "nodes that it"
    assert part.num_granted == part.num_drafted > 0, "cosine cuts lengths, not trees"
    words = (
        f"Round {event.round + 1}, schedule cosine: {part.num_batch} of {part.num_live} {are} "
        f"verified in this pass of the LLM; this one had all {part.num_drafted} {nodes} drafted "
        f"verified. Why? {part.reason}."
    )
    becomes(page, GRANTED, words, where)


def check_sessions(page: Any, context: Context, run: decoded.Recorded) -> None:
    sites.sessions(page)
    row = page.locator("#sessions-runs tr", has_text=run.started.prompt[:30])
    row.locator(".sp-open").click()
    sites.wait_notice(page, "Finished: ", "sessions")
    decoded.wait_all_drawn(page)
    check_pictures(page, run, [BESIDE_ANOTHER], "sessions")
