"""NodeSettings: an engine's drafter nodes. A drafter node is a process whose SSMs draft for an
engine."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import ConfigError

__all__ = [
    "NodeSettings",
    "address_of",
    "in_brackets",
    "check_encrypted",
    "ip_address",
    "node_settings",
]

# Few: a round waits for its slowest node.
MAX_DRAFTER_NODES = 16
# A name, an IPv4 address, or an IPv6 address in brackets; `*`, which ZeroMQ accepts, is refused.
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
CLUSTERS = (
    "auto or HOST:PORT, of a cluster that this machine is part of (no ray://: Ray Client needs "
    "packages beyond requirements-cluster.txt at both ends; run ray start --address=HOST:PORT here)"
)
# Only programs of this machine reach these hosts: messages may stay unencrypted.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`addresses`: HOST:PORT of each node. `cluster`: a Ray cluster in which nodes with the SSMs
    `ssms` are started; empty `ssms`: the bundled SSMs.

    `key_file`: the key that engine and nodes share; in a cluster each machine must have the file
    at this path. Without a key file, messages to `addresses` are not encrypted, and Ray distributes
    new keys to the nodes of a cluster."""

    addresses: tuple[str, ...] = ()
    key_file: str | None = None
    cluster: str = ""
    ssms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.cluster and self.addresses:
            raise ConfigError.of("cluster", self.cluster, "without --node")
        if self.cluster not in ("", "auto"):
            address_of("cluster", self.cluster)
        if len(self.addresses) > MAX_DRAFTER_NODES:
            raise ConfigError.must_be(
                "node", len(self.addresses), f"at most {MAX_DRAFTER_NODES} nodes"
            )
        if len({*self.addresses}) < len(self.addresses):
            raise ConfigError.of("node", self.addresses, "name each node once")
        for address in self.addresses:
            host, _ = address_of("node", address)
            check_encrypted("node", host, self.key_file)


def address_of(field: str, address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT. Port 0 is allowed if `field` is `listen`. Raises ConfigError."""
    least = 0 if field == "listen" else 1
    match = _ADDRESS.fullmatch(address)
    if match is None or not least <= int(match["port"]) <= 65535:
        allowed = f"HOST:PORT, a port from {least} to 65535"
        raise ConfigError.of(field, address, CLUSTERS if field == "cluster" else allowed)
    return match["host"], int(match["port"])


def in_brackets(host: str) -> str:
    """The host as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def ip_address(host: str) -> str:
    """An IP address of the host, IPv4 if there is one; an IPv6 address is in brackets. Raises
    OSError."""
    # ZeroMQ cannot bind to a name, and looks a name up in one version of IP only.
    addresses = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    ipv4_first = min(addresses, key=lambda one: one[0] != socket.AF_INET)
    return in_brackets(str(ipv4_first[4][0]))


def check_encrypted(field: str, host: str, key_file: str | None) -> None:
    """Raises ConfigError if there is no key and the host is none of LOOPBACK."""
    if key_file is None and host not in LOOPBACK:
        flag = "--key-file" if field == "listen" else "--node-key-file"
        raise ConfigError.of(
            field,
            host,
            f"only loopback is allowed without a key; pass {flag} FILE (made by `python -m "
            "core.nodes --new-key FILE`)",
        )


def node_settings(
    addresses: Sequence[str], key_file: str | None, cluster: str | None, ssms: Sequence[str] | None
) -> NodeSettings | None:
    """NodeSettings from command-line arguments; None if they name neither a node nor a cluster.
    Raises ConfigError."""
    if ssms is not None and cluster is None:
        raise ConfigError.of("node_ssm", list(ssms), "only with --cluster ADDRESS")
    if cluster is not None:
        # To NodeSettings an empty name means no cluster.
        if not cluster:
            raise ConfigError.of("cluster", cluster, CLUSTERS)
        return NodeSettings(tuple(addresses), key_file, cluster, tuple(ssms or ()))
    if not addresses:
        if key_file is not None:
            raise ConfigError.of("node_key_file", key_file, "only with --node HOST:PORT")
        return None
    return NodeSettings(tuple(addresses), key_file)
