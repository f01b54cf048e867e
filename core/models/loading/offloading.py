"""Loads an LLM with streamed layers. The layers, packed for the pass, are in a cache file (`disk`)
or in host memory (`host`), for a LayerStream.

transformers reads a small model, with one layer for each kind of attention. `checked_model` checks
this small model only.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.config.offload import Offload
from core.errors import ModelLoadError, OutOfMemoryError, UnsupportedModelError
from core.events import ModelInfo
from core.models.fastest import streamed_forward
from core.models.hf_model import HfModel
from core.models.layer_stream import HostLayers, LayerStream, page_aligned
from core.models.lean import MATRICES, LeanLayer, LeanWeights, layer_bytes
from core.models.lean_weights import lean_layer, stored_wide
from core.models.loading.catalog import ModelSource
from core.models.loading.checkpoint import (
    Checkpoint,
    checkpoint_files,
    module_without_weights,
)
from core.models.loading.fingerprint import Fingerprint, identity_of
from core.models.loading.gguf_cache import cache_folder, hold_lock, sha256_of
from core.models.loading.layer_file import FileLayers, pad_to_blocks, read_record, write_layers
from core.models.loading.progress import Say
from core.models.loading.reading import info_of, read_module, reading_model
from core.models.loading.tree_check import broken_weights, checked_model, layer_kinds
from core.models.machine import format_bytes, trim_heap
from core.models.protocol import chain

__all__ = ["load_offloaded"]

FORMAT = 2  # of layer files; files of another format are not used
LAYERS = "model.layers."
FULL = "full_attention"


def load_offloaded(
    source: ModelSource,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    offload: Offload,
    say: Say,
) -> HfModel:
    """The LLM with streamed layers. Raises ModelLoadError, UnsupportedModelError,
    OutOfMemoryError."""
    files = checkpoint_files(source, config)
    say("weights of one layer")
    with reading_model(source):
        module = read_module(source, _small_config(config), dtype).to(device).eval()
        meta = module_without_weights(config)
        info = info_of(meta, source, "llm", dtype, device, "")
    say("tree check")
    first = checked_model(module, info)
    _restore_config(module, config)
    if first.lean_weights is None:
        raise UnsupportedModelError(
            f"model {info.name} has architecture {info.architecture}: its layers cannot be "
            "streamed; without --offload, or a Llama, Mistral, Qwen 2 or Qwen 3 is allowed"
        )
    masks, kernels = first.masks, first.kernels
    checkpoint, kinds = Checkpoint(files, dtype), _attention_kinds(config)
    packer = _LayerPacker(
        info, module, meta, first.lean_weights, checkpoint, kinds, kernels is not None
    )
    del first  # frees the weights of its layers
    with reading_model(source):
        layers, vectors = packer.place_layers(offload, say)
    stream = LayerStream(layers, offload.resident, offload.mbps, offload.mode, device)
    weights = packer.weights(vectors)
    forward = streamed_forward(weights, masks, stream, (kernels, packer.element))
    if kernels is not None and not weights.is_tied:  # the pass reads its packed copy of the head
        weights = replace(weights, head=weights.head.to("meta"))
        module.lm_head.weight = torch.nn.Parameter(weights.head.t(), requires_grad=False)
    info = replace(info, fingerprint=packer.fingerprint)
    model = HfModel(module, info, masks, weights, forward)
    say("a pass over all layers")
    _check_pass(model)
    return model


class _LayerPacker:
    """Packs the layers of an offloaded model. `module`: the small model, `lean`: its weights;
    `meta`: the full module without weights; `kinds`: each layer's kind of attention; `native`:
    whether the pass is compiled. `place_layers` sets `fingerprint` and, for a native pass,
    `element`: the element type of packed matrices."""

    def __init__(
        self,
        info: ModelInfo,
        module: Any,
        meta: Any,
        lean: LeanWeights,
        checkpoint: Checkpoint,
        kinds: list[str],
        native: bool,
    ) -> None:
        self._info, self._module, self._checkpoint = info, module, checkpoint
        self._kinds, self._native = kinds, native
        self._pattern: Any = meta.model.layers[0]
        self._names = list(self._pattern.state_dict())
        state = module.state_dict()
        self._outside_layers = {n: w for n, w in state.items() if not n.startswith(LAYERS)}
        # The small model's layers were only needed for the check.
        module.model.layers = torch.nn.ModuleList()
        first = lean.layers[0]
        matrices = {name: getattr(first, name).to("meta") for name in MATRICES}
        self._lean = replace(lean, layers=(replace(first, **matrices),))
        self.fingerprint, self.element = "", None

    def place_layers(
        self, offload: Offload, say: Any
    ) -> tuple[FileLayers | HostLayers, list[dict[str, torch.Tensor]]]:
        """Packs all layers into host memory, or into the cache file unless it is complete. Returns
        the source for a LayerStream, and the norms and biases of each layer."""
        if offload.mode == "host":
            layers: list[torch.Tensor] = []
            vectors: dict[str, torch.Tensor] = {}
            for layer, layer_vectors in self._pack_layers(say):
                layers.append(self._pin(layer))
                vectors |= layer_vectors
            return HostLayers(layers), self._by_layer(vectors)
        say("hash of the weights")
        folder = cache_folder() / "layers"
        file = folder / f"{self._key()}.layers"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Two processes may load one model: the first writes the file, the other reads it.
            with hold_lock(file.with_suffix(".lock"), say, "writes its layers"):
                record_of_file = read_record(file) if file.exists() else None
                if record_of_file is None:
                    file.with_suffix(".part").unlink(missing_ok=True)  # of a killed process
                    self._check_disk(folder)
                    write_layers(file, self._pack_layers(say), self._record)
                    record_of_file = read_record(file)
        except OSError as error:
            raise ModelLoadError.of(
                "layer file", str(file), f"it cannot be written ({error})"
            ) from error
        assert record_of_file is not None
        record, vectors = record_of_file
        self.fingerprint = record["fingerprint"]
        self.element = np.dtype(record["element"]).type if self._native else None
        return FileLayers(file, record), self._by_layer(vectors)

    def weights(self, vectors: list[dict[str, torch.Tensor]]) -> LeanWeights:
        """The weights for the streamed pass: the layers' matrices are on the device `meta`."""
        device = self._lean.embedding.device
        layers = [
            replace(
                self._lean.layers[0],
                **{name: vector.to(device) for name, vector in by_name.items()},
                sliding=kind == "sliding_attention",
            )
            for by_name, kind in zip(vectors, self._kinds, strict=True)
        ]
        return replace(self._lean, layers=tuple(layers))

    # -- parts --

    def _pack_layers(self, say: Any) -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
        """Each layer's packed bytes, padded, and its norms and biases by name. Sets `element`
        before the first layer and `fingerprint` after the last."""
        count = len(self._kinds)
        fingerprint, outside = Fingerprint(self._module), iter(self._outside_layers.items())
        self.element = self._element() if self._native else None
        # In the order of the full module: the weights before the layers, the layers, the weights
        # after them.
        after_layers: list[tuple[str, torch.Tensor]] = []
        for name, weight in outside:
            if name.startswith("model.norm"):
                after_layers = [(name, weight), *outside]
                break
            fingerprint.add(name, weight)
        for i in range(count):
            say(f"layer {i + 1} of {count}")
            state = self._state(i)
            for name in self._names:
                fingerprint.add(f"{LAYERS}{i}.{name}", state[name])
            layer = self._lean_layer(state)
            del state
            yield pad_to_blocks(self._bytes(layer)), _vectors(i, layer)
            del layer
            trim_heap()  # without trimming, 10 MB of each 30 MB layer were not returned
        for name, weight in after_layers:
            fingerprint.add(name, weight)
        self.fingerprint = fingerprint.text

    def _state(self, layer: int) -> dict[str, torch.Tensor]:
        return self._checkpoint.read({name: f"{LAYERS}{layer}.{name}" for name in self._names})

    def _lean_layer(self, state: dict[str, torch.Tensor]) -> LeanLayer:
        self._pattern.load_state_dict(state, assign=True)
        return lean_layer(self._pattern, FULL, stored_wide(self._lean.embedding))

    def _bytes(self, layer: LeanLayer) -> torch.Tensor:
        if self.element is None:
            return layer_bytes(layer)
        from core.models.native.packing import pack_layer, shape_of

        array = pack_layer(layer, shape_of(self._lean), self.element)
        return torch.from_numpy(array.view(np.uint8))

    def _element(self) -> Any:
        """The element type of packed matrices, the same as without offloading."""
        from core.models.native.packing import is_half, storage_type_of

        # All layers have one element type: choosing it may read all layers.
        layers = (self._lean_layer(self._state(i)) for i in range(len(self._kinds)))
        half = self._lean.embedding.dtype == torch.bfloat16 or (
            is_half(self._lean.head)
            and all(is_half(getattr(layer, name)) for layer in layers for name in MATRICES)
        )
        return storage_type_of(self._lean, half)

    def _record(self) -> dict[str, str]:
        element = "" if self.element is None else np.dtype(self.element).str
        return {"element": element, "fingerprint": self.fingerprint}

    def _key(self) -> str:
        """The layer file's name: a hash of FORMAT, layout, dtype, configuration and files."""
        if self._native:
            from core.models.native.packing import storage_type_of

            # True stands for both values of `half`: `_element` derives it from dtype and files,
            # which are in the key.
            layout = np.dtype(storage_type_of(self._lean, True)).str
        else:
            layout = f"lean {stored_wide(self._lean.embedding)}"
        parts = [FORMAT, layout, self._lean.embedding.dtype, identity_of(self._module)]
        parts += [sha256_of(file) for file in self._checkpoint.files]
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]

    def _by_layer(self, vectors: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        layers: list[dict[str, torch.Tensor]] = [{} for _ in self._kinds]
        for name, vector in vectors.items():
            layer, _, field = name.partition(".")
            layers[int(layer)][field] = vector
        return layers

    def _pin(self, layer: torch.Tensor) -> torch.Tensor:
        device = self._lean.embedding.device
        if device.type != "cuda":
            return layer
        return page_aligned(len(layer), device).copy_(layer)

    def _check_disk(self, folder: Path) -> None:
        size = len(self._kinds) * sum(
            getattr(self._lean.layers[0], name).nbytes for name in MATRICES
        )
        if size > (free := shutil.disk_usage(folder).free):
            raise OutOfMemoryError(
                f"layers of {self._info.name} need {format_bytes(size)} in {folder}: "
                f"{format_bytes(free)} are free there; SPECSCOPE_CACHE names another folder"
            )


def _vectors(index: int, layer: LeanLayer) -> dict[str, torch.Tensor]:
    """A layer's norms and biases on the host, by `INDEX.name`."""
    parts = ((f.name, getattr(layer, f.name)) for f in fields(LeanLayer))
    return {
        f"{index}.{name}": part.detach().cpu().contiguous()
        for name, part in parts
        if isinstance(part, torch.Tensor) and name not in MATRICES
    }


def _attention_kinds(config: Any) -> list[str]:
    count = int(config.num_hidden_layers)
    return list(getattr(config, "layer_types", None) or [FULL] * count)


def _small_config(config: Any) -> Any:
    """The configuration of a model with one layer for each kind of attention."""
    small, kinds = copy.deepcopy(config), sorted(layer_kinds(config))
    small.num_hidden_layers = max(1, len(kinds))
    if getattr(config, "layer_types", None):
        small.layer_types = kinds
    return small


def _restore_config(module: Any, config: Any) -> None:
    module.config.num_hidden_layers = config.num_hidden_layers
    if getattr(config, "layer_types", None):
        module.config.layer_types = config.layer_types


def _check_pass(model: HfModel) -> None:
    """Raises ModelLoadError unless a pass gives finite logits. The pass also checks the hashes of a
    layer file's streamed layers."""
    row = model.open_row()
    try:
        logits = model.forward([chain(row, [1, 2], last_only=True)])[0]
    finally:
        model.close_row(row)
    if not bool(torch.isfinite(logits).all()):
        raise broken_weights(model.info.name)
