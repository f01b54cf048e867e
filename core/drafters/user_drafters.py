"""A user's own drafters: classes by import path, and the guard around their calls.

A class is instantiated with its import path, which is also the drafter's name.
"""

from __future__ import annotations

import importlib
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, cast

from core.config.mechanisms import implementation_of
from core.drafters.base import Drafter, DraftRequest
from core.drafters.lookup_base import LookupDrafter
from core.errors import MODEL_FAULTS, ConfigError, DrafterError, one_line
from core.events.parts import Timed
from core.metrics import StatsFold
from core.plurals import number_of
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from core.trees.tree import ROOT, depths_of

__all__ = ["GuardedDrafter", "check_drafts", "draft_fault", "import_drafters", "make_user_drafter"]

# A user's code may raise any exception and may call sys.exit.
DRAFTER_FAULTS = (*MODEL_FAULTS, SystemExit)
# The stages that a drafter's time spans may have.
STAGES = ("prefill", "catch_up", "draft")
# Ranks, contexts and passes must be below this limit: the log stores them.
NUMBER_LIMIT = 1 << 31
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_METHODS = ("open", "draft", "commit", "close", "temperature", "likelihoods")
_ALLOWED = "package.module:Class, a class with the methods of core.drafters.base.Drafter"


def import_drafters(paths: Iterable[str]) -> tuple[str, ...]:
    """Imports the classes of these paths; returns each path once. Raises ConfigError."""
    distinct = tuple(dict.fromkeys(paths))
    for path in distinct:
        if not _PATH.fullmatch(path):
            raise _refusal(path)
        module, _, name = path.partition(":")
        try:
            drafter_class: Any = getattr(importlib.import_module(module), name)
        except DRAFTER_FAULTS as error:
            raise _refusal(path, f"{type(error).__name__}: {error}") from error
        missing = [each for each in _METHODS if not callable(getattr(drafter_class, each, None))]
        if not isinstance(drafter_class, type) or missing:
            raise _refusal(path, f"no class with {', '.join(missing or _METHODS)}")
    return distinct


def make_user_drafter(path: str, vocab_size: int) -> Drafter:
    """A new, guarded drafter of an imported class. `vocab_size`: the LLM's. Raises ConfigError."""
    try:
        drafter: Drafter = implementation_of(path)(path)
        name = drafter.name
    except DRAFTER_FAULTS as error:
        raise _refusal(path, f"{type(error).__name__}: {error}") from error
    if name != path:
        raise _refusal(path, f"its name is {name!r}, not what it was called with")
    return GuardedDrafter(drafter, path, vocab_size)


def _refusal(path: str, reason: str = "") -> ConfigError:
    details = f" ({one_line(reason, 200)})" if reason else ""
    return ConfigError.of("--drafter", path, f"{_ALLOWED}{details}")


@dataclass(eq=False)
class _SequenceCopy:
    """The copy of a run's sequence that a drafter gets. `size`: the number of tokens that the copy
    should have. `num_likelihoods` and `temperature`: the number of likelihoods and the last
    temperature that the drafter reported."""

    sequence: TokenSequence
    size: int = 0
    num_likelihoods: int = 0
    temperature: float = 1.0

    def check(self) -> None:
        """Raises ValueError if the drafter changed the number of tokens."""
        if len(self.sequence.tokens) != self.size:
            raise ValueError("it changed the tokens of the sequence")

    def follow(self, sequence: TokenSequence) -> None:
        """Appends the tokens committed since the last call."""
        self.check()
        self.sequence.tokens += sequence.tokens[self.size :]
        self.size = len(self.sequence.tokens)
        self.sequence.round = sequence.round


