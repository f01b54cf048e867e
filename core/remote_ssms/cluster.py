"""Nodes that Ray places and restarts: at most one actor on each machine that offers `drafts`.

Round messages use the actor's own socket, because one Ray call takes as long as a round.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import zmq

from core.config.nodes import in_brackets
from core.errors import NodeError, one_line
from core.remote_ssms.keys import CurveKeys, read_keys
from core.remote_ssms.opening import open_node

__all__ = ["NodeActor", "PlacedNodes", "place_nodes"]

RESOURCE = "drafts"
"""Ray's resource of a machine that may draft: `ray start --resources '{"drafts": 1}'`."""
PLACING_S = 300.0
"""Seconds allowed for finding a port, and for loading the SSMs."""
NO_RAY = "Could not find any running Ray"
"""Part of the message with which Ray reports that no Ray runs on this machine."""


class NodeActor:
    """A node within a Ray actor. A fixed `port` keeps the actor's address after a restart. `keys`:
    the keys, or the name of a key file on the actor's machine."""

    def __init__(self, ssms: Sequence[str], host: str, port: int, keys: CurveKeys | str) -> None:
        from core.models.machine import use_threads

        use_threads()
        if isinstance(keys, str):
            file_keys = read_keys(keys)
            assert file_keys is not None
            keys = file_keys
        node = open_node(f"{in_brackets(host)}:{port}", keys, ssms)
        self._address = node.address
        serve = threading.Thread(target=node.serve, args=(lambda: False,), daemon=True)
        serve.start()
        threading.Thread(target=_exit_after, args=(serve,), daemon=True).start()

    def address(self) -> str:
        """HOST:PORT; Ray answers the call once the SSMs are loaded."""
        return self._address

    def pid(self) -> int:
        """The actor's process id."""
        return os.getpid()


def free_port(host: str) -> int:
    """A port of this machine that is free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        return int(server.getsockname()[1])


def _exit_after(thread: threading.Thread) -> None:
    """Exits the process when the thread ends: Ray restarts only actors whose process has ended."""
    thread.join()
    os._exit(1)


@dataclass(frozen=True, slots=True)
class PlacedNodes:
    """`addresses`: HOST:PORT of each node. `actors`: the nodes' handles; Ray ends an actor when its
    last handle is deleted."""

    addresses: tuple[str, ...]
    keys: CurveKeys
    actors: tuple[Any, ...]


@cache  # a second LLM in this process uses the same nodes
def place_nodes(cluster: str, ssms: tuple[str, ...], key_file: str | None) -> PlacedNodes:
    """Places an actor on each machine that offers `drafts`, at most one for each SSM, and divides
    the SSMs among the actors. The actors run as long as this process. `cluster`: the address for
    `ray.init`. `key_file`: a file on every machine; None: new keys, which Ray passes on. Raises
    NodeError, and ConfigError for an invalid key file."""
    # `curve_keypair` returns the public key, then the secret key.
    keys = read_keys(key_file) or CurveKeys(zmq.curve_keypair()[1], zmq.curve_keypair()[1])
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Untyped, so that mypy reports the same whether or not Ray is installed.
    ray: Any = import_module("ray")
    try:
        ray.init(address=cluster, ignore_reinit_error=True, log_to_driver=False)
    # ConnectionError: not reachable; RuntimeError: a wrong token.
    except (OSError, RuntimeError, ValueError) as error:
        reason = one_line(error)
        if NO_RAY in reason:  # Ray's message ends with a flag that the engine does not have
            reason = (
                "no Ray runs on this machine; start it (ray start --head, or ray start "
                "--address=HOST:PORT for a head elsewhere)"
            )
        raise NodeError.of("cluster", cluster, reason) from error
    machines = [one for one in ray.nodes() if one["Alive"] and one["Resources"].get(RESOURCE)]
    if not machines:
        raise NodeError.of(
            "cluster",
            cluster,
            f"no machine offers {RESOURCE} (ray start --resources '{{\"{RESOURCE}\": 1}}')",
        )
    # At least one SSM per actor.
    machines = machines[: len(ssms)]
    actors = []
    try:
        for number, machine in enumerate(machines):
            host = machine["NodeManagerAddress"]
            # Binds the actor to its machine, so that a restart does not change its address.
            # `node:` names the machine by its address: its Ray id changes when it returns.
            on_machine = {f"node:{host}": 0.001}
            find_port = ray.remote(free_port).options(num_cpus=0, resources=on_machine)
            port = ray.get(find_port.remote(host), timeout=PLACING_S)
            options = {"num_cpus": 0, "max_restarts": -1, "resources": {RESOURCE: 1, **on_machine}}
            actor = ray.remote(NodeActor).options(**options)
            actor_ssms = ssms[number :: len(machines)]
            actors.append(actor.remote(actor_ssms, host, port, key_file or keys))
        addresses = ray.get([actor.address.remote() for actor in actors], timeout=PLACING_S)
    except ray.exceptions.RayError as error:
        raise NodeError.of("cluster", cluster, one_line(error)) from error
    return PlacedNodes(tuple(addresses), keys, tuple(actors))
