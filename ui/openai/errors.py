"""Errors as OpenAI's clients expect them: a status, and a body `{"error": {...}}`."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from core.errors import ConfigError, ContextLengthError, EngineClosedError, SpecScopeError

__all__ = ["ApiError", "error_body", "error_response"]

KINDS = {401: "authentication_error", 429: "rate_limit_error"}


class ApiError(SpecScopeError):
    """An error whose response has the HTTP status `status`. `code`: OpenAI's name for the error;
    `param`: the request's field at fault."""

    def __init__(
        self, message: str, status: int = 400, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


def error_body(message: str, status: int, code: str | None, param: str | None) -> dict[str, Any]:
    """The body of an error response, or of an error event in a stream that has begun."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {
        "error": {
            "message": message,
            "type": KINDS.get(status, kind),
            "param": param,
            "code": code,
        }
    }


def error_response(error: SpecScopeError) -> JSONResponse:
    """The answer to a request that raised this error."""
    status, code, param = 500, None, None
    if isinstance(error, ApiError):
        status, code, param = error.status, error.code, error.param
    elif isinstance(error, ContextLengthError):
        status, code = 400, "context_length_exceeded"
    elif isinstance(error, ConfigError):
        status = 400
    elif isinstance(error, EngineClosedError):
        status = 503
    # `Basic` is not offered: a browser would then send the login with other sites' requests too.
    headers = {"WWW-Authenticate": 'Bearer realm="SpecScope"'} if status == 401 else None
    return JSONResponse(error_body(str(error), status, code, param), status, headers)
