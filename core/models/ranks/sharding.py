"""One rank's shard of an LLM. transformers reads and divides the weights.

Tensor parallel: each rank has the whole embedding and residual stream, and a part of the LM head's
outputs and of every layer's attention heads and MLP units. It runs this project's pass: an
all-reduce after each half of a layer adds up the ranks' products. Pipeline parallel: each rank has
some layers, and runs transformers' pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from core.config.ranks import RankSplit
from core.errors import ConfigError, UnsupportedModelError
from core.events import ModelInfo
from core.models.fastest import compile_forward, compiled_of
from core.models.forward import Forward, MaskKind
from core.models.hf_model import HfModel
from core.models.kv_cache import KVArena
from core.models.layer_ops import Projection
from core.models.lean import LeanForward, LeanWeights
from core.models.lean_weights import ARCHITECTURES, lean_weights
from core.models.loading.catalog import ModelSource
from core.models.loading.reading import architecture_of, read_module, reading_model
from core.models.loading.tree_check import (
    checked_model,
    difference,
    plain_logits,
    tolerance,
    tree_logits,
)
from core.models.ranks.group import RankGroup, exchange
from core.models.rows import Batch
from core.plurals import number_of

if TYPE_CHECKING:
    from core.models.native.forward import CompiledForward

__all__ = ["RankForward", "check_split", "checked_shard", "read_shard"]


def check_split(config: Any, name: str, split: RankSplit) -> None:
    """Checks by the configuration alone that a model can be divided. Raises ConfigError for a
    number of ranks that does not divide the model, UnsupportedModelError for a model that cannot be
    divided."""
    kind = architecture_of(config)
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError(
            f"model {name} has quantized weights: only unquantized weights can be divided among "
            "ranks"
        )
    if split.split == "pp":
        layers = int(getattr(config, "num_hidden_layers", 0))
        if getattr(config, "base_model_pp_plan", None) is None:
            raise UnsupportedModelError(
                f"model {name} has architecture {kind}: transformers has no pipeline plan for it; "
                "load it without --llm-ranks, or load a Llama, Mistral or Qwen"
            )
        if split.count > layers:
            raise ConfigError.of("llm_ranks", str(split), f"pp=2 to pp={layers} for {name}, which "
                                 f"has {number_of(layers, 'layer')}")  # fmt: skip
        return
    if kind not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"model {name} has architecture {kind}: its layers cannot be divided among ranks; "
            "load it without --llm-ranks, or load a Llama, Mistral, Qwen 2 or Qwen 3"
        )
    heads, kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
    # No query head and no KV head is divided: n divides both numbers.
    sizes = [n for n in range(2, heads + 1) if heads % n == 0 and kv_heads % n == 0]
    if split.count not in sizes:
        allowed = " or ".join(f"tp={n}" for n in sizes) or "pp=N alone"
        raise ConfigError.of(
            "llm_ranks",
            str(split),
            f"{allowed} for {name}, which has {heads} heads and {kv_heads} KV heads: each rank has "
            "whole heads",
        )


def read_shard(source: ModelSource, config: Any, dtype: torch.dtype, split: RankSplit) -> Any:
    """This rank's module, in eval mode. All ranks must call this function together. Raises
    ModelLoadError."""
    from transformers.distributed.configuration_utils import DistributedConfig

    tensor = split.split == "tp"
    sizes = (
        DistributedConfig(tp_size=split.count) if tensor else DistributedConfig(pp_size=split.count)
    )
    with reading_model(source):
        module = read_module(source, config, dtype, sizes).eval()
    # With this field the model's fingerprint would depend on the number of ranks.
    vars(module.config).pop("distributed_config", None)
    return module


def checked_shard(
    module: Any, info: ModelInfo, split: RankSplit, group: RankGroup, barrier: Callable[[], None]
) -> HfModel:
    """The shard's HfModel, after the tree check. All ranks must call this function together, and
    make the same passes in the same order. `barrier` waits for all ranks. The collectives' timeout
    does not apply to `barrier`: ranks take different times to read and compile. Raises the errors
    of `checked_model`."""
    barrier()
    if split.split == "pp":
        stage = module._pp_stage
        stage.communicate = _with_traffic(stage.communicate, group)
        stage.broadcast_from_last = _with_traffic(stage.broadcast_from_last, group)
        return checked_model(module, info, lambda model, _: model)
    return checked_model(module, info, partial(_sharded_model, group=group, barrier=barrier))


def _with_traffic(communicate: Any, group: RankGroup) -> Any:
    """Wraps a pipeline stage's communication to count its bytes."""

    def timed_call(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = exchange(communicate)(*args, **options)
        # A receive and a broadcast return the tensor; a send takes the tensor and returns None.
        tensors = (result, options.get("tensor"), *args)
        num_bytes = next((part.nbytes for part in tensors if isinstance(part, torch.Tensor)), 0)
        group.count_collective(num_bytes, start)
        return result

    return timed_call


def _sharded_model(
    model: HfModel, module: Any, group: RankGroup, barrier: Callable[[], None]
) -> HfModel:
    """This rank's model with this project's pass. Raises UnsupportedModelError if its logits differ
    too much from the logits of transformers' passes."""
    # The reference is computed first: `_local_weights` replaces the parameters that transformers
    # divided.
    paths = tree_logits(model)
    plain = [plain_logits(module, model.device, path) for _, path in paths]
    weights = _local_weights(module, group)
    compiled = compile_forward(weights, model.masks)
    barrier()
    forward = _forward(weights, model.masks, model.vocab_size, group, compiled)
    sharded = HfModel(module, model.info, model.masks, None, forward)
    tree = [logits for logits, _ in tree_logits(sharded)]
    # Only rank 0 has all logits. All ranks must decide alike: a rank that went on alone would wait
    # for the other ranks' collectives.
    worst = 0.0
    if group.rank == 0:
        worst = max(difference(p, t) for p, t in zip(plain, tree, strict=True))
    if (worst := group.broadcast(worst)) > tolerance(model.dtype):
        raise UnsupportedModelError(
            f"model {model.info.name} has architecture {model.info.architecture} (a pass over "
            f"ranks and one through transformers differ by {worst:.2g}): without --llm-ranks it "
            "may be allowed"
        )
    # A compiled pass has packed copies of the weights: the originals are freed.
    if compiled_of(forward.inner):
        module.model.layers = torch.nn.ModuleList()
        module.lm_head.weight = torch.nn.Parameter(weights.head.to("meta").t(), requires_grad=False)
    return sharded


@torch.no_grad()
def _local_weights(module: Any, group: RankGroup) -> LeanWeights:
    """This rank's weights. Replaces the module's distributed parameters by plain parameters."""
    from torch.distributed.tensor import DTensor

    embedding, head = module.get_input_embeddings(), module.get_output_embeddings()
    is_tied = bool(module.config.tie_word_embeddings)
    if isinstance(embedding.weight, DTensor):
        _set(embedding, "weight", embedding.weight.full_tensor())
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if isinstance(parameter, DTensor):
                _set(part, name, parameter.to_local())
    # transformers does not divide a tied head, nor the head of some models.
    if is_tied or len(head.weight) == len(embedding.weight):
        undivided = embedding.weight if is_tied else head.weight
        first, end = outputs_of(len(undivided), group.count, group.rank)
        _set(head, "weight", undivided[first:end])
    weights = lean_weights(module)
    if weights is None:
        raise UnsupportedModelError(
            f"model {type(module).__name__} has parts that cannot be divided among ranks: without "
            "--llm-ranks it may be allowed"
        )
    # `lean_weights` reads the numbers of heads of the whole model from the config.
    return replace(
        weights, heads=weights.heads // group.count, kv_heads=weights.kv_heads // group.count
    )


def _set(part: Any, name: str, value: torch.Tensor) -> None:
    # In `_parameters` directly: bypasses the hooks with which transformers divides modules.
    part._parameters[name] = torch.nn.Parameter(value.detach(), requires_grad=False)


def outputs_of(total: int, count: int, rank: int) -> tuple[int, int]:
    """The range [first, end) of the LM head's outputs on `rank`. As torch divides tensors, the
    last ranks may have fewer outputs."""
    # ceil(total / count)
    each = -(-total // count)
    return min(total, rank * each), min(total, (rank + 1) * each)


def _forward(
    weights: LeanWeights,
    masks: MaskKind,
    vocabulary: int,
    group: RankGroup,
    compiled: CompiledForward | None,
) -> RankForward:
    """The compiled pass if every rank has one, else LeanForward."""
    # The two passes make different collectives: ranks with different passes would deadlock.
    num_compiled = group.all_reduce(
        torch.tensor([float(compiled is not None)], device=group.device)
    )
    if compiled is not None and int(num_compiled) == group.count:
        return RankForward(compiled.over_ranks(group.all_reduce), vocabulary, group)
    lean = LeanForward(weights, masks, output=partial(SummedProjection, group=group))
    return RankForward(lean, vocabulary, group)


class SummedProjection(Projection):
    """A Projection whose inputs are divided among ranks: `matrix` has this rank's rows, `bias` is
    the same on all ranks."""

    def __init__(self, matrix: torch.Tensor, bias: torch.Tensor | None, group: RankGroup) -> None:
        super().__init__(matrix, bias)
        self._group, self._own_bias = group, bias

    def residual(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        # x + sum over ranks r of y_r W_r + bias: the bias is added once, not once per rank.
        total = self._group.all_reduce(torch.mm(y, self.matrix)).add_(x)
        return total if self._own_bias is None else total.add_(self._own_bias)


class RankForward:
    """See Forward. `inner` computes this rank's logits. On rank 0 `logits` returns the logits of
    all ranks, elsewhere this rank's alone. `vocabulary`: outputs of the undivided head."""

    def __init__(self, inner: Forward, vocabulary: int, group: RankGroup) -> None:
        self.inner, self._group, self._vocabulary = inner, group, vocabulary
        self._outputs = outputs_of(vocabulary, group.count, 0)[1]
        self.device, self.dtype = inner.device, inner.dtype
        self.shapes: Sequence[Any] = inner.shapes

    @property
    def weight_bytes(self) -> int:
        return self.inner.weight_bytes

    def logits(self, batch: Batch, arena: KVArena) -> torch.Tensor:
        part = self.inner.logits(batch, arena)
        # A gather needs equal shapes; the last ranks may have fewer outputs.
        local = F.pad(part, (0, self._outputs - part.shape[-1])).contiguous()
        parts = self._group.gather(local)
        return part if parts is None else torch.cat(parts, -1)[..., : self._vocabulary]
