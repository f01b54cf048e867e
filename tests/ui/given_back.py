"""`python -m tests.ui.given_back FOLDER`: measures what a model swap leaves behind.

This is a program of its own, so that threads and objects of other tests do not count.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import weakref
from pathlib import Path
from typing import Any

import torch

from core import Engine, Request, SamplingParams, SpeculationConfig, Worker, load_models
from core.events import RunCompleted
from core.models.machine import one_arena
from tests.core.models.folders import save_tiny_model
from tests.fakes import tiny_module, word_tokenizer
from tests.ui.fakes import FakeStore
from tests.ui.model_hosts import wait_settled
from ui.run.source import LiveSource
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair, Say
from ui.server.session import Hub


def load(pair: ModelPair, say: Say) -> Worker:
    return Worker(Engine(load_models(pair.llm, pair.ssms, pair.dtype, pair.device, say)))


def anonymous_bytes() -> int:
    """Resident bytes of this process that are not mapped from a file (RssAnon)."""
    return int(re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def swap_models(model_host: ModelHost, pair: ModelPair) -> None:
    model_host.begin(pair)
    wait_settled(model_host)
    assert model_host.swap.state == "done", model_host.swap.reason


def main(folder: Path) -> None:
    one_arena()
    small = str(save_tiny_model(folder / "small"))
    model_host = ModelHost.open(load, ModelPair(small, (small,), "float32", "cpu"))
    module = tiny_module(
        "llama", dtype=torch.float32, hidden_size=768, intermediate_size=1536, num_hidden_layers=8
    )
    module.save_pretrained(folder / "large")
    word_tokenizer().save_pretrained(folder / "large")
    size = 2 * sum(weight.numel() for weight in module.parameters())
    del module
    gc.collect()
    # Loading float32 weights as bfloat16 copies them. Otherwise they would be mapped from the file.
    swap_models(model_host, ModelPair(str(folder / "large"), (), "bfloat16", "cpu"))
    source, references = run_to_end(model_host, "autoregressive"), weak_refs(model_host)
    before = anonymous_bytes()
    swap_models(model_host, ModelPair(small, (small,)))
    less = before - anonymous_bytes()
    left = [name for name, reference in references.items() if reference() is not None]
    events = len(source.events(0, source.count))
    run_to_end(model_host, "specinfer")
    model_host.close()
    print(json.dumps({"less": less, "size": size, "left": left, "events": events}))


def run_to_end(model_host: ModelHost, preset: str) -> LiveSource:
    sampling = SamplingParams(max_new_tokens=12, ignore_eos=True)
    source = Hub(model_host, FakeStore()).start(
        Request("w1 w2 w3", sampling, SpeculationConfig.preset(preset))
    )
    source.wait_done(60)
    assert isinstance(source.events(0, source.count)[-1], RunCompleted)
    return source


def weak_refs(model_host: ModelHost) -> dict[str, weakref.ref[Any]]:
    worker: Any = model_host.worker
    module = worker.engine.models.llm._module
    return {"engine": weakref.ref(worker.engine), "module": weakref.ref(module)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
