"""Nodes that Ray places, watches and starts again: one actor on each machine that offers `drafts`.

Ray hands over SSM names and keys, behind its own token, and restarts an actor whose process ends.
What a round says goes past it, over the actor's own socket: a call of Ray takes as long as a round.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence as Many
from importlib import import_module
from typing import Any

import zmq

from core.errors import ConfigError, NodeError
from core.nodes.keys import CurveKeys
from core.nodes.listening import Listening
from core.nodes.server import NodeServer
from core.nodes.warming import warm_up

__all__ = ["NodeActor", "place_nodes"]

RESOURCE = "drafts"
"""`ray start --resources '{"drafts": 1}'`: a machine that may draft."""
FIRST_PORT = 7070
PLACING_S = 300.0
"""How long an actor may take to load its SSMs."""


class NodeActor:
    """A node within a Ray actor; it serves on a thread from the start. `port` is given, so that an
    actor that Ray restarts has the same address."""

    def __init__(self, ssms: Many[str], host: str, port: int, keys: CurveKeys) -> None:
        from core.models.loading.catalog import vocabulary_hash
        from core.models.loading.load import load_ssms
        from core.models.machine import use_threads

        use_threads()
        models, tokenizer = load_ssms(ssms)
        vocabulary = vocabulary_hash(tokenizer)
        server = NodeServer(models, tokenizer, vocabulary)
        warm_up(server, vocabulary, max(model.vocab_size for model in models.values()))
        self._listening = Listening(server, f"{host}:{port}", keys)
        serve = threading.Thread(target=self._listening.serve, args=(lambda: False,), daemon=True)
        serve.start()

    def address(self) -> str:
        """HOST:PORT; answered once its SSMs are loaded."""
        return self._listening.address

    def pid(self) -> int:
        """Its process."""
        return os.getpid()


def place_nodes(
    cluster: str, ssms: Many[str], first_port: int = FIRST_PORT
) -> tuple[tuple[str, ...], CurveKeys, list[Any]]:
    """An actor on each machine of a Ray cluster that offers `drafts`, the SSMs divided among them;
    their addresses, fresh keys, and the actors, which live as long as this process. `cluster`: what
    `ray.init` takes. Raises NodeError, and ConfigError without Ray."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        # Untyped, so that mypy says the same with Ray and without.
        ray: Any = import_module("ray")
        strategies: Any = import_module("ray.util.scheduling_strategies")
    except ImportError as error:
        allowed = "none where `pip install -r requirements-cluster.txt` was not run (no ray)"
        raise ConfigError.of("cluster", cluster, allowed) from error
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
    keys = CurveKeys(zmq.curve_keypair()[1], zmq.curve_keypair()[1])
    actors = []
    for number, machine in enumerate(used):
        options = {
            "num_cpus": 0,
            "max_restarts": -1,
            "resources": {RESOURCE: 1},
            # Its address stays: a machine that is gone is waited for, not replaced.
            "scheduling_strategy": strategies.NodeAffinitySchedulingStrategy(
                machine["NodeID"], soft=False
            ),
        }
        host = machine["NodeManagerAddress"]
        actor = ray.remote(NodeActor).options(**options)
        actors.append(
            actor.remote(list(ssms[number :: len(used)]), host, first_port + number, keys)
        )
    try:
        addresses = ray.get([actor.address.remote() for actor in actors], timeout=PLACING_S)
    except ray.exceptions.RayError as error:
        raise NodeError(f"cluster is {cluster!r}: {' '.join(str(error).split())[:300]}") from error
    return tuple(addresses), keys, actors
