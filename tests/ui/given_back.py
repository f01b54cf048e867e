"""In a process of its own: how much memory an exchange of models gives back.

    python -m tests.ui.given_back FOLDER

Prints two numbers of bytes: what this process held less once the large models had gone, and the
size of their weights. Elsewhere other tests' threads and leftovers would be measured with it.
"""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path

import torch

from core import Engine, Request, SamplingParams, SpeculationConfig, Worker, load_models
from core.events import RunCompleted
from tests.core.models.folders import saved
from tests.fakes import tiny_module, word_tokenizer
from tests.ui.rigs import settled
from ui.exchange import Pair, Say
from ui.rig import Rig


def load(pair: Pair, say: Say) -> Worker:
    made = load_models(pair.llm, pair.ssms, pair.dtype, pair.device, say)
    return Worker(Engine(made, place="thread"))


def resident() -> int:
    """Bytes of this process that are in memory and of no file."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def exchanged(rig: Rig, pair: Pair) -> None:
    rig.begin(pair)
    settled(rig)
    assert rig.exchange.state == "done", rig.exchange.reason


def main(folder: Path) -> None:
    small = str(saved(folder / "small"))
    rig = Rig.opened(load, Pair(small, (small,), "float32", "cpu"))
    module = tiny_module(
        "llama", dtype=torch.float32, hidden_size=768, intermediate_size=1536, num_hidden_layers=8
    )
    module.save_pretrained(folder / "large")
    word_tokenizer().save_pretrained(folder / "large")
    size = 2 * sum(weight.numel() for weight in module.parameters())
    del module
    gc.collect()
    # bfloat16 of what is stored as float32: its weights are no file that is only mapped.
    exchanged(rig, Pair(str(folder / "large"), (), "bfloat16", "cpu"))
    before = resident()
    exchanged(rig, Pair(small, (small,)))
    print(before - resident(), size)
    asked = Request(
        "w1 w2 w3", SamplingParams(max_new_tokens=12), SpeculationConfig.preset("specinfer")
    )
    assert isinstance(list(rig.submit(asked).events())[-1], RunCompleted)
    rig.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
