"""Compares a grown model (see bench.grown) with its small model; makes the manifest and the model
card."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.grown.shape import GrowthPlan
from core.errors import ConfigError, UnsupportedModelError
from core.plurals import number_of

# The largest allowed difference of logits: absolute for FULL_PRECISION dtypes, relative to the
# largest absolute logit (at least 1) for 16-bit dtypes. The grown model adds numbers in another
# order than the small one.
FULL_ALLOWED = 1e-3
HALF_ALLOWED = 0.06
FULL_PRECISION = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Likeness:
    """`tokens`: the compared positions. `difference`: the largest difference of logits; `largest`:
    the small model's largest absolute logit; `same`: positions at which both models have the same
    likeliest token."""

    difference: float
    largest: float
    tokens: int
    same: int


@torch.inference_mode()
def likeness(small: Any, large: Any, texts: Sequence[Sequence[int]]) -> Likeness:
    """`texts`: token ids. The difference is infinite if a logit of either module is not finite."""
    difference = largest = 0.0
    tokens = same = 0
    for text in texts:
        one, other = (_logits(module, text) for module in (small, large))
        difference = max(difference, float((one - other).abs().max()))
        largest = max(largest, float(one.abs().max()))
        tokens += len(text)
        same += int((one.argmax(-1) == other.argmax(-1)).sum())
        # Checked separately, since `max(difference, nan)` is `difference`.
        if not bool((torch.isfinite(one) & torch.isfinite(other)).all()):
            difference = float("inf")
    return Likeness(difference, largest, tokens, same)


def _logits(module: Any, text: Sequence[int]) -> torch.Tensor:
    ids = torch.tensor([list(text)], device=next(module.parameters()).device)
    logits: torch.Tensor = module(input_ids=ids, use_cache=False).logits[0].float()
    return logits


def check_likeness(measured: Likeness, dtype: torch.dtype, name: str) -> None:
    """Raises UnsupportedModelError if the logits differ by more than is allowed in `dtype`."""
    half_allowed = HALF_ALLOWED * max(measured.largest, 1.0)
    allowed = FULL_ALLOWED if dtype in FULL_PRECISION else half_allowed
    # `not <=` also refuses NaN.
    if not measured.difference <= allowed:
        raise UnsupportedModelError(
            f"{name} grown differs from the small model by {measured.difference:.3g} in its "
            f"logits: at most {allowed:.3g} is allowed"
        )


MANIFEST = "grown.json"
# Increased when weights are filled in another way: older folders are then not reused.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class GrowthRecipe:
    """Determines a grown model's weights. `source`: the small model's name. `digest`: `digest_of`
    the small model's folder."""

    source: str
    digest: str
    plan: GrowthPlan
    dtype: str
    seed: int

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return {"format": FORMAT, **plain}


def write_manifest(folder: Path, recipe: GrowthRecipe, measured: Likeness) -> None:
    manifest = {
        "grown": f"function-preserving enlargement of {recipe.source}; no such model exists",
        "asked": recipe.to_plain(),
        "parameters": recipe.plan.large.parameters,
        "small_parameters": recipe.plan.small.parameters,
        "measured": dataclasses.asdict(measured),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def holds_grown(folder: Path, recipe: GrowthRecipe) -> bool:
    """Whether the folder has a manifest with this recipe; False for an empty or missing folder.
    Raises ConfigError for other content, or if `folder` is a file."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["asked"] == recipe.to_plain():
            return True
        reason = "it holds a model grown otherwise"
    except (OSError, ValueError, KeyError, TypeError):
        reason = f"it exists and has no readable {MANIFEST}"
    raise ConfigError.of(
        "--out", str(folder), f"a new or empty folder, or one with the same grown model ({reason})"
    )


def card(recipe: GrowthRecipe, result: Likeness) -> str:
    plan = recipe.plan
    rounding = (
        "a power of two, which no dtype rounds" if plan.exact else "rounded in the weights' dtype"
    )
    return f"""---
tags:
  - grown
---

# {recipe.source}, grown to {plan.large.parameters:,} parameters

**grown: function-preserving enlargement of {recipe.source}; no such model was trained.** It writes
what {recipe.source} writes, at the cost of a model of this size. It is for measuring speed and is
no better than the small model at anything.

- from: {plan.small.parameters:,} parameters ({plan.small})
- to: {plan.large.parameters:,} parameters ({plan.large})
- {recipe.dtype}, seed {recipe.seed}; the norms' correction is {plan.norm_scale:g}, {rounding}
- logits against the small model's over {number_of(result.tokens, "token")}: differ by at most
  {result.difference:.3g}, the largest logit is {result.largest:.3g}; at {result.same} of them the
  same token is the likeliest

New heads, feed-forward units and layers compute with random weights; the output projections
multiply their results by zeros, at full cost. The output projections and the embedding are zero in
part; all other weights are dense.
"""


def digest_of(folder: Path) -> str:
    """A digest of the names and contents of weight files and config.json."""
    digest = hashlib.sha256()
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin"), folder / "config.json"]
    for path in sorted(files):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:32]
