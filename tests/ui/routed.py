"""Checks a routed run's pictures against its events."""

from __future__ import annotations

from typing import Any

from core.metrics import audition_ms
from tests.ui import decoded
from tests.ui.reading import becomes, read
from ui.run.reasons import route_reason

DRAFTING = ("routed", "explored")
CLAUSES = {
    "routed": " drafted",
    "explored": " drafted too, to be measured",
    "waiting": " left out",
    "lost": " lost",
}
# Lists triples: a round's index among the routed rounds, an SSM, and the SSM's part in the round.
STRIP = """(where) => {
  const paths = [...document.querySelectorAll(`#${where}-routing path[data-ssm]`)].map((path) => [
    path.dataset.ssm, path.getAttribute("class").replace("ss-routing-", ""),
    [...new Set([...path.getAttribute("d").matchAll(/M([\\d.]+)/g)].map((m) => Number(m[1])))]]);
  const edges = [...new Set(paths.flatMap(([, , own]) => own))].sort((a, b) => a - b);
  return paths.flatMap(([ssm, part, own]) => own.map((edge) => [edges.indexOf(edge), ssm, part]))
    .sort((a, b) => a[0] - b[0] || (a[1] < b[1] ? -1 : 1));
}"""
SWITCHES = """(where) => [...document.querySelectorAll(`#${where}-routing .ss-routing-switch`)]
  .map((mark) => Number(mark.dataset.round))"""
NODES = """(where) => Object.fromEntries(
  [...document.querySelectorAll(`#${where}-tree .ss-node[data-key]`)]
    .filter((node) => /^\\d+$/.test(node.dataset.key)).map((node) => [node.dataset.key, [
      [...node.querySelectorAll(".ss-svg-badge text")].map((text) => text.textContent).join(""),
      Boolean(document.querySelector(`#${where}-tree .ss-rail[data-key='${node.dataset.key}']`)),
    ]]))"""
SENTENCE = "(where) => document.querySelector(`#${where}-routing .ss-words`).innerText"


def check_strip(page: Any, run: decoded.Recorded, where: str) -> None:
    completed = run.completed
    routed = [event for event in completed if event.routing]
    cells = [
        [place, one.drafter, part_of(run, event.round, one.role)]
        for place, event in enumerate(routed)
        for one in sorted(event.routing, key=lambda one: one.drafter)
    ]
    becomes(page, STRIP, cells, where)
    drafting = [{o.drafter for o in event.routing if o.role in DRAFTING} for event in routed]
    changed = [routed[i].round for i in range(1, len(drafting)) if drafting[i] != drafting[i - 1]]
    becomes(page, SWITCHES, changed, where)
    auditioned = any(map(audition_ms, completed))
    cost = page.locator(f"#{where}-routing .ss-routing-cost").inner_text()
    assert ("all SSMs scored the text's last tokens" in cost) == auditioned


def part_of(run: decoded.Recorded, number: int, role: str) -> str:
    return "chosen" if role in DRAFTING and not run.combined[number].token_ids else role


def trunk_of(run: decoded.Recorded, number: int) -> list[bool]:
    """For each node, whether all drafters of the round proposed the node."""
    drafters = {draft.drafter for draft in run.drafted[number].drafts if draft.spans}
    return [
        drafters <= {proposal.drafter for proposal in proposals}
        for proposals in run.combined[number].proposals
    ]


def check_round(page: Any, run: decoded.Recorded, number: int, where: str) -> None:
    if where == "live":
        decoded.select_round(page, number)
    names, round_event, tree = run.started.drafters, run.completed[number], run.combined[number]
    of_round = f"""(where) => {{
      const sentence = ({SENTENCE})(where);
      return sentence.startsWith("Round {number + 1}:") && sentence;
    }}"""
    sentence = read(page, of_round, where)
    assert f"Why? {route_reason(round_event.routing_reason, number)}." in sentence
    clauses = sentence.partition(". Why?")[0].split("; ")
    for one in round_event.routing:
        letter = "ABCDE"[names.index(one.drafter)]
        clause = next(clause for clause in clauses if f"{letter} {one.drafter}" in clause)
        assert clause.endswith(CLAUSES[one.role]), sentence
    letters = ["ABCDE"[names.index(origin)] for origin in tree.origins]
    pairs = zip(letters, trunk_of(run, number), strict=True)
    expected = {str(node): list(pair) for node, pair in enumerate(pairs)}
    becomes(page, NODES, expected, where)
