"""A drafter node that disconnects during a run, in a real Chromium."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig, connect_nodes
from core.config.nodes import NodeSettings
from core.engine.worker import Worker
from core.models.loading.catalog import vocabulary_hash
from core.models.loading.load import LoadedModels
from core.remote_ssms.node_link import NodeLink
from core.remote_ssms.server import NodeServer
from tests.core.engines import ids_of_events
from tests.core.remote_ssms.served import node_at_address
from tests.ui import decoded, sites
from ui.server.context import Context

pytestmark = pytest.mark.browser

TOKENS = 40
ROUNDS = 3
LONG_MS = 120_000  # the timeout for a remote SSM on a busy machine
ALL_IN_SIGHT = """(row) => {
  const { left, right } = row.closest(".ss-panel").getBoundingClientRect();
  const boxes = [...row.querySelectorAll("dd")].map((one) => one.getBoundingClientRect());
  return boxes.every((box) => box.width > 0 && box.left >= left && box.right <= right);
}"""
# Long enough that no node is late on a busy machine.
LEAST_DEADLINE_S = 1.0


def held_after(llm: Any, link: NodeLink, rounds: int, patch: pytest.MonkeyPatch) -> threading.Event:
    go_on, forward = threading.Event(), llm.forward

    def hold(feeds: Any) -> Any:
        if len(link.trips) > rounds:
            go_on.wait(LONG_MS / 1000)
        return forward(feeds)

    patch.setattr(llm, "forward", hold)
    return go_on


def row(page: Any, address: str) -> Any:
    return page.locator("#live-timeline .ss-nodes-rows > li").filter(has_text=address)


def test_a_node_that_disconnects_is_seen_to_be_missing(
    tmp_path_factory: pytest.TempPathFactory,
    browser_page: sites.OpenPage,
    bundled: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = bundled.models
    here = replace(models, ssms={})
    with ExitStack() as leaving:
        lost = ExitStack()
        leaving.callback(lost.close)
        far = lost.enter_context(node_at_address(node_of(models, "ssm-stories"), None))
        other = leaving.enter_context(node_at_address(node_of(models, "ssm-dialogue"), None))
        nodes = connect_nodes(NodeSettings((far, other)), here)
        assert nodes is not None
        for link in nodes.links:
            link.least_deadline_s = LEAST_DEADLINE_S
        engine = Engine(here, nodes=nodes).warm_up()
        disconnected = held_after(here.llm, nodes.links[0], ROUNDS, monkeypatch)
        worker = Worker(engine)
        served = sites.serve_page(tmp_path_factory.mktemp("nodes"), worker, ("live",))
        url, context = leaving.enter_context(served)
        page = sites.wait_ready(browser_page(url, width=1920, height=1080))
        decoded.prepare(sites.dock(page, "when"), "specinfer", TOKENS, panes=False)
        sites.open_drawer(page).get_by_label("Ignore EOS").check()
        sites.close_drawer(sites.wait_form_settled(page))
        page.click("#live-run")
        for address in (far, other):
            row(page, address).get_by_text("drafts in time").wait_for(timeout=LONG_MS)
        lost.close()
        # The engine notices the disconnection within the next rounds.
        disconnected.set()
        row(page, far).get_by_text("not there").wait_for(timeout=LONG_MS)
        page.locator("#live-timeline .ss-nodes-said").get_by_text(
            f"1 node of 2 missing: {far} (not there)"
        ).wait_for()
        sites.wait_run(page)
        sites.wait_notice(page, f"node {far}")
        run = last_run(context)
        assert [i for one in run.completed for i in one.token_ids] == alone(bundled, run)
        states = [[trip.state for trip in one.nodes] for one in run.completed]
        assert ["in_time", "in_time"] in states and ["absent", "in_time"] in states
        decoded.wait_all_drawn(page)
        check_rows(page, run)
        sites.shot(page, "nodes-missing-1920")


def node_of(models: LoadedModels, name: str) -> NodeServer:
    vocabulary = vocabulary_hash(models.tokenizer)
    return NodeServer({name: models.ssms[name]}, models.tokenizer, vocabulary)


def last_run(context: Context) -> decoded.Recorded:
    context.store.flush()
    player = sites.desk_of(context).player
    assert player is not None
    return decoded.recording_of(context, player.source.run_id)


def alone(engine: Engine, run: decoded.Recorded) -> list[int]:
    request = Request.from_plain(
        {name: run.started.config[name] for name in ("sampling", "speculation")}
        | {"prompt": run.started.prompt}
    )
    plain = replace(request, speculation=SpeculationConfig.preset("autoregressive"))
    assert isinstance(plain.sampling, SamplingParams)
    return ids_of_events(engine.generate(plain))


def check_rows(page: Any, run: decoded.Recorded) -> None:
    for address in {trip.node for one in run.completed for trip in one.nodes}:
        trips = [t for one in run.completed for t in one.nodes if t.node == address]
        cells = row(page, address).locator("dd").all_inner_texts()
        counts = [
            str(sum(trip.state == state for trip in trips))
            for state in ("in_time", "ahead", "late", "absent")
        ]
        assert cells[5:9] == counts, (cells, counts)
        assert re.search(r"predicted", cells[10]), cells
        assert row(page, address).evaluate(ALL_IN_SIGHT)
