"""Parts of device rounds."""

import numpy as np
import pytest
import torch

from core.cuda.kv_view import TreeLayout, first_equal
from core.cuda.staging import DeviceToHost, HostToDevice, as_reals, pack
from core.drafters.calibration import Calibration, updated_temperatures
from core.models.graph_cache import CachedGraph, GraphPool
from core.trees.noise import SeededNoise, gumbel_rows, gumbel_vectors, to_int64
from core.trees.tree import ROOT
from tests.laws.trees import ancestors

CPU = torch.device("cpu")


def test_a_layout_is_numbered_as_drafts_are() -> None:
    layout = TreeLayout((2, 1, 2))
    assert layout.parents == (ROOT, ROOT, 0, 1, 2, 2, 3, 3)
    assert layout.depths == (1, 1, 2, 2, 3, 3, 3, 3)
    assert layout.ranks == (0, 1, 0, 0, 0, 1, 0, 1)
    assert layout.levels == (range(2), range(2, 4), range(4, 8)) and layout.num_fed == 4
    assert len(TreeLayout(())) == 0 and TreeLayout(()).num_fed == 0


def test_copies_of_a_layout_share_one_root() -> None:
    layout, one = TreeLayout((2, 2), copies=3), TreeLayout((2, 2))
    assert len(layout) == 3 * len(one) and layout.ranks == 3 * one.ranks
    assert layout.parents[6:12] == (ROOT, ROOT, 6, 6, 7, 7)
    tables = layout.tensors(CPU)
    for node, row in enumerate(tables.ancestors[1:, 1:]):
        assert {*row.nonzero().flatten().tolist()} == ancestors(layout.parents, node)
    assert bool(tables.ancestors[:, 0].all())
    assert tables.ancestors[0].tolist() == [True] + [False] * 18
    assert tables.parents.tolist() == [parent + 1 for parent in layout.parents]
    # Node 9 is a child of 6; a path is padded with its last node.
    assert tables.lineage[9 + 1].tolist() == [6, 9] and tables.lineage[6 + 1].tolist() == [6, 6]


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1), (2, 2), (1, 3, 2), (2, 1, 2)])
def test_above_the_deepest_level_every_node_of_a_lineage_is_fed(shape: tuple[int, ...]) -> None:
    layout = TreeLayout(shape)
    above = layout.tensors(CPU).lineage[:, : len(shape) - 1]
    assert above.shape == (len(layout) + 1, len(shape) - 1)
    assert bool((above < layout.num_fed).all())


def test_equal_nodes_of_copies_are_found() -> None:
    layout = TreeLayout((2, 1), copies=2)  # nodes 0, 1, children 2, 3; copies 4 to 7
    tables = layout.tensors(CPU)
    tokens = torch.tensor([[3, 4, 8, 9, 4, 5, 9, 8], [1, 2, 7, 7, 1, 2, 7, 6]])
    assert first_equal(tokens, tables).tolist() == [
        [0, 1, 2, 3, 4, 2, 6, 4, 8],  # entry n + 1 is node n: nodes 4 and 6 equal nodes 1 and 3
        [0, 1, 2, 3, 4, 1, 2, 3, 8],
    ]
    assert first_equal(tokens[:, :0], TreeLayout(()).tensors(CPU)).tolist() == [[0], [0]]


def test_integers_and_reals_are_copied_to_the_device_and_back() -> None:
    inputs = HostToDevice({"ids": (2, 3), "temperature": (2,)}, CPU)
    inputs.host["ids"][:] = [[1, 2, 3], [-4, 5, 6]]
    inputs.host["temperature"][:] = np.array([0.1, 2.5]).view(np.int64)
    inputs.wait()
    inputs.send()
    assert inputs.device["ids"].tolist() == [[1, 2, 3], [-4, 5, 6]]
    assert inputs.reals("temperature").tolist() == [0.1, 2.5]
    packed = pack((inputs.device["ids"], inputs.reals("temperature"), torch.tensor([True, False])))
    result = DeviceToHost(CPU).read(packed, {"ids": (2, 3), "temperature": (2,), "flag": (2,)})
    assert result["ids"].tolist() == [[1, 2, 3], [-4, 5, 6]] and result["flag"].tolist() == [1, 0]
    assert as_reals(result["temperature"]).tolist() == [0.1, 2.5]


def test_batched_noise_equals_the_noise_of_each_position() -> None:
    noise = SeededNoise(77, 1001)
    bases = torch.tensor([[to_int64(noise.base(p)) for p in (4, 5)], [to_int64((1 << 64) - 1), 9]])
    result = gumbel_vectors(bases, 1001)
    assert result.shape == (2, 2, 1001)
    assert result[0, 0].equal(noise.gumbel(4)) and result[0, 1].equal(noise.gumbel(5))
    assert result[1, 0].equal(gumbel_rows([(1 << 64) - 1], 1001)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batched_temperatures_are_updated_like_single_ones(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    utilities = 3 * torch.randn((4, 5, 30), generator=generator).to(dtype)
    utilities[1, :, 20:] = float("-inf")
    tokens = torch.randint(0, 30, (4, 5), generator=generator)
    tokens[2, 3:] = -1
    tokens[1, 2] = 25  # its utility is -inf
    first = [1.0, 0.7, 1.3, 3.9]
    expected = []
    for row, temperature in enumerate(first):
        one = Calibration(temperature)
        met = [(place, token) for place, token in enumerate(tokens[row].tolist()) if token >= 0]
        seen = [float(utilities[row, place, token]) for place, token in met]
        one.observe(seen, [one.moments(utilities[row, place]) for place, _ in met])
        expected.append(one.temperature)
    result = updated_temperatures(utilities, tokens, torch.tensor(first, dtype=torch.float64))
    assert result.tolist() == pytest.approx(expected, rel=1e-6)
    assert all(one != other for one, other in zip(result.tolist(), first, strict=True))


def test_work_without_capture_runs_once_a_call() -> None:
    total = torch.zeros(())
    work = CachedGraph(lambda: total.add_(1).clone(), GraphPool(capture=False))
    assert [float(work()) for _ in range(4)] == [1, 2, 3, 4] and not work.is_captured


def test_work_that_cannot_be_captured_runs_without_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse(self: GraphPool, work: object) -> None:
        tried.append(work)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(GraphPool, "capture", refuse)
    pool, total = GraphPool(capture=True), torch.zeros(())
    works = [CachedGraph(lambda: total.add_(1).clone(), pool) for _ in range(2)]
    with pytest.warns(UserWarning, match="CUDA graphs are off"):
        assert [float(work()) for work in works for _ in range(3)] == [1, 2, 3, 4, 5, 6]
    assert len(tried) == 1 and not pool.captures


@pytest.mark.gpu
def test_captured_work_runs_once_a_call() -> None:
    pool, total = GraphPool(capture=True), torch.zeros((), device="cuda")
    one, other = (CachedGraph(lambda: total.add_(1) * 1, pool) for _ in range(2))
    assert [float(work()) for work in (one, one, other, one, other, other)] == [1, 2, 3, 4, 5, 6]
    assert one.is_captured and other.is_captured and pool.captures
