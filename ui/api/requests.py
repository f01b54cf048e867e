"""The endpoints about all requests: `/requests` and `/schedule`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gradio as gr

from core.config.checks import choice
from core.config.mechanisms import SCHEDULES
from ui.server.context import Context
from ui.shared.all_requests import choose_schedule

__all__ = ["ENDPOINTS"]


def _requests(context: Context) -> Callable[..., Any]:
    def requests(gradio_request: gr.Request) -> dict[str, Any]:
        """The requests that are decoded now, with the number of tree nodes granted to each; also
        the number of waiting requests, and how busy each model was in the last rounds.

        `own`: whether a request is the caller's. The `run_id` of another's is null, unless the
        server is reached only from its own machine, without a proxy.
        """
        access = context.access
        key, sees_all = access.key(gradio_request), access.sees_all_runs(gradio_request)
        snapshot = dataclasses.asdict(context.model_host.worker.snapshot())
        for run in snapshot["runs"]:
            source = context.hub.live_run(run["run_id"])
            run["own"] = source is not None and source.owner == key
            run["run_id"] = run["run_id"] if sees_all or run["own"] else None
        return {**snapshot, "runs": list(snapshot["runs"]), "lanes": list(snapshot["lanes"])}

    return requests


def _schedule(context: Context) -> Callable[..., Any]:
    def schedule(gradio_request: gr.Request, name: str = "") -> dict[str, Any]:
        """The schedule of all requests, and those to choose from; `name` chooses one for
        everybody, from the next round on. Choosing is allowed on a server with a login, or if only
        its machine reaches it, without a proxy.
        """
        if name != "":
            choice("name", name, tuple(SCHEDULES))
            choose_schedule(context, name, context.access.may_change(gradio_request))
        fields = ("name", "label", "meaning")
        return {
            "schedule": context.model_host.schedule,
            "schedules": [
                {field: getattr(one, field) for field in fields} for one in SCHEDULES.values()
            ],
        }

    return schedule


ENDPOINTS = (_requests, _schedule)
