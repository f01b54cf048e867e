"""Law 4: in bfloat16 every emitted token is within the measured rounding gap of the arg max."""

import dataclasses
import json
from typing import Any

import pytest
import torch

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.models import fastest
from core.models.hf_model import HfModel
from core.models.protocol import chain
from tests.laws.runs import PROMPTS, ids_of_many
from tests.laws.runs import ids_of as run_ids

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.nightly),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
NEW_TOKENS = 32


def prompts(count: int) -> list[str]:
    lines = [json.loads(line)["prompt"] for line in PROMPTS.read_text().splitlines()]
    return lines[:: len(lines) // count][:count]


def request(prompt: str, preset: str, temperature: float = 0.0, **changes: Any) -> Request:
    sampling = SamplingParams(max_new_tokens=NEW_TOKENS, temperature=temperature, seed=5)
    speculation = SpeculationConfig.preset(preset, temperature)
    if preset != "autoregressive":
        changes = {"verify": "auto", "draft": "auto", **changes}
        speculation = dataclasses.replace(speculation, **changes)
    return Request(prompt, sampling, speculation)


def ids_of(engine: Engine, prompt: str, preset: str, temperature: float = 0.0) -> list[int]:
    return run_ids(engine, request(prompt, preset, temperature))


def stepped_logits(
    model: HfModel, prompt_ids: list[int], token_ids: list[int], step: int
) -> torch.Tensor:
    """Feeds `step` tokens at a time."""
    row = model.open_row()
    model.forward([chain(row, prompt_ids, last_only=True)])
    model.commit(row, range(len(prompt_ids)))
    rows = []
    for i in range(0, len(token_ids), step):
        part = token_ids[i : i + step]
        rows.append(model.forward([chain(row, part)])[0].cpu())
        model.commit(row, range(len(part)))
    model.close_row(row)
    return torch.cat(rows)


def engine_on(device: str) -> Engine:
    engine = Engine(load_models(dtype="bfloat16", device=device))
    assert engine.costs.verify
    return engine


@pytest.fixture(params=DEVICES)
def torch_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine whose passes are torch's own calls, not compiled."""
    monkeypatch.setattr(fastest, "find_spec", lambda _: None)
    return engine_on(request.param)


@pytest.fixture
def native_engine() -> Engine:
    return engine_on("cpu")


def test_every_bfloat16_token_is_within_the_rounding_gap_of_the_argmax(
    torch_engine: Engine,
) -> None:
    gap, margin, shifted = measure(torch_engine)
    if torch_engine.models.llm.device.type == "cpu":  # on an H200 both kinds of pass rounded alike
        assert gap > 0, "a pass of 12 tokens should round differently from 12 passes of one token"
    assert float(margin.max()) <= gap
    assert float((margin > 0).float().mean()) <= 0.01
    # Negative control: other tokens are outside the gap.
    assert float(shifted.max()) > gap
    assert float((shifted > 0).float().mean()) > 0.01


@pytest.mark.parametrize(
    ("schedule", "preset", "changes"),
    [
        ("each", "specinfer", {"drafters": ("all",)}),
        ("each", "specinfer", {"drafters": ("suffix", "table", "all")}),
        ("each", "specinfer", {"routing": "credit", "draft": "fused_credit"}),
        ("cosine", "cosine", {"draft": "fused"}),
        ("shared", "specinfer", {"routing": "credit"}),
    ],
)
def test_every_token_of_a_compiled_bfloat16_pass_is_the_argmax(
    native_engine: Engine, schedule: str, preset: str, changes: dict[str, Any]
) -> None:
    """A token is rounded in the same way, whatever else is in the pass."""
    gap, margin, shifted = measure(native_engine, 1.0, schedule, preset, **changes)
    assert gap == 0, "not one logit differs"
    assert float(margin.max()) == 0
    assert float(shifted.max()) > 0  # negative control


def measure(
    engine: Engine,
    quantile: float = 0.999,
    schedule: str = "each",
    preset: str = "specinfer",
    **changes: Any,
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The gap is twice the `quantile` of the differences between passes of 1 and of 12 tokens."""
    models, differences, margins, shifted = engine.models, [], [], []
    requests = [request(prompt, preset, **changes) for prompt in prompts(4)]
    engine.schedule = schedule
    if schedule == "each":
        texts = [run_ids(engine, one) for one in requests]
    else:
        texts = ids_of_many(engine, requests)
    for prompt, new in zip(prompts(4), texts, strict=True):
        *prefix, root = models.tokenizer(prompt)["input_ids"]
        one = stepped_logits(models.llm, prefix, [root, *new], 1)
        many = stepped_logits(models.llm, prefix, [root, *new], 12)
        differences.append((one - many).abs().flatten())
        margins.append(distances(one[:-1], new))
        shifted.append(distances(one[:-1], [*new[1:], new[0]]))
    gap = 2 * float(torch.cat(differences).quantile(quantile))
    return gap, torch.cat(margins), torch.cat(shifted)


def distances(logits: torch.Tensor, token_ids: list[int]) -> torch.Tensor:
    """How far each token's logit is below the largest logit."""
    chosen = logits.gather(1, torch.tensor(token_ids)[:, None])[:, 0]
    return logits.max(dim=-1).values - chosen


@pytest.mark.gpu
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_float32_on_cuda_writes_what_plain_decoding_writes(temperature: float) -> None:
    engine = Engine(load_models(dtype="float32", device="cuda"))
    for prompt in prompts(8):
        plain = ids_of(engine, prompt, "autoregressive", temperature)
        for preset in ("specinfer", "specinfer-paper", "sequence"):
            assert ids_of(engine, prompt, preset, temperature) == plain


@pytest.mark.gpu
def test_float32_on_cuda_equals_transformers_generate() -> None:
    models = load_models(dtype="float32", device="cuda")
    engine = Engine(models)
    for prompt in prompts(8):
        inputs = models.tokenizer(prompt, return_tensors="pt").to("cuda")
        output = models.llm._module.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS)
        expected = output[0, inputs["input_ids"].shape[1] :].tolist()
        assert ids_of(engine, prompt, "specinfer") == expected
