"""Engines whose SSMs are on nodes in this process, for tests of nodes."""

from collections.abc import Sequence

from core import Engine
from core.models.loading.load import LoadedModels
from core.nodes.client import RemotePool
from core.nodes.server import NodeServer
from core.nodes.transport import FakeTransport

HASH = "0f" * 32


def server_of(models: LoadedModels, names: Sequence[str] | None = None) -> NodeServer:
    """A node with these of the SSMs, all by default."""
    ssms = {name: models.ssms[name] for name in names or models.ssms}
    return NodeServer(ssms, models.tokenizer, HASH)


def pool_over(
    models: LoadedModels, servers: Sequence[NodeServer]
) -> tuple[RemotePool, FakeTransport]:
    """A connected pool over the servers, and its transport."""
    transport = FakeTransport(servers)
    addresses = [f"10.0.0.{n}:7000" for n in range(1, len(servers) + 1)]
    pool = RemotePool(transport, addresses, HASH, models.llm.vocab_size)
    return pool.connect(()), transport


def engine_over(
    models: LoadedModels, parts: Sequence[Sequence[str]], **settings: str
) -> tuple[Engine, FakeTransport]:
    """An engine whose SSMs are all on nodes, `parts` of them on each."""
    pool, transport = pool_over(models, [server_of(models, part) for part in parts])
    here = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
    return Engine(here, nodes=pool, **settings), transport
