"""This engine and transformers, on the same weights, as contestants."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.prompts import Prompt
from bench.settings import Settings
from bench.timing import time_call
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.engine.round_state import WITHOUT_IT
from core.engine.worker import Worker
from core.errors import EngineError
from core.events import Event, RoundCompleted, RunFailed, RunStarted
from core.events.outcome import Outcome
from core.models.loading.catalog import bundled_llm


@dataclass(frozen=True, slots=True)
class DecodeCase:
    """A prompt to continue by at most `tokens` tokens."""

    prompt: Prompt
    seed: int
    tokens: int
    temperature: float
    ignore_eos: bool = False


def cases(settings: Settings, prompts: Sequence[Prompt], temperature: float) -> list[DecodeCase]:
    """One case per prompt at temperature 0; above it, one per prompt and repeat."""
    return [
        DecodeCase(prompt, prompt.seed(repeat), settings.tokens, temperature)
        for repeat in range(settings.repeats if temperature > 0 else 1)
        for prompt in prompts
    ]


def request(case: DecodeCase, speculation: SpeculationConfig) -> Request:
    seed, ignore = case.seed, case.ignore_eos
    sampling = SamplingParams(case.tokens, case.temperature, seed=seed, ignore_eos=ignore)
    return Request(case.prompt.text, sampling, speculation, chat=case.prompt.chat)


def run_events(engine: Engine, requests: Sequence[Request]) -> Iterator[Event]:
    """The events of requests that run concurrently. Raises EngineError if a drafter fails."""
    for event in engine.generate_many(requests):
        _refuse_lost_drafter(event)
        yield event


def _refuse_lost_drafter(event: Event) -> None:
    """Raises EngineError if a drafter failed: later rounds would measure another configuration."""
    if isinstance(event, RoundCompleted) and (notes := lost_drafter_notes(event)):
        raise EngineError(notes[0])


def lost_drafter_notes(event: RoundCompleted) -> list[str]:
    """A round's notes about drafters that failed and were dropped for the rest of the run."""
    return [note for note in event.notes if note.endswith(WITHOUT_IT)]


def decode(
    engine: Engine, cases: Sequence[DecodeCase], speculation: SpeculationConfig, together: int = 1
) -> list[dict[str, Any]]:
    """Every case's outcome (`Outcome.to_plain`), in order. `together`: the number of concurrent
    requests. Raises EngineError if a drafter fails."""
    outcomes: list[dict[str, Any]] = []
    for start in range(0, len(cases), together):
        group = cases[start : start + together]
        by_run: dict[str, Outcome] = {}
        for event in run_events(engine, [request(case, speculation) for case in group]):
            if isinstance(event, RunStarted):  # runs start in the order of the requests
                by_run[event.run_id] = Outcome()
            by_run[event.run_id].observe(event)
        outcomes += [outcome.to_plain() for outcome in by_run.values()]
    return outcomes


def decode_joining(
    engine: Engine, cases: Sequence[DecodeCase], speculation: SpeculationConfig, live: int
) -> list[dict[str, Any]]:
    """Like `decode`, without groups: at most `live` requests run concurrently. Raises EngineError
    if a request or a drafter fails."""
    outcomes: list[dict[str, Any]] = []
    with closing(Worker(engine, max_live=live, threads=torch.get_num_threads())) as worker:
        runs = [worker.submit(request(case, speculation)) for case in cases]
        for run in runs:
            outcome = Outcome()
            for event in run.events():
                outcome.observe(event)
                if isinstance(event, RunFailed):
                    raise EngineError(f"{event.error}: {event.message}")
                _refuse_lost_drafter(event)
            outcomes.append(outcome.to_plain())
    return outcomes


def ids_by_round(
    engine: Engine, case: DecodeCase, speculation: SpeculationConfig
) -> list[tuple[int, ...]]:
    """New token ids, round by round."""
    events = run_events(engine, [request(case, speculation)])
    return [event.token_ids for event in events if isinstance(event, RoundCompleted)]


def load_module(folder: Path, dtype: torch.dtype) -> Any:
    """A model as transformers loads it, in eval mode."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    quiet: Any = logging.disable_progress_bar
    quiet()
    module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return module.eval()


class TransformersLlm:
    """An LLM in transformers' own generation loop. `module` replaces the folder's model, but not
    its tokenizer."""

    def __init__(
        self, dtype: str = "float32", module: Any = None, folder: Path | None = None
    ) -> None:
        from transformers import AutoTokenizer

        folder = bundled_llm() if folder is None else folder
        self.dtype = getattr(torch, dtype)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.module = load_module(folder, self.dtype) if module is None else module

    def tokenize(self, text: str) -> list[int]:
        return [int(token_id) for token_id in self.tokenizer(text)["input_ids"]]

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The prompt's token ids; a chat message is put into the chat template."""
        if not prompt.chat:
            return self.tokenize(prompt.text)
        message = [{"role": "user", "content": prompt.text}]
        inputs = self.tokenizer.apply_chat_template(
            message, add_generation_prompt=True, return_dict=True
        )
        return [int(token_id) for token_id in inputs["input_ids"]]

    @torch.inference_mode()
    def generate(
        self, ids: Sequence[int], tokens: int, temperature: float = 0, seed: int = 0, **options: Any
    ) -> list[int]:
        """New token ids; `options` go to transformers' `generate`."""
        batch: Any = torch.tensor([list(ids)], device=self.module.device)
        options["do_sample"] = temperature > 0
        if temperature > 0:
            torch.manual_seed(seed)
            # top_k is 50 by default, which would change the distribution.
            options |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
        output = self.module.generate(
            batch, attention_mask=torch.ones_like(batch), max_new_tokens=tokens, **options
        )
        return [int(token_id) for token_id in output[0, len(ids) :]]

    def figures(self, case: DecodeCase, **options: Any) -> dict[str, float]:
        """The number of new `tokens` and the `seconds`, prefill included. The case's `ignore_eos`
        has no effect."""
        ids = self.prompt_ids(case.prompt)
        output, seconds = time_call(
            lambda: self.generate(ids, case.tokens, case.temperature, case.seed, **options)
        )
        return {"tokens": len(output), "seconds": seconds}

    @staticmethod
    def assistant(module: Any, schedule: str, count: int) -> Any:
        """A copy of an SSM, for one contestant: transformers may change the assistant model's
        generation config during a run."""
        assistant = copy.deepcopy(module)
        assistant.generation_config.num_assistant_tokens = count
        assistant.generation_config.num_assistant_tokens_schedule = schedule
        return assistant
