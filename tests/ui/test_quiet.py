"""No event of the page writes its state into a component (ui/pages/quiet.py)."""

from __future__ import annotations

from typing import Any

from storage import RunStore
from tests.ui.boards import context
from ui.page import build_page


def loud(dependencies: list[dict[str, Any]]) -> list[Any]:
    """Targets of the events that Python answers with values, and that show progress somewhere."""
    return [
        one["targets"]
        for one in dependencies
        if one["backend_fn"]
        and one["targets"]
        and one["outputs"]
        and (one["show_progress"] != "hidden" or one["show_progress_on"] != [])
    ]


def test_no_event_shows_its_progress_anywhere(store: RunStore) -> None:
    dependencies = build_page(context(store)).get_config_file()["dependencies"]
    assert len(dependencies) > 200
    assert loud(dependencies) == []


def test_control_hidden_alone_is_not_enough() -> None:
    one = {"backend_fn": True, "targets": [(7, "click")], "outputs": [8]}
    one |= {"show_progress": "hidden"}
    assert loud([{**one, "show_progress_on": None}]) == [[(7, "click")]]
