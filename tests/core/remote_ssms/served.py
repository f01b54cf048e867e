"""Nodes for tests."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from core import Engine
from core.models.loading.load import LoadedModels
from core.remote_ssms.client import RemotePool
from core.remote_ssms.keys import CurveKeys
from core.remote_ssms.listener import NodeListener
from core.remote_ssms.messages import encode, from_node
from core.remote_ssms.server import NodeServer
from core.remote_ssms.zmq_transport import ZmqTransport
from tests.core.remote_ssms.fake_transport import FakeTransport

HASH = "0f" * 32
Message = TypeVar("Message")


def server_of(models: LoadedModels, names: Sequence[str] | None = None) -> NodeServer:
    ssms = {name: models.ssms[name] for name in names or models.ssms}
    return NodeServer(ssms, models.tokenizer, HASH)


def change_answers(
    server: NodeServer, kind: type[Message], change: Callable[[Message], Message]
) -> None:
    original = server.handle

    def handle(client: bytes, frame: bytes, *interrupt: threading.Event) -> bytes | None:
        answer = original(client, frame, *interrupt)
        message = None if answer is None else from_node(answer)
        return encode(change(message)) if isinstance(message, kind) else answer

    server.handle = handle  # type: ignore[method-assign]


def pool_over(
    models: LoadedModels,
    servers: Sequence[NodeServer],
    transport_type: type[FakeTransport] = FakeTransport,
) -> tuple[RemotePool, FakeTransport]:
    transport = transport_type(servers)
    addresses = [f"10.0.0.{n}:7000" for n in range(1, len(servers) + 1)]
    pool = RemotePool(transport, addresses, HASH, models.llm.vocab_size)
    return pool.connect(()), transport


def engine_over(
    models: LoadedModels, parts: Sequence[Sequence[str]], **settings: str
) -> tuple[Engine, FakeTransport]:
    """`parts`: for each node, the names of its SSMs."""
    pool, transport = pool_over(models, [server_of(models, part) for part in parts])
    without_ssms = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
    return Engine(without_ssms, nodes=pool, **settings), transport


@contextmanager
def node_at_address(
    server: NodeServer, keys: CurveKeys | None, address: str = "127.0.0.1:0"
) -> Iterator[str]:
    socket = NodeListener(server, address, keys)
    ended = threading.Event()
    thread = threading.Thread(target=socket.serve, args=(ended.is_set,))
    thread.start()
    try:
        yield socket.address
    finally:
        ended.set()
        thread.join()
        socket.close()


def start_node(
    address: str, *ssms: str, within: Sequence[str] = (), key_file: str = ""
) -> subprocess.Popen[str]:
    """The node listens some seconds later. `within`: words that precede the command."""
    command = [*within, sys.executable, "-m", "core.nodes", "--listen", address]
    command += ["--dtype", "float32", *(["--key-file", key_file] if key_file else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, "--ssm", *ssms], stdout=subprocess.PIPE, text=True, env=environment
    )


@contextmanager
def opened_nodes(*processes: subprocess.Popen[str]) -> Iterator[tuple[str, ...]]:
    """Waits until all nodes listen."""
    try:
        yield tuple(map(_address_of, processes))
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("node on "), line
    return line.split()[2]


@contextmanager
def node_process(
    address: str, *ssms: str, within: Sequence[str] = (), key_file: str = ""
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = start_node(address, *ssms, within=within, key_file=key_file)
    with opened_nodes(process) as (opened,):
        yield process, opened


@dataclass(frozen=True)
class Namespace:
    """A network namespace in place of a machine. `link`: the local end of the link to the
    namespace; `host`: the namespace's address."""

    name: str
    link: str
    host: str

    @property
    def within(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    def set_link(self, state: str) -> None:
        _ip("link", "set", self.link, state)


_NAMESPACES = itertools.count()


@contextmanager
def namespace(number: int = 1) -> Iterator[Namespace]:
    """Skips the test if no namespace can be made."""
    # The name is new each time, since a link is removed some time after its namespace.
    own = f"{os.getpid() % 10_000}-{next(_NAMESPACES)}"
    subnet = f"10.{os.getpid() % 250}.{number}"
    result = Namespace(f"nodes-{own}", f"sc{own}", f"{subnet}.2")
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("a network namespace takes root and ip (package iproute2)")
    try:
        _ip("netns", "add", result.name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
    try:
        peer = f"{result.link}p"
        _ip("link", "add", result.link, "type", "veth", "peer", "name", peer, "netns", result.name)
        _ip("addr", "add", f"{subnet}.1/24", "dev", result.link)
        _ip("-n", result.name, "addr", "add", f"{result.host}/24", "dev", peer)
        _ip("-n", result.name, "link", "set", peer, "up")
        _ip("-n", result.name, "link", "set", "lo", "up")
        result.set_link("up")
        yield result
    finally:
        _ip("netns", "del", result.name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def pool_to(addresses: list[str], keys: CurveKeys | None, vocab: int = 8) -> RemotePool:
    # The deadline is long, since the machine may be busy.
    return RemotePool(ZmqTransport(addresses, keys), addresses, HASH, vocab, 10.0)
