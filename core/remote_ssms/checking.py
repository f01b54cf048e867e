"""Checks node settings. Importable without the packages of requirements-cluster.txt."""

from __future__ import annotations

import socket
from importlib.util import find_spec

from core.config.nodes import NodeSettings, address_of
from core.errors import ConfigError, NodeError

__all__ = ["check_nodes"]

CONNECT_TIMEOUT_S = 5.0
"""Limit for connecting to a Ray cluster; Ray itself tries for minutes."""


def check_nodes(settings: NodeSettings | None) -> None:
    """Raises ConfigError for missing packages or an invalid key file. Raises NodeError if nothing
    listens at the cluster's address."""
    if settings is None:
        return
    field, value = (
        ("cluster", settings.cluster) if settings.cluster else ("node", settings.addresses[0])
    )
    for package in ("msgspec", "zmq", *(("ray",) if settings.cluster else ())):
        if find_spec(package) is None:  # not imported, which takes seconds for Ray
            raise ConfigError.of(
                field,
                value,
                f"package {package} is missing; pip install -r requirements-cluster.txt",
            )
    from core.remote_ssms.keys import read_keys

    read_keys(settings.key_file)
    # With `auto`, Ray itself finds the cluster of this machine: there is no address to check.
    if settings.cluster not in ("", "auto"):
        _check_listens(settings.cluster)


def _check_listens(cluster: str) -> None:
    try:
        host, port = address_of("cluster", cluster)
        with socket.create_connection((host.strip("[]"), port), CONNECT_TIMEOUT_S):
            pass
    except (OSError, UnicodeError) as error:  # UnicodeError: an impossible host name
        raise NodeError.of(
            "cluster", cluster, f"nothing listens there ({error}); ray start --head begins one"
        ) from error
