"""`/v1/completions`, `/v1/chat/completions`, `/v1/models` and `/metrics`: routes in Gradio's app.

A handler holds no thread while it waits for its run.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from core.errors import SpecScopeError
from core.events import Event
from ui.api.polling import in_thread, start_run
from ui.openai.answers import CHAT, COMPLETION, Completion, CompletionFormat
from ui.openai.errors import ApiError, error_body, error_response
from ui.openai.fields import ApiRequest, chat_request, completion_request
from ui.openai.login import user_of
from ui.openai.server_metrics import CONTENT_TYPE
from ui.run.source import LiveSource
from ui.server.context import MAX_WAITING, Context
from ui.server.visitors import new_key

__all__ = ["openai_routes"]

# Seconds between two polls for events: of a running request, and of a queued request.
RUNNING_S, QUEUED_S = 0.005, 0.05
LOST = "events of this run were lost: its end is in the log"
CLIENT_LEFT = 499
# Parsing a body of this size blocks the event loop for half a second.
MOST_BODY_BYTES = 8 << 20

Handler = Callable[[HttpRequest, str], Awaitable[Response]]
"""Takes a request and the user name of its login."""

Parse = Callable[[Context, Any], ApiRequest]


def openai_routes(context: Context, auth: tuple[str, str] | None = None) -> list[Route]:
    """Routes for `Blocks.launch(app_kwargs={"routes": ...})`; `auth`: the page's login, if any."""
    created = int(time.time())

    async def models(_: HttpRequest, user: str) -> Response:
        return JSONResponse({"object": "list", "data": [_model(context, created)]})

    async def model(request: HttpRequest, user: str) -> Response:
        name, loaded = request.path_params["name"], _model(context, created)
        if name != loaded["id"]:
            raise ApiError(f"the model {name!r} does not exist", 404, "model_not_found", "model")
        return JSONResponse(loaded)

    async def metrics(_: HttpRequest, user: str) -> Response:
        now = context.model_host.worker.snapshot()
        llm = context.models[0].name
        text = context.hub.metrics.text(llm, len(now.runs), now.num_waiting)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    starting = _Starting()

    def generation(shape: CompletionFormat, parse: Parse) -> Handler:
        async def generate(request: HttpRequest, user: str) -> Response:
            return await _generate(context, starting, request, user, shape, parse)

        return generate

    def route(path: str, method: str, handler: Handler) -> Route:
        async def endpoint(request: HttpRequest) -> Response:
            try:
                return await handler(request, user_of(request, auth))
            except SpecScopeError as error:
                return error_response(error)

        return Route(path, endpoint, methods=[method])

    return [
        route("/v1/completions", "POST", generation(COMPLETION, completion_request)),
        route("/v1/chat/completions", "POST", generation(CHAT, chat_request)),
        route("/v1/models", "GET", models),
        route("/v1/models/{name:path}", "GET", model),
        route("/metrics", "GET", metrics),
    ]


def _model(context: Context, created: int) -> dict[str, Any]:
    llm = context.models[0]
    return {
        "id": llm.name,
        "object": "model",
        "created": created,
        "owned_by": "specscope",
        "max_model_len": llm.context_length,
    }


# -- a run --


@dataclass
class _Starting:
    """The number of requests whose prompts are being rendered and tokenized. The worker does not
    count these requests yet. The number changes only in the event loop, so it needs no lock."""

    number: int = 0

    @contextmanager
    def track(self) -> Iterator[None]:
        self.number += 1
        try:
            yield
        finally:
            self.number -= 1


async def _generate(
    context: Context,
    starting: _Starting,
    http: HttpRequest,
    user: str,
    shape: CompletionFormat,
    parse: Parse,
) -> Response:
    body = await _json(http)
    host = context.model_host
    if host.worker.waiting() + starting.number >= MAX_WAITING:
        message = f"{MAX_WAITING} requests wait already: try again later"
        raise ApiError(message, 429, "rate_limit_exceeded")
    version = host.version
    # Without a login each request has its own owner, so only visitors who see all runs can open the
    # run.
    owner = context.access.key(SimpleNamespace(username=user), new_key())
    with starting.track():
        api_request = await in_thread(lambda: parse(context, body))
        source = await start_run(context, api_request.request, owner)
    stops = api_request.request.sampling.stop
    answer = Completion(
        shape, api_request.model, source.run_id, stops, api_request.continuous_usage
    )
    if host.version != version:  # the prompt was tokenized for the old models
        source.cancel()
        raise ApiError("the models were exchanged meanwhile: ask again", 503)
    if api_request.stream:
        return _RunStream(source, _sse(http, source, answer, api_request.usage))
    try:
        async for event in _follow(http, source):
            answer.observe(event)
    finally:
        source.cancel()
    if not answer.has_ended and not source.is_done:
        return Response(status_code=CLIENT_LEFT)
    if answer.error or not answer.has_ended:
        raise ApiError(answer.error or LOST, 500)
    return JSONResponse(answer.response())


async def _json(http: HttpRequest) -> Any:
    # A page of another site can send text/plain without a CORS preflight, but not application/json.
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError("Content-Type must be application/json", 415)
    body = bytearray()
    async for part in http.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise ApiError(f"the body has more than {MOST_BODY_BYTES} bytes", 413)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the body is not JSON: {error}") from error


async def _follow(http: HttpRequest, source: LiveSource) -> AsyncIterator[Event]:
    seen = 0
    while True:
        done = source.is_done  # read first: if true, the events below include the last event
        # In a thread, since `events` may block: a slow client's unread events may be only in the
        # log.
        for event in await asyncio.to_thread(source.events, seen, source.count):
            seen += 1
            yield event
        if done or await http.is_disconnected():
            return
        # Polling, since waiting on the source would hold a thread.
        await asyncio.sleep(QUEUED_S if not seen and source.place else RUNNING_S)


async def _sse(
    http: HttpRequest, source: LiveSource, answer: Completion, usage: bool
) -> AsyncIterator[str]:
    if (first := answer.first_chunk()) is not None:
        yield _data(first)
    async for event in _follow(http, source):
        if piece := answer.observe(event):
            yield _data(answer.text_chunk(piece))
    if answer.error or not answer.has_ended:
        yield _data(error_body(answer.error or LOST, 500, None, None))
    else:
        yield _data(answer.finish_chunk())
        if usage:
            yield _data(answer.usage_chunk())
    yield "data: [DONE]\n\n"


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


class _RunStream(StreamingResponse):
    """Stops the run when the stream ends."""

    def __init__(self, source: LiveSource, content: AsyncIterator[str]) -> None:
        # Without X-Accel-Buffering nginx would hold events back until its buffer is full.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(content, headers=headers, media_type="text/event-stream")
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._source.cancel()