class GuardedDrafter:
    """See Drafter. Wraps a user's drafter: its exceptions become DrafterErrors, its results are
    checked, and its drafts are copied."""

    def __init__(self, drafter: Drafter, name: str, vocab_size: int) -> None:
        self._drafter = drafter
        self._name = name
        self._vocab_size = vocab_size
        self._copies: dict[str, _SequenceCopy] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def learns(self) -> bool:
        """Whether the class overrides `LookupDrafter.learn`, and the drafter's `learns` is true."""
        drafter = self._drafter
        own = isinstance(drafter, LookupDrafter) and type(drafter).learn is not LookupDrafter.learn
        return own and bool(getattr(drafter, "learns", False))  # absent if its __init__ did not run

    def learn(self, sequence: TokenSequence) -> None:
        """See LookupDrafter."""
        # The run's copy was dropped when the run was closed.
        copy = _copy_of(sequence)
        copy.follow(sequence)
        with self._guard():
            cast(Any, self._drafter).learn(copy.sequence)

    def open(self, sequence: TokenSequence) -> tuple[Timed, ...]:
        self._copies[sequence.run_id] = _copy_of(sequence)
        with self._guard(sequence) as (copy,):
            start = time.perf_counter()
            timings = self._drafter.open(copy.sequence)
            return self._checked_timings(timings, start)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        with self._guard(*(request.sequence for request in requests)) as copies:
            start = time.perf_counter()
            drafts = self._drafter.draft(
                [
                    replace(request, sequence=copy.sequence)
                    for request, copy in zip(requests, copies, strict=True)
                ]
            )
            check_drafts(requests, drafts, self._vocab_size)
            for draft in drafts:
                self._checked_timings(draft.timings, start)
            return [_plain_copy(draft) for draft in drafts]

    def commit(
        self, sequence: TokenSequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        with self._guard(sequence) as (copy,):
            own_draft = None if draft is None else _plain_copy(draft)
            self._drafter.commit(copy.sequence, own_draft, token_ids)
            # Read here, not when the round is recorded: here an error drops the drafter.
            copy.temperature = temperature = self._drafter.temperature(copy.sequence)
            if not isinstance(temperature, (int, float)) or not 0 < temperature < math.inf:
                raise ValueError(f"its temperature is {temperature!r}")

    def close(self, sequence: TokenSequence) -> None:
        if sequence.run_id in self._copies:
            # Removed first: if `close` raises, the copy is not kept for ever.
            own = self._copies.pop(sequence.run_id).sequence
            with self._guard():
                self._drafter.close(own)

    def temperature(self, sequence: TokenSequence) -> float:
        copy = self._copies.get(sequence.run_id)
        return 1.0 if copy is None else copy.temperature

    def likelihoods(self, sequence: TokenSequence) -> list[float]:
        with self._guard(sequence) as (copy,):
            values = list(self._drafter.likelihoods(copy.sequence))
            for p in values:
                if not (isinstance(p, float) and (0 <= p <= 1 or math.isnan(p))):
                    wrong = one_line(repr(p), 80)
                    raise ValueError(
                        f"likelihood is {wrong}: a float from 0 to 1, or NaN, is allowed"
                    )
            copy.num_likelihoods += len(values)
            if copy.num_likelihoods > copy.size:
                raise ValueError(f"{copy.num_likelihoods} likelihoods of {copy.size} tokens")
            return values

    @contextmanager
    def _guard(self, *sequences: TokenSequence) -> Iterator[list[_SequenceCopy]]:
        """Yields the sequences' copies, up to date. An exception raised within becomes a
        DrafterError."""
        try:
            copies = [self._copies[sequence.run_id] for sequence in sequences]
            for copy, sequence in zip(copies, sequences, strict=True):
                copy.follow(sequence)
            yield copies
            for copy in copies:
                copy.check()
        except DRAFTER_FAULTS as error:
            raise DrafterError(self._name, error, _place(self._drafter, error)) from error

    def _checked_timings(self, timings: object, start: float) -> tuple[Timed, ...]:
        """Returns `timings`. Raises ValueError for an invalid span. `start`: when the drafter was
        called."""
        end = time.perf_counter()
        if type(timings) is not tuple or not all(type(one) is Timed for one in timings):
            raise ValueError(
                f"timings is {one_line(repr(timings), 80)}: a tuple of Timed is allowed"
            )
        for one in timings:
            if one.lane != self._name or one.name not in STAGES:
                raise ValueError(
                    f"timing has lane {one.lane!r} and name {one.name!r}: lane {self._name!r} and "
                    f"one of {', '.join(STAGES)} are allowed"
                )
            if not (start <= one.start <= one.end <= end and 0 < one.share <= 1):
                raise ValueError(
                    f"timing is {one}: within the call, and a share up to 1, is allowed"
                )
        return timings


def _place(drafter: Drafter, error: BaseException) -> str:
    """The last place of the traceback in the drafter's module, as file:line; empty if there is
    none."""
    own = type(drafter).__module__
    places = [
        f"{PurePath(frame.f_code.co_filename).name}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == own
    ]
    return places[-1] if places else ""


def _copy_of(sequence: TokenSequence) -> _SequenceCopy:
    """A copy without tokens."""
    assert isinstance(sequence.noise, SeededNoise), "the noise of real runs"
    # The noise is copied: a drafter that changed a cached Gumbel tensor in place would change the
    # LLM's samples.
    own = replace(
        sequence,
        noise=sequence.noise.copy(),
        special_texts={**sequence.special_texts},
        fold=StatsFold(),
        detokenizer=cast(Any, None),
    )
    own.tokens.clear()
    return _SequenceCopy(own)


def _plain_copy(draft: Draft) -> Draft:
    return Draft(
        token_ids=[*draft.token_ids],
        parents=[*draft.parents],
        scores=[*draft.scores],
        qs=[*draft.qs],
        ranks=[*draft.ranks],
        timings=draft.timings,
        passes=draft.passes,
        contexts=tuple(draft.contexts),
        shares=tuple(draft.shares),
    )


def check_drafts(
    requests: Sequence[DraftRequest], drafts: Sequence[Draft], vocab_size: int
) -> None:
    """Raises ValueError for drafts that cannot be verified, see `draft_fault`."""
    if len(drafts) != len(requests):
        raise ValueError(f"{len(drafts)} drafts for {len(requests)} requests")
    for request, draft in zip(requests, drafts, strict=True):
        if fault := draft_fault(request, draft, vocab_size):
            raise ValueError(fault)


def draft_fault(request: DraftRequest, draft: Draft, vocab_size: int) -> str:
    """Why a draft cannot be verified; empty if it can be."""
    if type(draft) is not Draft:
        return f"a draft is a {type(draft).__name__}"
    count = len(draft)
    if {len(draft.parents), len(draft.scores), len(draft.qs), len(draft.ranks)} != {count}:
        return "its lists are not of one length"
    if {len(draft.contexts), len(draft.shares)} - {0, count}:
        return "contexts or shares are not of its length"
    # Exact types: the log stores every draft as JSON.
    integers = (*draft.token_ids, *draft.parents, *draft.ranks, *draft.contexts, draft.passes)
    if any(type(n) is not int for n in integers):
        return "a token id, parent, rank, context or the number of passes is no int"
    if any(type(score) not in (int, float) for score in (*draft.scores, *draft.qs, *draft.shares)):
        return "a score, q or share is no float"
    if not all(0 <= n < NUMBER_LIMIT for n in (*draft.ranks, *draft.contexts, draft.passes)):
        return f"a rank, context or the number of passes is not from 0 to {NUMBER_LIMIT - 1}"
    if count > request.budget:
        return f"{number_of(count, 'node')}, of at most {request.budget}"
    if any(not ROOT <= parent < node for node, parent in enumerate(draft.parents)):
        return "a parent is no earlier node"
    if max(depths_of(draft.parents), default=0) > len(request.shape):
        return f"deeper than {number_of(len(request.shape), 'step')}"
    if not all(0 <= token < vocab_size for token in draft.token_ids):
        return f"a token id is not from 0 to {vocab_size - 1}"
    if not all(0 <= score <= 1 for score in (*draft.scores, *draft.shares)):
        return "a score or share is not from 0 to 1"
    # Proposals count as deterministic: with another q, the verification rules `mss` and
    # `traversal` would not be lossless.
    if draft.q is not None or set(draft.qs) - {1.0}:
        return "a q is not 1: its proposals are not drawn"
    if len({*zip(draft.parents, draft.token_ids, strict=True)}) < count:
        return "a token comes twice behind one node"
    if max(request.shape, default=1) == 1 and len({*draft.parents}) < count:
        return "a branch, where each step has one child"
    return ""
