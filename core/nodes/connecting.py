"""From settings to connected nodes. Importable without the packages of requirements-cluster.txt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.config.nodes import NodeSettings
from core.errors import ConfigError
from core.models.loading.catalog import vocabulary_hash
from core.models.loading.load import RESERVED_NAMES, LoadedModels

if TYPE_CHECKING:
    from core.nodes.client import RemotePool

__all__ = ["connect_nodes"]


def connect_nodes(
    settings: NodeSettings | None, models: LoadedModels, say: Callable[[str], None] | None = None
) -> RemotePool | None:
    """The nodes' SSMs for an engine over these models; None without nodes. `say`: see
    `load_models`. Raises NodeError naming a node that does not answer or whose SSMs cannot be used,
    and ConfigError."""
    if settings is None:
        return None
    try:
        from core.nodes.client import RemotePool
        from core.nodes.keys import read_keys
        from core.nodes.zmq_transport import ZmqTransport
    except ImportError as error:
        raise ConfigError.of(
            "node",
            settings.addresses[0],
            "none where `pip install -r requirements-cluster.txt` was not run "
            f"({error.name} is missing)",
        ) from error
    transport = ZmqTransport(settings.addresses, read_keys(settings.key_file))
    vocabulary = vocabulary_hash(models.tokenizer)
    pool = RemotePool(transport, settings.addresses, vocabulary, models.llm.vocab_size)
    try:
        return pool.connect({*models.ssms, *RESERVED_NAMES}, say=say)
    except BaseException:
        pool.close()
        raise
