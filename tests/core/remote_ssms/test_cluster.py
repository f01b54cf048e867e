"""Nodes that Ray places."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from socket import create_server
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from core import Engine, LoadedModels, connect_nodes
from core.config.nodes import NodeSettings, address_of, node_settings
from core.errors import ConfigError, NodeError
from core.remote_ssms.cluster import place_nodes
from tests.core.engines import rounds_of, tables
from tests.core.remote_ssms.missing import LONG, missing_node
from tests.fakes import loaded_tables

HAS_RAY = find_spec("ray") is not None
ADDRESS = "127.0.0.1:6399"
TOKEN = secrets.token_hex(32)  # Ray reads the token once in a process


def test_without_ray_placing_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, ssms = tables(2)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="cluster is 'auto': .*ray.*requirements-cluster.txt"):
        connect_nodes(NodeSettings(cluster="auto", ssms=("bundled",)), loaded_tables(llm, ssms))


def test_a_missing_cluster_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.remote_ssms.checking.find_spec", lambda name: object())
    llm, ssms = tables(2)
    with create_server(("127.0.0.1", 0)) as listener:
        free = f"127.0.0.1:{listener.getsockname()[1]}"
    began = time.monotonic()
    settings = NodeSettings(cluster=free, ssms=("bundled",))
    with pytest.raises(NodeError, match=f"cluster is '{free}': nothing listens there"):
        connect_nodes(settings, loaded_tables(llm, ssms))
    assert time.monotonic() - began < 20, "Ray was not called"


def test_the_error_says_how_to_start_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(**_: object) -> None:
        raise ConnectionError(
            "Could not find any running Ray instance. Please specify the one to connect to by "
            "setting `--address` flag or `RAY_ADDRESS` environment variable."
        )

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(NodeError, match="cluster is .auto.: no Ray runs .*ray start --h") as raised:
        place_nodes("auto", ("bundled",), None)
    assert "flag" not in str(raised.value)


@pytest.mark.parametrize(
    "address", ["", "here", "ray://127.0.0.1:10001", "http://127.0.0.1:1", "127.0.0.1:0"]
)
def test_an_invalid_cluster_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=f"cluster is '{address}': auto or HOST:PORT, .*no ray:"):
        node_settings((), None, address, None)


def start_ray(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, "--block"]
    path = os.pathsep.join([os.getcwd(), *sys.path[1:]])
    return subprocess.Popen(
        [*command, "--node-ip-address=127.0.0.1"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_ray(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(30)


@dataclass
class Cluster:
    """Two raylets on this machine: a head without the resource `drafts`, and a simulated machine
    with this resource."""

    machine: subprocess.Popen[bytes] | None = None

    def start_machine(self, applications: int = 1) -> None:
        resources = f'--resources={{"drafts": {applications}}}'
        self.machine = start_ray(f"--address={ADDRESS}", "--num-cpus=1", resources)

    def raylet(self) -> int:
        """The process id of the simulated machine's raylet."""
        assert self.machine is not None
        for status in Path("/proc").glob("[0-9]*/stat"):
            name, _, rest = status.read_text().partition("(")[2].rpartition(")")
            if name == "raylet" and int(rest.split()[3]) == self.machine.pid:
                return int(status.parent.name)
        raise AssertionError("the machine has no raylet")


@pytest.fixture(scope="module")
def head() -> Iterator[None]:
    """The cluster's head, which takes seconds to start."""
    # The path is short, since Ray's socket paths begin with it and may have at most 107 characters.
    folder = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        process = start_ray(
            *("--head", f"--port={ADDRESS.split(':')[1]}", "--num-cpus=1"),
            *("--include-dashboard=false", f"--temp-dir={folder.name}"),
        )
        try:
            wait_until(listens, 180)
            yield
        finally:
            end_ray(process)
            folder.cleanup()


@pytest.fixture(params=[1])
def cluster(request: pytest.FixtureRequest, head: None) -> Iterator[Cluster]:
    """A cluster for `param` applications, with a new simulated machine."""
    import ray

    result = Cluster()
    try:
        ray.init(address=ADDRESS, log_to_driver=False)
        # Wait until the previous test's machine is gone.
        wait_until(lambda: "drafts" not in ray.cluster_resources(), 60)
        result.start_machine(request.param)
        wait_until(lambda: "drafts" in ray.cluster_resources(), 60)
        yield result
    finally:
        ray.shutdown()
        place_nodes.cache_clear()
        if result.machine is not None:
            end_ray(result.machine)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def listens() -> bool:
    host, _, port = ADDRESS.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.nightly
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: requirements-cluster.txt, 240 MB")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["actor", "raylet"])
def test_ray_places_a_node_and_starts_it_again(cluster: Cluster, bundled: Engine, how: str) -> None:
    import ray

    ssms = ("ssm-code", "ssm-stories")
    began = time.monotonic()
    (actor,) = place_nodes(ADDRESS, ssms, None).actors
    placing_s = time.monotonic() - began
    pid = ray.get(actor.pid.remote())
    killed = pid if how == "actor" else cluster.raylet()

    def has_ended() -> None:
        if how == "raylet":
            assert cluster.machine is not None
            cluster.machine.wait(60)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30)

    settings = NodeSettings(cluster=ADDRESS, ssms=ssms)
    end = partial(os.kill, killed, signal.SIGKILL)
    with missing_node(bundled, settings, end, has_ended) as run:
        if how == "raylet":
            cluster.start_machine()
            wait_until(lambda: "drafts" in ray.cluster_resources(), 60)
        run.come_back(10 + 3 * placing_s)
    # Another engine in this process uses the existing nodes.
    models = bundled.models
    without_ssms = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
    second_pool = connect_nodes(settings, without_ssms)
    assert second_pool is not None and [*second_pool.drafters] == [*ssms]
    with closing(Engine(without_ssms, nodes=second_pool)) as engine:
        trips = [one.nodes[0] for one in rounds_of(engine.generate(LONG)) if one.nodes]
    assert {trip.starts for trip in trips} == {1}, (
        "the second engine has seen one start of the node"
    )
    assert "in_time" in {trip.state for trip in trips}


@pytest.mark.nightly
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: requirements-cluster.txt, 240 MB")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_two_applications_share_a_cluster(cluster: Cluster, bundled: Engine) -> None:
    code = f"""
from core.remote_ssms.cluster import place_nodes
print(place_nodes({ADDRESS!r}, ("ssm-stories",), None).addresses[0], flush=True)
input()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = other.stdout.readline().strip()
        ssms = ("ssm-code",)
        (ours,) = place_nodes(ADDRESS, ssms, None).addresses
        assert address_of("node", theirs) != address_of("node", ours)
        models = bundled.models
        without_ssms = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
        pool = connect_nodes(NodeSettings(cluster=ADDRESS, ssms=ssms), without_ssms)
        assert pool is not None and [*pool.drafters] == ["ssm-code"]
        pool.close()
        other.communicate("\n", timeout=60)


@pytest.mark.nightly
def test_an_actor_exits_when_its_server_has_ended() -> None:
    """Ray restarts only processes that have ended."""
    code = """
import threading, time
from core.remote_ssms.cluster import _exit_after
serve = threading.Thread(target=lambda: 1 / 0)
serve.start()
threading.Thread(target=_exit_after, args=(serve,), daemon=True).start()
time.sleep(60)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 1 and "ZeroDivisionError" in process.stderr
