"""Converts the body of a request to `/v1` into a Request of the engine.

A field that is null counts as absent. Fields in IGNORED cannot change the text. Fields in NEUTRAL
are accepted only with the values listed in NEUTRAL. Unknown fields are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.config import Request
from core.config.checks import integer
from core.errors import ConfigError, ContextLengthError
from core.plurals import number_of
from ui.api.generate import request_from
from ui.openai.errors import ApiError
from ui.server.context import Context

__all__ = ["ApiRequest", "chat_request", "completion_request"]

COMPLETION_TOKENS = 16
"""OpenAI's default of `max_tokens` for completions."""

MAX_TOKENS = 1_000_000
ROLES = ("system", "developer", "user", "assistant", "tool")
ROLES_TEXT = ", ".join(ROLES)
STREAM_OPTIONS = ("include_usage", "include_obfuscation", "continuous_usage_stats")
SAMPLING = ("top_k", "top_p", "min_p", "repetition_penalty", "seed", "ignore_eos")
READ = frozenset(
    ("model", "max_tokens", "max_completion_tokens", "temperature", "stop", "stream")
    + ("stream_options", "preset", "speculation", *SAMPLING)
)
IGNORED = frozenset(
    ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
)
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request and its output options. `usage`: whether a stream ends with the usage;
    `continuous_usage`: whether every chunk has the usage so far."""

    request: Request
    model: str
    stream: bool = False
    usage: bool = False
    continuous_usage: bool = False


def completion_request(context: Context, body: Any) -> ApiRequest:
    """A request to `/v1/completions`. Its `prompt` is a text, a list of token ids, or a list with
    one such prompt. Raises ApiError or ConfigError."""
    fields = _fields(context, body, "prompt")
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        (prompt,) = prompt
    if not isinstance(prompt, list):
        return _api_request(context, fields, prompt, COMPLETION_TOKENS)
    llm = context.models[0]
    if len(prompt) >= llm.context_length:  # before the ids are checked one by one
        raise ContextLengthError(
            f"prompt has {number_of(len(prompt), 'token')}: the context of {llm.name} is "
            f"{llm.context_length}"
        )
    token_ids = _token_ids(prompt, llm.vocab_size)
    text = context.model_host.worker.engine.models.tokenizer.decode(list(token_ids))
    return _api_request(context, fields, text, COMPLETION_TOKENS, token_ids)


def chat_request(context: Context, body: Any) -> ApiRequest:
    """A request to `/v1/chat/completions`. Raises ApiError or ConfigError."""
    fields = _fields(context, body, "messages")
    messages = _messages(fields.get("messages"))
    llm = context.models[0]
    if not context.chat:
        raise ApiError(
            f"model {llm.name} has no chat template: send its prompt to /v1/completions",
            param="messages",
        )
    token_ids = context.model_host.worker.chat_tokens(messages)
    return _api_request(
        context, fields, messages[-1]["content"], llm.context_length, token_ids, chat=True
    )


# -- all fields --


def _fields(context: Context, body: Any, prompt: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ApiError("the body is not a JSON object")
    fields = {name: value for name, value in body.items() if value is not None}
    for name, value in fields.items():
        if name != prompt and name not in READ | IGNORED:
            _refuse_unless_neutral(name, value)
    llm = context.models[0].name
    if fields.get("model", llm) != llm:
        message = f"the model {fields['model']!r} does not exist: {llm} is loaded"
        raise ApiError(message, 404, "model_not_found", "model")
    return fields


def _refuse_unless_neutral(name: str, value: Any) -> None:
    if name not in NEUTRAL:
        raise ApiError(f"{name} is not a field of this endpoint", param=name)
    # Types are compared too, since False == 0: `logprobs` false requests no log-probabilities, but
    # 0 requests the log-probabilities of the sampled tokens.
    if not any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in NEUTRAL[name]
    ):
        allowed = " or ".join(map(json.dumps, NEUTRAL[name]))
        raise ApiError(str(ConfigError.of(name, value, f"only {allowed} is served")), param=name)


def _api_request(
    context: Context,
    fields: Mapping[str, Any],
    prompt: Any,
    default_tokens: int,
    token_ids: tuple[int, ...] = (),
    chat: bool = False,
) -> ApiRequest:
    max_tokens = fields.get("max_completion_tokens", fields.get("max_tokens", default_tokens))
    integer("max_tokens", max_tokens, 1, MAX_TOKENS)
    stop = fields.get("stop", ())
    sampling = {
        "max_new_tokens": max_tokens,
        # OpenAI's default is 1, the engine's is 0.
        "temperature": fields.get("temperature", 1.0),
        "stop": (stop,) if isinstance(stop, str) else stop,
        **{name: fields[name] for name in SAMPLING if name in fields},
    }
    preset = fields.get("preset", context.preset)
    request = request_from(prompt, preset, sampling, _object("speculation", fields), chat)
    options = _object("stream_options", fields)
    if unknown := options.keys() - STREAM_OPTIONS:
        allowed = f"one of {', '.join(STREAM_OPTIONS)}"
        raise ConfigError.must_be("field of stream_options", min(unknown), allowed)
    usage = _flag("include_usage", options)
    return ApiRequest(
        replace(request, prompt_token_ids=token_ids),
        context.models[0].name,
        _flag("stream", fields),
        usage,
        usage and _flag("continuous_usage_stats", options),
    )


def _object(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise ConfigError.must_be(name, value, "an object")
    return value


def _flag(name: str, fields: Mapping[str, Any]) -> bool:
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConfigError.must_be(name, value, "true or false")
    return value


# -- prompts --


def _token_ids(values: list[Any], vocab_size: int) -> tuple[int, ...]:
    # For `isinstance`, JSON's true would be an int.
    if not values or not all(type(value) is int for value in values):
        allowed = "a text, a list of token ids, or a list of one of these: one prompt a request"
        raise ConfigError.must_be("prompt", values, allowed)
    for value in values:
        integer("prompt", value, 0, vocab_size - 1)
    return tuple(values)


def _messages(values: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(values, list) or not values:
        raise ConfigError.must_be("messages", values, "a list of messages, at least one")
    return tuple(map(_message, values))


def _message(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        raise ConfigError.of("messages", value, f"messages with role ({ROLES_TEXT}) and content")
    for name in value.keys() - {"role", "content"}:
        if value[name]:
            raise ApiError(f"{name} of a message is not supported", param="messages")
    content = value.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ConfigError.must_be("content", content, "a text, or a list of parts of type text")
    return {"role": value["role"], "content": "".join(map(str, texts))}
