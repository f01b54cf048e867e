"""Checks the page's login in the headers of a request: `Basic`, or `Bearer USER:PASSWORD`. An
OpenAI client whose API key is USER:PASSWORD sends the `Bearer` header."""

from __future__ import annotations

import base64
import secrets

from starlette.requests import Request as HttpRequest

from ui.openai.errors import ApiError

__all__ = ["user_of"]


def user_of(request: HttpRequest, auth: tuple[str, str] | None) -> str:
    """The user of the request's login; empty on a page without a login. Raises ApiError with status
    401 if the login is missing or wrong."""
    if auth is None:
        return ""
    login = _sent_login(request.headers.get("authorization", ""))
    # compare_digest takes equally long wherever its arguments differ. Bytes, since
    # compare_digest refuses texts with non-ASCII characters.
    if not secrets.compare_digest(login.encode(), ":".join(auth).encode()):
        message = "log in as on the page: Basic, or Bearer USER:PASSWORD (an OpenAI client's key)"
        raise ApiError(message, 401, "invalid_api_key")
    return auth[0]


def _sent_login(header: str) -> str:
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode()
        except ValueError:  # no base64, or no text
            return ""
    return ""
