"""Ranks without processes: refusals, messages, and a sharded pass with threads for ranks."""

import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from core import load_models
from core.config.offload import Offload
from core.config.ranks import RankSplit, ranks_of
from core.errors import ConfigError, OutOfMemoryError, RankError, UnsupportedModelError
from core.models.fastest import compile_forward
from core.models.hf_model import HfModel
from core.models.lean import LeanForward, LeanLayer, LeanWeights
from core.models.loading import load
from core.models.loading.tree_check import checked_model
from core.models.native.forward import CompiledForward
from core.models.ranks import follower, leader, processes
from core.models.ranks.follower import LeaderLink
from core.models.ranks.messages import (
    FORMAT,
    CommitRow,
    EndRank,
    LoadShard,
    OpenRow,
    PassFeed,
    RankJoined,
    RunPass,
    decode_call,
    decode_reply,
    encode,
)
from core.models.ranks.rendezvous import Rendezvous, env_rendezvous
from core.models.ranks.sharding import RankForward, SummedProjection, outputs_of
from tests.core.models.test_lean import all_logits
from tests.fakes import info_of, tiny_module, word_tokenizer

# -- what is refused --


@pytest.mark.parametrize(
    "text", ["tp", "tp=", "tp=two", "tp=-2", "dp=2", "tp=1", "tp=65", "", "2", "tp=2.0", "tp=00002"]
)
def test_values_that_are_no_split_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="llm_ranks"):
        ranks_of(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_rank_reaches_its_leader_at_an_address_or_a_name(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host name must be resolved before ZeroMQ can bind to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, 0), family=family):
            pass
    except OSError as error:
        pytest.skip(f"{host} cannot be bound on this machine: {error}")
    with linked_ranks(host, monkeypatch) as (followers, link):
        link.send(RankJoined(1, FORMAT, "elsewhere"))
        assert followers.collect(RankJoined, 10.0).keys() == {1}
        followers.send_all(OpenRow())
        assert link.receive() == OpenRow()


@contextmanager
def linked_ranks(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[processes.Followers, LeaderLink]]:
    monkeypatch.setenv("MASTER_ADDR", host)
    store = torch.distributed.HashStore()
    monkeypatch.setattr(processes, "env_rendezvous", lambda _: Rendezvous(store, 0, 2))
    followers = processes.Followers(RankSplit("tp", 2))
    link = LeaderLink(Rendezvous(store, 1, 2))
    try:
        yield followers, link
    finally:
        link.close()
        followers.end()


def test_a_rank_uses_no_more_threads_than_its_machine_has_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[int] = []

    def use_threads(count: int) -> None:
        used.append(count)
        raise InterruptedError  # before anything is loaded

    monkeypatch.setattr(follower, "use_threads", use_threads)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    loading: Any = follower._Follower(None, None)  # type: ignore[arg-type]
    for threads in (1, 16):
        message = LoadShard("name", True, "", "tp", 2, "float32", "cpu", threads, 1.0)
        with pytest.raises(InterruptedError), torch.enable_grad():
            loading._load(message)
    assert used == [1, 2]


