"""NodeServer: the SSMs of one node behind messages. One frame in, at most one frame out.

It holds the text of every run that it has been asked about, so that a round brings only the tokens
committed since. What it lacks it says (`RunReply.need`), and is sent the text again: a node that
has been started anew loses time and nothing else. Knows no socket (`core.nodes.listener`).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from msgspec.structs import replace as replace_fields

from core.config.budget import shape_nodes
from core.config.checks import MAX_TREE_NODES
from core.config.mechanisms import DRAFT_KINDS, draft_kind, drafts_together
from core.drafters.ahead import AheadPlan, PassEnded
from core.drafters.base import DraftRequest
from core.drafters.pooled_drafting import PooledRequest
from core.drafters.ssm_pool import SsmPool
from core.errors import MODEL_FAULTS, ConfigError, DrafterError
from core.models.protocol import LanguageModel
from core.nodes.messages import (
    MOST_RUNS,
    MOST_SSMS,
    MOST_TEXT,
    MOST_TOKENS,
    VERSION,
    AheadDraftsMessage,
    AheadMessage,
    AheadReply,
    Audition,
    DraftAsk,
    DraftReply,
    DraftsMessage,
    FreeMessage,
    HelloMessage,
    MessageError,
    RefusedMessage,
    RoundMessage,
    RunAsk,
    RunReply,
    ServedSsm,
    WelcomeMessage,
    encode,
    to_node,
)
from core.nodes.replies import ahead_reply, draft_reply, error_reply
from core.nodes.served_run import ServedRun, ahead_plan, draft_request, sequence_from
from core.trees.draft import Draft

__all__ = ["NodeServer"]

# Bounds of what clients can make it hold, besides MOST_RUNS: vocabulary sizes, clients that have
# introduced themselves. The one that was not asked for longest goes first.
MOST_VOCABULARIES, MOST_CLIENTS = 4, 64
UNUSED_S = 600.0
"""A run that was not asked for so long is forgotten: its engine may be gone."""
Clock = Callable[[], float]


class NodeServer:
    """`models`: SSMs by name; `tokenizer_hash`: of their tokenizer. `clock` in seconds. ConfigError
    for more than MOST_SSMS."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        tokenizer: Any,
        tokenizer_hash: str,
        clock: Clock = time.perf_counter,
    ) -> None:
        if len(models) > MOST_SSMS:
            raise ConfigError.of("ssm", len(models), f"at most {MOST_SSMS} SSMs on a node")
        self._models = models
        self._tokenizer, self._tokenizer_hash = tokenizer, tokenizer_hash
        self._clock = clock
        self._started = secrets.token_hex(8)
        # By the size of an LLM's vocabulary: drafts are padded to it.
        self._pools: dict[int, SsmPool] = {}
        # By client: the vocabulary size of its LLM.
        self._clients: dict[bytes, int] = {}
        self._runs: dict[tuple[bytes, str], ServedRun] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Its SSMs."""
        return tuple(self._models)

    @property
    def num_runs(self) -> int:
        """Runs whose text it holds."""
        return len(self._runs)

    def handle(
        self, client: bytes, frame: bytes, interrupted: PassEnded | None = None
    ) -> bytes | None:
        """Serves one message of a client; its answer, None where there is none. Drafting ahead
        stops once `interrupted` is set: another message waits, and no drafts are sent."""
        try:
            message = to_node(frame)
        except MessageError as error:
            return encode(RefusedMessage(0, str(error)[:MOST_TEXT]))
        if isinstance(message, HelloMessage):
            return encode(self._welcome(client, message))
        if client not in self._clients:
            number = 0 if isinstance(message, FreeMessage) else message.number
            return encode(RefusedMessage(number, "no hello came before it"))
        if isinstance(message, FreeMessage):
            for run in message.runs:
                self._free((client, run))
            return None
        # The client that was asked last is the last to be forgotten.
        self._clients[client] = self._clients.pop(client)
        try:
            made = (
                self._ahead(client, message, interrupted or threading.Event())
                if isinstance(message, AheadMessage)
                else self._round(client, message)
            )
        # What it holds of this client may be half updated; other clients are served as before.
        except MODEL_FAULTS as error:
            self._free_all(client)
            reason = f"drafting failed: {type(error).__name__}: {error}"[:MOST_TEXT]
            return encode(RefusedMessage(message.number, reason))
        return None if made is None else encode(made)

    def forget_unused(self) -> None:
        """Frees the rows of runs without a round for UNUSED_S: their engine may be gone."""
        now = self._clock()
        for key in [k for k, run in self._runs.items() if now - run.used > UNUSED_S]:
            self._free(key)

    def close(self) -> None:
        """Frees the rows of all runs."""
        for key in list(self._runs):
            self._free(key)

    # -- introductions --

    def _welcome(self, client: bytes, hello: HelloMessage) -> WelcomeMessage | RefusedMessage:
        if hello.version != VERSION:
            return RefusedMessage(0, f"version is {hello.version}: {VERSION} is that of this node")
        if hello.tokenizer != self._tokenizer_hash:
            theirs, ours = hello.tokenizer[:12], self._tokenizer_hash[:12]
            return RefusedMessage(0, f"tokenizer is {theirs}: that of the SSMs here, {ours}")
        if hello.vocab_size not in self._pools:
            if not hello.vocab_size:
                return RefusedMessage(0, "vocab_size is 0: at least 1")
            used = {*self._clients.values()}
            self._pools = {size: pool for size, pool in self._pools.items() if size in used}
            if len(self._pools) >= MOST_VOCABULARIES:
                return RefusedMessage(
                    0, f"vocab_size is {hello.vocab_size}: one of {sorted(self._pools)}"
                )
            self._pools[hello.vocab_size] = SsmPool(self._models, hello.vocab_size)
        if self._clients.get(client, hello.vocab_size) != hello.vocab_size:
            return RefusedMessage(0, f"vocab_size is {hello.vocab_size}: that of your first hello")
        while len(self._clients) >= MOST_CLIENTS and client not in self._clients:
            unused = next(iter(self._clients))
            self._free_all(unused)
            del self._clients[unused]
        self._clients[client] = hello.vocab_size
        return WelcomeMessage(
            VERSION,
            self._tokenizer_hash,
            self._started,
            [_ssm_message(*one) for one in self._models.items()],
        )

    def _free_all(self, client: bytes) -> None:
        for key in [key for key in self._runs if key[0] == client]:
            self._free(key)

    # -- one round --

    @torch.inference_mode()
    def _round(self, client: bytes, message: RoundMessage) -> DraftsMessage:
        began = time.perf_counter()
        pool = self._pools[self._clients[client]]
        served, replies = self._updated_runs(client, message.runs, pool)
        drafts = _RoundDrafting(pool, began).draft(served)
        for ask, run in served:
            auditions = self._audition(ask, run, pool)
            length = len(run.sequence.tokens)
            replies.append(RunReply(ask.run, length, -1, drafts.get(ask.run, []), auditions))
        return DraftsMessage(message.number, (time.perf_counter() - began) * 1000, replies)

    @torch.inference_mode()
    def _ahead(
        self, client: bytes, message: AheadMessage, interrupted: PassEnded
    ) -> AheadDraftsMessage | None:
        """The drafts for likely outcomes; None where they were `interrupted`: what was begun is
        used by the round that interrupts."""
        began = time.perf_counter()
        pool = self._pools[self._clients[client]]
        texts = [one.text for one in message.runs]
        served, refused = self._updated_runs(client, texts, pool, keep_drafts=True)
        verified = _RoundDrafting(pool, began, reporting=False).draft(served)
        replies = [AheadReply(one.run, one.length, one.need, [], [], []) for one in refused]
        held = {ask.run: run for ask, run in served}
        asked = [(one, held[one.text.run]) for one in message.runs if one.text.run in held]
        planned: list[tuple[ServedRun, AheadPlan]] = []
        for one, run in asked:
            try:
                _check(replace_fields(one.text, asks=one.asks), pool)
                planned.append((run, ahead_plan(one, run, self._clients[client])))
            except ConfigError:
                continue  # proposals: nothing depends on them
        results, failed = pool.draft_ahead([plan for _, plan in planned], interrupted)
        for name in failed:
            for run, _ in planned:
                _close_ssm(run, pool, name)  # opened again by its next draft
        if interrupted.is_set():
            return None
        # Not before: what an answer that is not sent would report goes with the round instead.
        for one, run in asked:
            for reply in verified.get(one.text.run, []):
                _report(reply, pool, run)
        made = {id(run): one for (run, _), one in zip(planned, results, strict=True)}
        replies += [
            ahead_reply(
                one, run, pool.ssms, made.get(id(run), {}), verified.get(one.text.run, []), began
            )
            for one, run in asked
        ]
        return AheadDraftsMessage(message.number, (time.perf_counter() - began) * 1000, replies)

    def _updated_runs(
        self, client: bytes, asks: Sequence[RunAsk], pool: SsmPool, *, keep_drafts: bool = False
    ) -> tuple[list[tuple[RunAsk, ServedRun]], list[RunReply]]:
        """The runs of a message with their texts brought up to date, and replies to those of which
        there is nothing to draft. `keep_drafts`: drafts of a text without new tokens are being
        verified; else they were dropped."""
        self.forget_unused()
        here = {(client, ask.run) for ask in asks}
        served: list[tuple[RunAsk, ServedRun]] = []
        replies = []
        for ask in asks:
            try:
                _check(ask, pool)
                run = self._updated_run(client, ask, pool, here, keep_drafts)
            except ConfigError as error:
                # The other runs of the message are drafted for.
                errors = [error_reply(one.ssm, one.index, error) for one in ask.asks]
                replies.append(RunReply(ask.run, ask.start, -1, errors, []))
                continue
            if run is None:
                replies.append(RunReply(ask.run, 0, 0, [], []))
            else:
                served.append((ask, run))
        return served, replies

    def _updated_run(
        self,
        client: bytes,
        ask: RunAsk,
        pool: SsmPool,
        here: Container[tuple[bytes, str]],
        keep_drafts: bool,
    ) -> ServedRun | None:
        """The run with its text brought up to date, committed in its SSMs; None where the text
        before `start` is missing. Of the oldest runs, which make way for it, none is of the same
        message (`here`). Raises ConfigError for what it cannot take."""
        key = (client, ask.run)
        run = self._runs.get(key)
        if run is not None and run.holds(ask.start, ask.tokens):
            run.used = self._clock()
            fresh = ask.tokens[len(run.sequence.tokens) - ask.start :]
            if fresh or not keep_drafts:
                _commit(run, pool, tuple(fresh))
            return run
        # Another text, or a gap: what is known of the run is of no use.
        self._free(key)
        if ask.start or ask.opened is None or not ask.tokens:
            return None
        while len(self._runs) >= MOST_RUNS:
            others = [one for one in self._runs if one not in here]
            self._free(min(others, key=lambda one: self._runs[one].used))
        vocab_size = self._clients[client]
        # Rows are by run id, and another client may use the same one.
        own_id = f"{client.hex()}:{ask.run}"
        sequence = sequence_from(own_id, ask.opened, ask.tokens, vocab_size, self._tokenizer)
        self._runs[key] = ServedRun(sequence, self._clock())
        return self._runs[key]

    def _audition(self, ask: RunAsk, run: ServedRun, pool: SsmPool) -> list[Audition]:
        if not ask.audition:
            return []
        log_probs, timings = pool.audition(ask.heard, run.sequence.tokens, window=ask.audition)
        ms = {timing.lane: timing.seconds * 1000 for timing in timings}
        return [Audition(name, values, ms.get(name, 0.0)) for name, values in log_probs.items()]

    def _free(self, key: tuple[bytes, str]) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            pool = self._pools[self._clients[key[0]]]
            for name in run.open_ssms:
                with suppress(*MODEL_FAULTS):  # after a fault a row may be too broken to close
                    pool.ssms[name].close(run.sequence)


class _RoundDrafting:
    """The drafts of one round. `began`: when it was received, in seconds of time.perf_counter.
    `reporting`: whether temperature and likelihoods of the SSMs go with them."""

    def __init__(self, pool: SsmPool, began: float, *, reporting: bool = True) -> None:
        self._pool = pool
        self._began = began
        self._reporting = reporting
        self._replies: dict[str, list[DraftReply]] = {}

    def draft(self, served: Sequence[tuple[RunAsk, ServedRun]]) -> dict[str, list[DraftReply]]:
        """The drafts of each run, by its name. Requests of several runs share an SSM's passes."""
        by_ssm: dict[str, list[tuple[RunAsk, ServedRun, DraftRequest]]] = {}
        for ask, run in served:
            requests = [
                (one, draft_request(one, run.sequence))
                for one in ask.asks
                if self._ensure_open(ask, run, one)
            ]
            if not requests:
                continue
            speculation = run.sequence.speculation
            if drafts_together(requests[0][0].kind, speculation.combine):
                self._draft_together(ask, run, requests)
                continue
            for one, request in requests:
                by_ssm.setdefault(one.ssm, []).append((ask, run, request))
        if by_ssm:
            drafts = self._pool.draft({n: [r for _, _, r in all_] for n, all_ in by_ssm.items()})
            for name, result in drafts.items():
                for i, (ask, run, request) in enumerate(by_ssm[name]):
                    if isinstance(result, BaseException):
                        self._fail(ask, run, request, result)
                    else:
                        self._add(ask, run, request, result[i])
        return self._replies

    def _draft_together(
        self, ask: RunAsk, run: ServedRun, asked: Sequence[tuple[DraftAsk, DraftRequest]]
    ) -> None:
        """One tree of all SSMs of this node."""
        requests = tuple(request for _, request in asked)
        pooled = PooledRequest(requests, tuple(one.weight for one, _ in asked))
        try:
            drafts = self._pool.draft_together(pooled)
        except MODEL_FAULTS as error:
            culprit = error.name if isinstance(error, DrafterError) else None
            for request in requests:
                if culprit in (None, request.name):
                    self._fail(ask, run, request, error)
            return
        for request, draft in zip(requests, drafts, strict=True):
            self._add(ask, run, request, draft)

    def _ensure_open(self, ask: RunAsk, run: ServedRun, one: DraftAsk) -> bool:
        """Opens the run in an SSM unless it is open; False if the SSM fails."""
        if one.ssm not in run.open_ssms:
            run.open_ssms.add(one.ssm)
            try:
                self._pool.ssms[one.ssm].open(run.sequence)
            except MODEL_FAULTS as error:
                self._fail(ask, run, draft_request(one, run.sequence), error)
        return one.ssm in run.open_ssms

    def _fail(
        self, ask: RunAsk, run: ServedRun, request: DraftRequest, error: BaseException
    ) -> None:
        _close_ssm(run, self._pool, request.name)
        reply = error_reply(request.name, request.index, error)
        self._replies.setdefault(ask.run, []).append(reply)

    def _add(self, ask: RunAsk, run: ServedRun, request: DraftRequest, draft: Draft) -> None:
        run.drafts[request.name] = draft
        reply = draft_reply(request, draft, self._began, ask.top_k)
        if self._reporting:
            _report(reply, self._pool, run)
        self._replies.setdefault(ask.run, []).append(reply)


