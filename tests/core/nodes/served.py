"""Nodes for tests: in this process without a socket, on a thread behind one, and as a process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from core import Engine
from core.models.loading.load import LoadedModels
from core.nodes.client import RemotePool
from core.nodes.keys import CurveKeys
from core.nodes.listening import Listening
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


@contextmanager
def listening(
    server: NodeServer, keys: CurveKeys | None, address: str = "127.0.0.1:0"
) -> Iterator[str]:
    """A node on a thread; its address."""
    socket = Listening(server, address, keys)
    ended = threading.Event()
    thread = threading.Thread(target=socket.serve, args=(ended.is_set,))
    thread.start()
    try:
        yield socket.address
    finally:
        ended.set()
        thread.join()
        socket.close()
        server.close()


@contextmanager
def node_process(address: str, *ssms: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`python -m core.nodes`; the process and its address."""
    command = [sys.executable, "-m", "core.nodes", "--listen", address, "--dtype", "float32"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--ssm", *ssms], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("node on "), line
        yield process, line.split()[2]
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        process.stdout.close()
