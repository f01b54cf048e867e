"""Key files: the secret keys of engine and nodes, with which CURVE encrypts and authenticates. An
engine and its nodes share one file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import zmq

from core.errors import ConfigError

__all__ = ["CurveKeys", "read_keys", "write_keys"]

_LINES = re.compile(r"node-secret (\S{40})\nengine-secret (\S{40})\n?")
ALLOWED = "a file that `python -m core.nodes --new-key FILE` wrote"


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """Secret keys in Z85, 40 characters each."""

    node_secret: bytes
    engine_secret: bytes

    def __repr__(self) -> str:
        return "CurveKeys()"  # no secret in a log

    @property
    def node_public(self) -> bytes:
        return zmq.curve_public(self.node_secret)

    @property
    def engine_public(self) -> bytes:
        return zmq.curve_public(self.engine_secret)


def write_keys(path: str) -> None:
    """Writes a new key file with mode 600. Raises ConfigError if the file exists or cannot be
    created."""
    secrets = [zmq.curve_keypair()[1].decode() for _ in range(2)]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError.of("new_key", path, f"a file that can be created ({error})") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write("node-secret {}\nengine-secret {}\n".format(*secrets))


def read_keys(path: str | None, field: str = "node_key_file") -> CurveKeys | None:
    """The keys of a file; None if `path` is None. Raises ConfigError for `field` if the file is no
    key file, or if its mode is neither 600 nor 400."""
    if path is None:
        return None
    try:
        mode = os.stat(path).st_mode & 0o777
        # As ssh does: a key that others have read protects nothing.
        if mode not in (0o600, 0o400):
            value = f"{path} (mode {mode:o})"
            raise ConfigError.of(field, value, "a file that its owner alone can read (chmod 600)")
        match = _LINES.fullmatch(Path(path).read_text(encoding="ascii"))
        if match is None:
            raise ConfigError.of(field, path, ALLOWED)
        keys = CurveKeys(match[1].encode(), match[2].encode())
        # Raises for a key that is not valid Z85.
        _ = keys.node_public, keys.engine_public
    except ConfigError:  # a ValueError, which the next clause would wrap
        raise
    except (OSError, zmq.ZMQError, ValueError) as error:
        raise ConfigError.of(field, path, f"{ALLOWED} ({error})") from error
    return keys