def _check(ask: RunAsk, pool: SsmPool) -> None:
    """Raises ConfigError for an ask that would not be bounded, or names what is not here."""
    for one in ask.asks:
        if one.kind not in DRAFT_KINDS or draft_kind(one.kind).drawn or one.kind == "auto":
            raise ConfigError.of("draft", one.kind, "a kind whose tokens are not drawn")
        if not draft_kind(one.kind).by_score and shape_nodes(tuple(one.shape)) > MAX_TREE_NODES:
            raise ConfigError.of("shape", one.shape, f"at most {MAX_TREE_NODES} nodes")
    for name in (*(one.ssm for one in ask.asks), *ask.heard):
        if name not in pool.ssms:
            raise ConfigError.of("ssm", name, f"one of {', '.join(pool.ssms)}")
    vocab_size = next(iter(pool.ssms.values())).vocab_size
    if ask.start + len(ask.tokens) > MOST_TOKENS:
        raise ConfigError.of("tokens", ask.start + len(ask.tokens), f"at most {MOST_TOKENS}")
    if ask.tokens and max(ask.tokens) >= vocab_size:
        raise ConfigError.of("tokens", max(ask.tokens), f"ids from 0 to {vocab_size - 1}")


def _commit(run: ServedRun, pool: SsmPool, token_ids: tuple[int, ...]) -> None:
    """Takes the tokens committed since the last drafts, in every SSM that has read the run."""
    run.sequence.tokens += token_ids
    for name in sorted(run.open_ssms):
        # Without new tokens a draft that was never verified is dropped.
        draft = run.drafts.pop(name, None) if token_ids else None
        try:
            pool.ssms[name].commit(run.sequence, draft, token_ids)
        except MODEL_FAULTS:
            _close_ssm(run, pool, name)  # opened again by its next draft
    run.drafts.clear()


def _report(reply: DraftReply, pool: SsmPool, run: ServedRun) -> None:
    """Fills in what the SSM reports; it reports each token's likelihood once."""
    ssm = pool.ssms[reply.ssm]
    reply.temperature = ssm.temperature(run.sequence)
    reply.likelihoods = ssm.likelihoods(run.sequence)


def _close_ssm(run: ServedRun, pool: SsmPool, name: str) -> None:
    run.open_ssms.discard(name)
    run.drafts.pop(name, None)
    pool.ssms[name].close(run.sequence)


def _ssm_message(name: str, model: LanguageModel) -> ServedSsm:
    info = replace(model.info, name=name)
    return ServedSsm(
        info.name, info.parameters, info.architecture, info.vocab_size, info.context_length,
        info.dtype, info.device, info.fingerprint,
    )  # fmt: skip
