"""Addresses, keys and command lines of nodes."""

import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from socket import create_server

import pytest

from app import main as app_main
from core import Engine, connect_nodes
from core.__main__ import main as core_main
from core.config.nodes import NodeSettings, address_of, in_brackets
from core.errors import ConfigError
from core.models.loading import load as loading
from core.models.loading.load import LoadedModels
from core.nodes import main as node_main
from core.remote_ssms import opening
from core.remote_ssms.keys import CurveKeys, read_keys
from core.remote_ssms.listener import NodeListener
from tests.core.remote_ssms.served import node_at_address, pool_over, pool_to, server_of
from tests.fakes import loaded_tables


def test_settings_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = str(tmp_path / "key")
    assert node_main(["--new-key", key]) == 0 and os.stat(key).st_mode & 0o077 == 0
    assert "CurveKeys()" in repr(read_keys(key))
    (tmp_path / "bad").write_text("node-secret x")
    (tmp_path / "bad").chmod(0o600)
    (tmp_path / "open").write_text(Path(key).read_text())
    (tmp_path / "open").chmod(0o640)
    for arguments, words in (
        (["--new-key", key], "new_key is"),
        ([], "listen is None"),
        (["--listen", "127.0.0.1:0"], "ssm is None"),
        (["--listen", "127.0.0.1:0", "--ssm", "x", "--key-file", str(tmp_path / "bad")], "wrote"),
        (
            ["--listen", "127.0.0.1:0", "--ssm", "x", "--key-file", str(tmp_path / "open")],
            "(mode 640)': a file that its owner alone can read",
        ),
        (["--listen", "0.0.0.0:0", "--ssm", "x"], "without a key; pass --key-file FILE"),
        (["--listen", "*:7000", "--ssm", "x"], "listen is '*:7000': HOST:PORT"),
        (["--no-such"], "unrecognized"),
    ):
        assert node_main(arguments) == 2
        assert words in capsys.readouterr().err
    for address in (
        *("10.0.0.1:7000", "127.0.0.1", ":7000", "127.0.0.1:70000", "h:x", "127.0.0.1:0"),
        *("a b:70", "*:70", "::1:70", "[::1:70", f"h:{'7' * 5000}", "ü:70"),
    ):
        assert core_main(["--prompt", "x", "--node", address]) == 2
        assert "node is" in capsys.readouterr().err
    NodeSettings(("localhost:7000", "[::1]:7000"))
    for words, message in (
        (["--cluster", "auto", "--node", "127.0.0.1:1"], "cluster is 'auto': without --node"),
        (["--cluster", ""], "cluster is ''"),
        (["--node-ssm", "x"], "only with --cluster"),
    ):
        assert core_main(["--prompt", "x", *words]) == 2
        assert message in capsys.readouterr().err
    assert core_main(["--prompt", "x", "--node-key-file", key]) == 2
    assert "only with --node" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="each node once"):
        NodeSettings(("127.0.0.1:1", "127.0.0.1:1"))
    NodeSettings(("10.0.0.1:7000",), key)


def test_a_node_may_not_listen_to_others_without_a_key(models: LoadedModels) -> None:
    with pytest.raises(
        ConfigError, match="listen is '0.0.0.0': only loopback is allowed without a key"
    ):
        NodeListener(server_of(models), "0.0.0.0:0", None)


def test_a_node_may_listen_at_an_ipv6_address(models: LoadedModels, keys: CurveKeys) -> None:
    try:
        with node_at_address(server_of(models), keys, "[::1]:0") as address:
            assert address.startswith("[::1]:")
            with closing(pool_to([address], keys)) as pool:
                assert pool.connect(()).infos
    except ConfigError as error:
        assert "Cannot assign requested address" in str(error)
        pytest.skip("this machine has no IPv6")


def test_a_node_may_listen_at_a_host_name(models: LoadedModels, keys: CurveKeys) -> None:
    with node_at_address(server_of(models), keys, "localhost:0") as address:
        port = address.rpartition(":")[2]
        with closing(pool_to([f"localhost:{port}"], keys)) as pool:
            assert pool.connect(()).infos


def test_an_address_has_brackets_before_a_port_where_it_needs_them() -> None:
    """Ray and torch write IPv6 addresses without brackets."""
    hosts = ("10.0.0.1", "box", "fd00::7", "[fd00::7]")
    assert [in_brackets(one) for one in hosts] == ["10.0.0.1", "box", "[fd00::7]", "[fd00::7]"]
    assert address_of("listen", f"{in_brackets('fd00::7')}:7070") == ("[fd00::7]", 7070)


def test_an_engine_on_the_device_takes_no_nodes(models: LoadedModels) -> None:
    pool, _ = pool_over(models, [server_of(models)])
    with pytest.raises(ConfigError, match="on_device is True: not with SSMs on nodes"):
        Engine(loaded_tables(models.llm), True, nodes=pool)


def test_an_address_in_use_is_named(models: LoadedModels) -> None:
    with (
        node_at_address(server_of(models), None) as address,
        pytest.raises(ConfigError, match=f"listen is '{address}'"),
    ):
        NodeListener(server_of(models), address, None)


def test_a_node_checks_its_address_before_it_loads(
    models: LoadedModels, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "load_ssms", lambda *_: pytest.fail("loaded"))
    with node_at_address(server_of(models), None) as address:
        assert node_main(["--listen", address, "--ssm", "x"]) == 2
    assert f"error: listen is '{address}': an address that can be bound" in capsys.readouterr().err


@pytest.mark.parametrize("command", [core_main, app_main])
def test_wrong_node_settings_are_refused_before_the_llm_is_loaded(
    command: Callable[[list[str]], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(loading, "load_models", lambda *_: pytest.fail("loaded"))
    prompt = ["--prompt", "x"] if command is core_main else ["--db", str(tmp_path / "runs.db")]
    with create_server(("127.0.0.1", 0)) as listener:
        free = f"127.0.0.1:{listener.getsockname()[1]}"
    missing = str(tmp_path / "missing")
    for words, message in (
        (["--node", "127.0.0.1:1", "--node-key-file", missing], "node_key_file is "),
        (["--cluster", free], f"cluster is '{free}': "),
    ):
        assert command([*prompt, *words]) == 2
        assert f"error: {message}" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert command([*prompt, "--node", "127.0.0.1:1"]) == 2
    assert "zmq is missing" in capsys.readouterr().err


def test_without_the_packages_nodes_are_refused(
    models: LoadedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connect_nodes(None, models) is None
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ConfigError, match="requirements-cluster.txt"):
        connect_nodes(NodeSettings(("127.0.0.1:7000",)), models)
