"""`python -m bench.split_worker LLM DTYPE RANKS THREADS`: one contestant of suite `split`. It has
its own process, since a process can have only one group of ranks. RANKS `-`: the LLM is not
divided.

Writes `{}` once the LLM is loaded. Then reads numbers of tokens from standard input, one per line.
Writes a JSON line for each number, with means over several passes. `value`: seconds;
`exchanged_ms`: the longest time that any rank spent exchanging.
"""

from __future__ import annotations

import json
import sys
import time

from core.config.ranks import ranks_of
from core.models.loading.load import load_models
from core.models.machine import use_threads
from core.models.protocol import LanguageModel, chain, rank_traffic

CONTEXT, PASSES = 64, 3


def main(llm: str, dtype: str, ranks: str, threads: str) -> None:
    use_threads(int(threads))
    split = ranks_of(None if ranks == "-" else ranks)
    model = load_models(llm, [], dtype, "cpu", ranks=split).llm
    row = model.open_row()
    model.forward([chain(row, [0] * CONTEXT, last_only=True)])
    model.commit(row, range(CONTEXT))
    print(json.dumps({}), flush=True)  # loaded
    for line in sys.stdin:
        passes = [timed_pass(model, row, int(line)) for _ in range(1 + PASSES)]
        # The first pass is not counted.
        seconds, exchanged_ms = (sum(figures[1:]) / PASSES for figures in zip(*passes, strict=True))
        print(json.dumps({"value": seconds, "exchanged_ms": exchanged_ms}), flush=True)


def timed_pass(model: LanguageModel, row: int, tokens: int) -> tuple[float, float]:
    """Seconds of a pass, and the longest time in ms that any rank spent exchanging."""
    start = time.perf_counter()
    model.forward([chain(row, range(1, tokens + 1))])
    seconds = time.perf_counter() - start
    exchanged_ms = max((one.ms for one in rank_traffic(model)), default=0.0)
    # Drops the pass's tokens: the next pass has the same context.
    model.commit(row, [])
    return seconds, exchanged_ms


if __name__ == "__main__":
    main(*sys.argv[1:])
