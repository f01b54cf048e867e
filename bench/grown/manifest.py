"""Manifest: what a folder's model was grown from and to, kept beside its weights, and the model
card that says so to people.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.grown.likeness import Likeness
from bench.grown.shape import Plan
from core.errors import ConfigError

MANIFEST = "grown.json"
# Another way to fill the weights is another format: folders of the old one are not taken for it.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What decides every weight of a grown model. `source` is the small model's name, `digest` of
    its weight files."""

    source: str
    digest: str
    plan: Plan
    dtype: str
    seed: int

    @classmethod
    def of(cls, source: str, folder: Path, plan: Plan, dtype: str, seed: int) -> Asked:
        """To grow the model of a folder, which is called `source`."""
        return cls(source, _digest(folder), plan, dtype, seed)

    def to_plain(self) -> dict[str, Any]:
        """Only JSON's own types."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return {"format": FORMAT, **plain}


def keep(folder: Path, asked: Asked, found: Likeness) -> None:
    """Writes the manifest."""
    whole = {
        "grown": f"function-preserving enlargement of {asked.source}; no such model exists",
        "asked": asked.to_plain(),
        "parameters": asked.plan.large.parameters,
        "small_parameters": asked.plan.small.parameters,
        "measured": dataclasses.asdict(found),
    }
    (folder / MANIFEST).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def standing(folder: Path, asked: Asked) -> dict[str, Any] | None:
    """The manifest of a folder that holds this very model; None where there is nothing.

    Raises ConfigError where it holds anything else.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    try:
        kept: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if kept["asked"] == asked.to_plain():
            return kept
        reason = "it holds a model grown otherwise"
    except (OSError, ValueError, KeyError, TypeError):
        reason = f"it is there and has no {MANIFEST}"
    raise ConfigError.of(
        "--out", str(folder), f"a new or empty folder, or one with the same grown model ({reason})"
    )


def card(asked: Asked, found: Likeness) -> str:
    """The model card: Markdown."""
    plan = asked.plan
    rounding = (
        "a power of two, which no dtype rounds" if plan.exact else "rounded in the weights' dtype"
    )
    return f"""---
tags:
  - grown
---

# {asked.source}, grown to {plan.large.parameters:,} parameters

**grown: function-preserving enlargement of {asked.source}, an artificial pair that does not
exist.** It says what {asked.source} says, at the cost of a model of this size. It is for measuring
speed and is no better than the small model at anything.

- from: {plan.small.parameters:,} parameters ({plan.small})
- to: {plan.large.parameters:,} parameters ({plan.large})
- {asked.dtype}, seed {asked.seed}; the norms' correction is {plan.correction:g}, {rounding}
- logits against the small model's over {found.tokens} tokens: differ by at most
  {found.difference:.3g}, the largest logit is {found.largest:.3g}; at {found.same} of them the
  same token is the likeliest

New heads, feed-forward units and layers compute with random weights what is then multiplied by
written zeros: a part of the output projections and of the embedding is zero, everything else is
dense, and kernels multiply by a zero as by any number.
"""


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin"), folder / "config.json"]
    for path in sorted(files):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:32]