def test_an_address_in_brackets_is_refused_at_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """With brackets, torch would look up a host of that name for ten minutes."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "[::1]", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"MASTER_ADDR is '\[::1\]': an IPv6 address without"):
        env_rendezvous()


def test_without_the_packages_of_a_cluster_ranks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model_folder(tmp_path, "llama", num_key_value_heads=2)
    monkeypatch.setitem(sys.modules, "core.models.ranks.leader", None)
    with pytest.raises(ConfigError, match="llm_ranks is 'tp=2': .*requirements-cluster.txt"):
        load_models(path, [], "float32", ranks=ranks_of("tp=2"))


def test_a_split_is_parsed_and_refused_with_an_offload() -> None:
    assert ranks_of(None) is None
    assert ranks_of("pp=3") == RankSplit("pp", 3)
    with pytest.raises(ConfigError, match="without --offload"):
        ranks_of("tp=2", Offload("disk"))


@pytest.mark.parametrize(
    ("family", "changes", "text", "reason"),
    [
        ("llama", {"num_key_value_heads": 2}, "tp=3", "4 heads and 2 KV heads"),
        ("llama", {"num_key_value_heads": 2}, "tp=4", "tp=2 for llm"),
        ("llama", {"hidden_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1}, "tp=3",
         "pp=N alone"),
        ("llama", {"num_hidden_layers": 2}, "pp=3", "pp=2 to pp=2 for llm"),
    ],
)  # fmt: skip
def test_a_number_that_does_not_divide_is_refused_before_weights_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    changes: Any,
    text: str,
    reason: str,
) -> None:
    path = model_folder(tmp_path, family, **changes)
    monkeypatch.setattr(leader, "Followers", forbid)
    monkeypatch.setattr(leader, "read_shard", forbid)
    monkeypatch.setattr(load, "read_module", forbid)
    with pytest.raises(ConfigError, match=reason) as caught:
        load_models(path, [], "float32", ranks=ranks_of(text))
    assert f"llm_ranks is '{text}'" in str(caught.value)


@pytest.mark.parametrize("text", ["tp=2", "pp=2"])
def test_other_architectures_are_refused(tmp_path: Path, text: str) -> None:
    path = model_folder(tmp_path, "gpt2")
    with pytest.raises(UnsupportedModelError, match="without --llm-ranks"):
        load_models(path, [], "float32", ranks=ranks_of(text))


def test_more_memory_than_is_free_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, all ranks share the machine's memory, and each rank holds the embedding."""
    path = model_folder(tmp_path, "llama")
    one = load.need_of(path, "float32", torch.device("cpu")).bytes
    config = tiny_module("llama").config
    needed = 2 * (one // 2 + 4 * config.vocab_size * config.hidden_size)
    monkeypatch.setattr(leader, "Followers", forbid)
    monkeypatch.setattr("core.models.loading.placing.available_bytes", lambda _: needed - 1)
    with pytest.raises(OutOfMemoryError, match="are free on cpu"):
        load_models(path, [], "float32", ranks=ranks_of("tp=2"))


def model_folder(tmp_path: Path, family: str, **changes: Any) -> str:
    tiny_module(family, 3, torch.float32, **changes).save_pretrained(tmp_path / "llm")
    word_tokenizer(64).save_pretrained(tmp_path / "llm")
    return str(tmp_path / "llm")


def forbid(*_: Any) -> Any:
    raise AssertionError("the split must be refused before this call")


# -- messages --

CALLS = (
    LoadShard("name", True, "", "tp", 2, "float32", "cpu", 1, 20.0),
    RunPass(7, [PassFeed(0, [1, 2], [-1, 0], True)]),
    CommitRow(0, [0, 1], [2]),
)


@pytest.mark.parametrize("decode", [decode_call, decode_reply])
def test_invalid_bytes_are_refused(decode: Callable[[bytes], object]) -> None:
    rng = random.Random(5)
    full = [encode(call) for call in CALLS]
    assert [decode_call(data) for data in full] == list(CALLS)
    pieces = [data[:end] for data in full for end in range(len(data))]
    noise = [rng.randbytes(rng.randrange(200)) for _ in range(1000)]
    unknown = [msgspec.msgpack.encode(["shell", "ls"]), msgspec.msgpack.encode({"type": "pass"})]
    for data in (*pieces, *noise, *unknown):
        with pytest.raises(ValueError, match="message"):
            decode(data)


@pytest.mark.parametrize("version", [0, FORMAT - 1, FORMAT + 1])
def test_a_follower_of_another_version_is_refused(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are arrays without field names: another version would misread calls."""
    with linked_ranks("127.0.0.1", monkeypatch) as (followers, link):
        link.send(RankJoined(1, version, "elsewhere"))
        refusal = f"rank 1 .*its messages have format {version}, here {FORMAT}"
        with pytest.raises(RankError, match=refusal):
            followers.wait_for_all(RankJoined)
        with pytest.raises(RankError, match=refusal):
            followers.send_all(CALLS[0])
        followers.end()
        assert link.receive() == EndRank(), "the first message to the follower"


# -- arithmetic --


class ThreadGroup:
    """A process group whose ranks are threads."""

    def __init__(self, count: int) -> None:
        self._parts: list[Any] = [None] * count
        self._barrier, self.count = threading.Barrier(count, timeout=10), count

    def as_rank(self, rank: int) -> Any:
        return _ThreadRank(self, rank)

    def exchange(self, rank: int, part: torch.Tensor) -> list[torch.Tensor]:
        self._parts[rank] = part.clone()
        self._barrier.wait()
        every = list(self._parts)
        self._barrier.wait()
        return every


class _ThreadRank:
    def __init__(self, threads: ThreadGroup, rank: int) -> None:
        self._threads, self.rank, self.count = threads, rank, threads.count

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        return part.copy_(sum(self._threads.exchange(self.rank, part)))  # type: ignore[arg-type]

    def gather(self, part: torch.Tensor) -> list[torch.Tensor] | None:
        every = self._threads.exchange(self.rank, part)
        return every if self.rank == 0 else None


def slice_of(weights: LeanWeights, rank: int, count: int) -> LeanWeights:
    """Shards independently of `sharding.py`, apart from `outputs_of`."""

    def part_of(matrix: torch.Tensor, sizes: list[int], dim: int) -> torch.Tensor:
        parts = matrix.split(sizes, dim)
        own = [part.tensor_split(count, dim)[rank] for part in parts]
        return torch.cat(own, dim).contiguous()

    def layer_of(layer: LeanLayer) -> LeanLayer:
        size = weights.head_size
        heads = [weights.heads * size, weights.kv_heads * size, weights.kv_heads * size]
        inner = 2 * [layer.gate_up.shape[1] // 2]
        biases = {
            name: part_of(bias, sizes, 0)
            for name, sizes in (("qkv_bias", heads), ("gate_up_bias", inner))
            if (bias := getattr(layer, name)) is not None
        }
        return replace(
            layer,
            qkv=part_of(layer.qkv, heads, 1),
            out=part_of(layer.out, [len(layer.out)], 0),
            gate_up=part_of(layer.gate_up, inner, 1),
            down=part_of(layer.down, [len(layer.down)], 0),
            **biases,
        )

    first, end = outputs_of(weights.head.shape[1], count, rank)
    return replace(
        weights,
        layers=tuple(layer_of(layer) for layer in weights.layers),
        head=weights.head[:, first:end].contiguous(),
        heads=weights.heads // count,
        kv_heads=weights.kv_heads // count,
    )


SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"num_key_value_heads": 2}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "intermediate_size": 53}),
    ("qwen2", {"num_key_value_heads": 4, "vocab_size": 71}),
    ("qwen3", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    ("mistral", {"num_key_value_heads": 2}),
]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("family", "changes"), SHAPES)
def test_parts_of_two_ranks_add_up_to_the_full_pass(
    family: str, changes: dict[str, Any], compiled: bool
) -> None:
    module = tiny_module(family, 3, torch.float32, **changes)
    full = checked_model(module, info_of(module, family, role="llm"))
    assert full.lean_weights is not None
    threads, weights = ThreadGroup(2), full.lean_weights

    def model_of(rank: int) -> HfModel:
        part, group = slice_of(weights, rank, 2), threads.as_rank(rank)
        inner: Any
        if compiled:
            native = compile_forward(part, full.masks)
            assert native is not None
            inner = native.over_ranks(group.all_reduce)
        else:
            inner = LeanForward(part, full.masks, output=lambda m, b: SummedProjection(m, b, group))
        forward = RankForward(inner, weights.head.shape[1], group)
        return HfModel(module, full.info, full.masks, None, forward)

    models = [model_of(rank) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        result, _ = pool.map(all_logits, models)
    for got, expected in zip(result, all_logits(full), strict=True):
        assert got.shape == expected.shape
        assert float((got - expected).abs().max() / expected.abs().max().clamp(min=1.0)) < 1e-4


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pass_in_halves_gives_the_same_bits(
    dtype: torch.dtype, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer runs in an attention half and an MLP half."""
    monkeypatch.setattr("core.models.native.forward.MIN_BYTES_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: workers)
    module = tiny_module("llama", 3, dtype, attention_bias=True, mlp_bias=True)
    full = checked_model(module, info_of(module, "llama", role="llm"))
    assert isinstance(full._forward, CompiledForward) and full._forward.workers == workers
    halves = HfModel(module, full.info, full.masks, None, full._forward.over_ranks(lambda _: 0))
    for got, expected in zip(all_logits(halves), all_logits(full), strict=True):
        assert torch.equal(got, expected)
