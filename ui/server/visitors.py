"""Visitors' keys and access rights."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from typing import Any

__all__ = ["Access", "is_loopback", "new_key"]

# Headers that a proxy adds. With a proxy here, every visitor seems to come from this machine.
FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip")


def new_key() -> str:
    """A random key for a visitor, which cannot be guessed."""
    return "visitor-" + secrets.token_urlsafe(18)


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost`, empty, or a loopback address."""
    if host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of this server. `host`: the address it listens on; `auth`: whether visitors
    log in."""

    host: str
    auth: bool = False

    def key(self, request: Any, browser_key: str = "") -> str:
        """The owner key of the caller's runs, from the login, the browser key or the session's
        id."""
        username = getattr(request, "username", None)
        if self.auth and username:
            return f"user-{username}"
        # Only this prefix is accepted: a browser cannot claim a user's or a client's key.
        if isinstance(browser_key, str) and browser_key.startswith("visitor-"):
            return browser_key
        return f"client-{getattr(request, 'session_hash', None) or 'unknown'}"

    def sees_all_runs(self, request: Any) -> bool:
        """Whether the caller sees all runs: the server listens on loopback, and no proxy forwarded
        the request."""
        headers = getattr(request, "headers", None) or {}
        return is_loopback(self.host) and not any(name in headers for name in FORWARDED)

    def owner(self, request: Any, browser_key: str = "") -> str | None:
        """The only owner whose runs the caller may list; None if the caller may list all runs."""
        return None if self.sees_all_runs(request) else self.key(request, browser_key)

    def shows_paths(self, request: Any) -> bool:
        """Whether the caller may see paths of the server."""
        return self.auth or self.sees_all_runs(request)

    @property
    def anyone_may_load(self) -> bool:
        """Whether this server can have visitors who may swap the models."""
        return self.auth or is_loopback(self.host)

    def may_change(self, request: Any) -> bool:
        """Whether the caller may swap the models and choose the schedule, for all visitors."""
        return self.auth or self.sees_all_runs(request)
