"""Connects the nodes of NodeSettings. Importable without the packages of
requirements-cluster.txt."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from core.config.nodes import NodeSettings
from core.models.loading.catalog import BUNDLED, vocabulary_hash
from core.models.loading.load import RESERVED_NAMES, LoadedModels
from core.models.loading.placing import expand_bundled
from core.models.loading.progress import Say
from core.remote_ssms.checking import check_nodes

if TYPE_CHECKING:
    from core.remote_ssms.client import RemotePool

__all__ = ["connect_nodes"]


def _names_of(ssms: Iterable[str]) -> tuple[str, ...]:
    """The SSMs' names; `bundled` is replaced by the names of the bundled SSMs."""
    names: list[str] = []
    for ssm in ssms:
        folders = expand_bundled(ssm) if ssm == BUNDLED else ()
        names += [Path(folder).name for folder in folders] or [ssm]
    return tuple(names)


def connect_nodes(
    settings: NodeSettings | None, models: LoadedModels, say: Say | None = None
) -> RemotePool | None:
    """The nodes' SSMs for an engine with these models; None without settings. Raises ConfigError,
    and NodeError for a node or a cluster that cannot be used."""
    if settings is None:
        return None
    # Before the imports below, whose errors would not say what to install.
    check_nodes(settings)
    # Imported here: msgspec and pyzmq may be missing without nodes.
    from core.remote_ssms.client import RemotePool
    from core.remote_ssms.keys import read_keys
    from core.remote_ssms.zmq_transport import ZmqTransport

    addresses, keys = settings.addresses, read_keys(settings.key_file)
    if settings.cluster:
        from core.remote_ssms.cluster import place_nodes

        if say is not None:
            say(f"Placing nodes in {settings.cluster}")
        names = _names_of(settings.ssms or (BUNDLED,))
        nodes = place_nodes(settings.cluster, names, settings.key_file)
        addresses, keys = nodes.addresses, nodes.keys
    tokenizer_hash = vocabulary_hash(models.tokenizer)
    transport = ZmqTransport(addresses, keys)
    pool = RemotePool(transport, addresses, tokenizer_hash, models.llm.vocab_size)
    # If a node does not answer or is refused, no connection stays open.
    with ExitStack() as on_error:
        on_error.callback(pool.close)
        pool.connect({*models.ssms, *RESERVED_NAMES}, say=say)
        on_error.pop_all()
    return pool
