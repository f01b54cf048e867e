"""Nodes that Ray places, watches and starts again: one actor on each machine that offers `drafts`.

Ray hands over SSM names and keys, behind its own token, and restarts an actor whose process ends.
What a round says goes past it, over the actor's own socket: a call of Ray takes as long as a round.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import zmq

from core.errors import NodeError
from core.nodes.keys import CurveKeys, read_keys
from core.nodes.opening import open_node

__all__ = ["NodeActor", "PlacedNodes", "place_nodes"]

RESOURCE = "drafts"
"""`ray start --resources '{"drafts": 1}'`: a machine that may draft."""
FIRST_PORT = 7070
PLACING_S = 300.0
"""How long an actor may take to load its SSMs."""


class NodeActor:
    """A node within a Ray actor; it serves on a thread from the start. `port` is given, so that an
    actor that Ray restarts has the same address. `keys`: or the name of their file here."""

    def __init__(self, ssms: Sequence[str], host: str, port: int, keys: CurveKeys | str) -> None:
        from core.models.machine import use_threads

        use_threads()
        if isinstance(keys, str):
            found = read_keys(keys)
            assert found is not None
            keys = found
        node = open_node(f"{host}:{port}", keys, ssms)
        self._address = node.address
        serve = threading.Thread(target=node.serve, args=(lambda: False,), daemon=True)
        serve.start()
        threading.Thread(target=_end_with, args=(serve,), daemon=True).start()

    def address(self) -> str:
        """HOST:PORT; answered once its SSMs are loaded."""
        return self._address

    def pid(self) -> int:
        """Its process."""
        return os.getpid()


def _end_with(thread: threading.Thread) -> None:
    """Ends the process with the thread. An actor that no longer serves would else be there for Ray
    and for no engine; one that has ended is started again."""
    thread.join()
    os._exit(1)


@dataclass(frozen=True, slots=True)
class PlacedNodes:
    """`addresses`: HOST:PORT of each. `actors`: end when their last handle does."""

    addresses: tuple[str, ...]
    keys: CurveKeys
    actors: tuple[Any, ...]


@cache  # a second LLM in this process drafts with the nodes that are there
def place_nodes(
    cluster: str, ssms: tuple[str, ...], key_file: str | None, first_port: int = FIRST_PORT
) -> PlacedNodes:
    """An actor on each machine of a Ray cluster that offers `drafts`, the SSMs divided among them.
    They live as long as this process. `cluster`: what `ray.init` takes. `key_file`: is on each
    machine; None: fresh keys, handed over by Ray. Raises NodeError."""
    keys = read_keys(key_file) or CurveKeys(zmq.curve_keypair()[1], zmq.curve_keypair()[1])
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Untyped, so that mypy says the same with Ray and without.
    ray: Any = import_module("ray")
    try:
        ray.init(address=cluster, ignore_reinit_error=True, log_to_driver=False)
    # What cannot be reached is a ConnectionError, a wrong token a RuntimeError.
    except (OSError, RuntimeError, ValueError) as error:
        raise NodeError(f"cluster is {cluster!r}: {' '.join(str(error).split())[:300]}") from error
    machines = [one for one in ray.nodes() if one["Alive"] and one["Resources"].get(RESOURCE)]
    if not machines:
        raise NodeError(
            f"cluster is {cluster!r}: no machine offers {RESOURCE} "
            f"(ray start --resources '{{\"{RESOURCE}\": 1}}')"
        )
    used = machines[: len(ssms)]
    actors = []
    for number, machine in enumerate(used):
        host = machine["NodeManagerAddress"]
        # Its address stays: a machine that is gone is waited for, not replaced. By address, since
        # Ray gives one that comes back another id.
        resources = {RESOURCE: 1, f"node:{host}": 0.001}
        options = {"num_cpus": 0, "max_restarts": -1, "resources": resources}
        actor = ray.remote(NodeActor).options(**options)
        actors.append(
            actor.remote(ssms[number :: len(used)], host, first_port + number, key_file or keys)
        )
    try:
        addresses = ray.get([actor.address.remote() for actor in actors], timeout=PLACING_S)
    except ray.exceptions.RayError as error:
        raise NodeError(f"cluster is {cluster!r}: {' '.join(str(error).split())[:300]}") from error
    return PlacedNodes(tuple(addresses), keys, tuple(actors))
