"""Drafters of one's own: classes by import path, and the check of what they draft.

A class is called with its import path, which is the drafter's name. It is imported for whoever
makes the engine (`--drafter`), never for a request.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from core.config.mechanisms import implementation_of
from core.drafters.base import Drafter, DraftRequest
from core.errors import MODEL_FAULTS, ConfigError
from core.trees.draft import Draft
from core.trees.tree import ROOT, depths_of

__all__ = ["check_drafts", "draft_fault", "import_drafters", "make_own_drafter"]

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_METHODS = ("open", "draft", "commit", "close", "temperature", "likelihoods")
_ALLOWED = "package.module:Class, a class with the methods of core.drafters.base.Drafter"


def import_drafters(paths: Iterable[str]) -> tuple[str, ...]:
    """Imports the classes; the paths, each once. Raises ConfigError."""
    distinct = tuple(dict.fromkeys(paths))
    for path in distinct:
        if not _PATH.fullmatch(path):
            raise _refusal(path)
        module, _, name = path.partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), name)
        # A module may raise anything, and end the program too.
        except (*MODEL_FAULTS, SystemExit) as error:
            raise _refusal(path, f"{type(error).__name__}: {error}") from error
        missing = [each for each in _METHODS if not callable(getattr(found, each, None))]
        if not isinstance(found, type) or missing:
            raise _refusal(path, f"no class with {', '.join(missing or _METHODS)}")
    return distinct


def make_own_drafter(path: str) -> Drafter:
    """A new drafter of a class that was imported. Raises ConfigError."""
    try:
        drafter: Drafter = implementation_of(path)(path)
        name = drafter.name
    except MODEL_FAULTS as error:
        raise _refusal(path, f"{type(error).__name__}: {error}") from error
    if name != path:
        raise _refusal(path, f"its name is {name!r}, not what it was called with")
    return drafter


def _refusal(path: str, reason: str = "") -> ConfigError:
    shown = f" ({' '.join(reason.split())[:200]})" if reason else ""
    return ConfigError.of("--drafter", path, f"{_ALLOWED}{shown}")


def check_drafts(
    requests: Sequence[DraftRequest], drafts: Sequence[Draft], vocab_size: int
) -> None:
    """Raises ValueError for drafts that the LLM's pass or the rules cannot take."""
    if len(drafts) != len(requests):
        raise ValueError(f"{len(drafts)} drafts for {len(requests)} requests")
    for request, draft in zip(requests, drafts, strict=True):
        if fault := draft_fault(request, draft, vocab_size):
            raise ValueError(fault)


def draft_fault(request: DraftRequest, draft: Draft, vocab_size: int) -> str:
    """Why a draft cannot be verified; empty for one that can."""
    count = len(draft)
    if {len(draft.parents), len(draft.scores), len(draft.qs), len(draft.ranks)} != {count}:
        return "its lists are not of one length"
    if {len(draft.contexts), len(draft.shares)} - {0, count}:
        return "contexts or shares are not of its length"
    # Also what JSON cannot hold, such as numpy's numbers: the log keeps every draft.
    if any(type(n) is not int for n in (*draft.token_ids, *draft.parents, *draft.ranks)):
        return "a token id, parent or rank is no int"
    if any(type(score) not in (int, float) for score in (*draft.scores, *draft.qs)):
        return "a score or q is no float"
    if count > request.budget:
        return f"{count} nodes, of at most {request.budget}"
    if any(not ROOT <= parent < node for node, parent in enumerate(draft.parents)):
        return "a parent is no earlier node"
    if max(depths_of(draft.parents), default=0) > len(request.shape):
        return f"deeper than {len(request.shape)} steps"
    if not all(0 <= token < vocab_size for token in draft.token_ids):
        return f"a token id is not from 0 to {vocab_size - 1}"
    if not all(math.isfinite(score) and 0 <= score <= 1 for score in draft.scores):
        return "a score is not from 0 to 1"
    if draft.q is not None or set(draft.qs) - {1.0}:
        return "a q is not 1: its proposals are not drawn"
    if len({*zip(draft.parents, draft.token_ids, strict=True)}) < count:
        return "a token comes twice behind one node"
    if max(request.shape, default=1) == 1 and len({*draft.parents}) < count:
        return "a branch, where each step has one child"
    return ""
