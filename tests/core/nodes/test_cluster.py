"""Nodes that Ray places. It takes 240 MB: where it is not installed, its absence is tested."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, connect_nodes
from core.config.nodes import NodeSettings
from core.errors import ConfigError
from core.events import Event
from tests.core.engines import ids_of_events, rounds_of, tables
from tests.fakes import loaded_tables

HAS_RAY = find_spec("ray") is not None
ADDRESS = "127.0.0.1:6399"


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_placing_is_refused_by_name() -> None:
    llm, ssms = tables(2)
    with pytest.raises(ConfigError, match="cluster is 'auto': .*requirements-cluster.txt"):
        connect_nodes(NodeSettings(cluster="auto", ssms=("bundled",)), loaded_tables(llm, ssms))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A head with one machine that may draft. Its token is of this test, and nothing is written at
    home."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # A short path: Ray's sockets are in it, whose names have 107 characters at most.
    folder = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    start = ["start", "--head", f"--port={ADDRESS.split(':')[1]}", "--num-cpus=2"]
    start += ["--node-ip-address=127.0.0.1", '--resources={"drafts": 1}']
    start += ["--include-dashboard=false", f"--temp-dir={folder.name}", "--block"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path[1:]])}
    head = subprocess.Popen(
        [*ray, *start], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 60
        while not listens() and time.monotonic() < until:
            time.sleep(0.2)
        yield ADDRESS
    finally:
        import ray as loaded

        loaded.shutdown()
        head.send_signal(signal.SIGTERM)
        head.wait(30)
        folder.cleanup()


def listens() -> bool:
    """Whether the head takes connections."""
    host, _, port = ADDRESS.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.nightly
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: requirements-cluster.txt, 240 MB")
@pytest.mark.filterwarnings("ignore")
def test_ray_places_a_node_and_starts_it_again(cluster: str, bundled: Engine) -> None:
    models = bundled.models
    here = LoadedModels(models.llm, {}, models.tokenizer, models.eos_ids)
    pool = connect_nodes(NodeSettings(cluster=cluster, ssms=("ssm-code", "ssm-stories")), here)
    assert pool is not None and [*pool.drafters] == ["ssm-code", "ssm-stories"]
    import ray

    engine = Engine(here, nodes=pool)
    sampling = SamplingParams(40, temperature=0.8, seed=3, ignore_eos=True)
    asked = Request("Once upon a time", sampling, SpeculationConfig.preset("specinfer"))
    expected = ids_of_events(bundled.generate(asked))
    (actor,) = pool.actors
    os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
    until, events = time.monotonic() + 120, list[Event]()
    while time.monotonic() < until and pool.links[0].starts < 2:
        events = list(engine.generate(asked))
        assert ids_of_events(events) == expected
        time.sleep(0.2)
    assert pool.links[0].starts == 2
    # Its first answers may be late: what they take tells how long to wait for the next.
    until, states = time.monotonic() + 10, set[str]()
    while time.monotonic() < until and "in_time" not in states:
        events = list(engine.generate(asked))
        assert ids_of_events(events) == expected
        states = {trip.state for one in rounds_of(events) for trip in one.nodes}
    assert "in_time" in states
    engine.close()
