"""`python -m bench.split_worker LLM DTYPE RANKS THREADS`: one contestant of suite `split` in a
process of its own, since a process has one group of ranks. RANKS is `-` for one process.

Reads numbers of tokens from standard input, a line each, and writes for each the seconds of a pass.
"""

from __future__ import annotations

import json
import sys
import time

from core.config.ranks import ranks_of
from core.models.loading.load import load_models
from core.models.machine import use_threads
from core.models.protocol import chain, rank_traffic

CONTEXT, PASSES = 64, 3


def main(llm: str, dtype: str, ranks: str, threads: str) -> None:
    use_threads(int(threads))
    split = ranks_of(None if ranks == "-" else ranks)
    model = load_models(llm, [], dtype, "cpu", ranks=split).llm
    row = model.open_row()
    model.forward([chain(row, [0] * CONTEXT, last_only=True)])
    model.commit(row, range(CONTEXT))
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        tokens, times, exchanged = int(line), [], 0.0
        for _ in range(1 + PASSES):  # the first is not counted
            began = time.perf_counter()
            model.forward([chain(row, range(1, tokens + 1))])
            times.append(time.perf_counter() - began)
            exchanged = max((one.ms for one in rank_traffic(model)), default=0.0)
            model.commit(row, [])
        seconds = sum(times[1:]) / PASSES
        print(json.dumps({"value": seconds, "exchanged_ms": exchanged}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
