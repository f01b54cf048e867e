"""NodeServer: answers the messages to one node. One frame in, at most one out.

The server keeps the text of each run: a message brings the tokens committed since the last answer.
If text is missing, `RunReply.need` says so.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from msgspec.structs import replace

from core.config.budget import shape_nodes
from core.config.checks import MAX_TREE_NODES
from core.config.mechanisms import DRAFT_KINDS, draft_kind, drafts_together
from core.drafters.ahead import AheadPlan, CancelSignal
from core.drafters.base import DraftRequest
from core.drafters.ssm_pool import SsmPool
from core.errors import MODEL_FAULTS, ConfigError
from core.events import ModelInfo
from core.models.protocol import LanguageModel
from core.remote_ssms.messages import (
    MOST_RUNS,
    MOST_SSMS,
    MOST_TEXT,
    MOST_TOKENS,
    VERSION,
    AheadDraftsMessage,
    AheadMessage,
    AheadReply,
    Audition,
    DraftReply,
    DraftRequestMessage,
    DraftsMessage,
    FreeMessage,
    HelloMessage,
    MessageError,
    RefusedMessage,
    RoundMessage,
    RunReply,
    RunRequest,
    ServedSsm,
    WelcomeMessage,
    encode,
    to_node,
)
from core.remote_ssms.replies import ahead_reply, draft_reply, error_reply, fault_text, frame_of
from core.remote_ssms.served_run import ServedRun, ahead_plan, draft_request, sequence_from
from core.trees.draft import Draft

__all__ = ["NodeServer"]

# Bounds on the memory that clients can occupy.
MOST_VOCABULARIES, MOST_CLIENTS = 4, 64
UNUSED_S = 600.0
"""Seconds without a request after which a run is freed: its engine may have ended."""
Clock = Callable[[], float]


class NodeServer:
    """`models`: SSMs by name; `clock`: in seconds. Raises ConfigError for more than MOST_SSMS."""

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
        self._process_id = secrets.token_hex(8)
        # By the vocabulary size of an LLM, to which logits are padded.
        self._pools: dict[int, SsmPool] = {}
        # The vocabulary size of each client's LLM; the client used last is at the end.
        self._clients: dict[bytes, int] = {}
        self._runs: dict[tuple[bytes, str], ServedRun] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the node's SSMs."""
        return tuple(self._models)

    def handle(
        self, client: bytes, frame: bytes, interrupted: CancelSignal | None = None
    ) -> bytes | None:
        """Serves one message of a client; returns the answer, if any. `interrupted`: ends drafting
        ahead without an answer, because another message waits."""
        try:
            message = to_node(frame)
        except MessageError as error:
            return encode(RefusedMessage(0, str(error)[:MOST_TEXT]))
        if isinstance(message, HelloMessage):
            return encode(self._welcome(client, message))
        # The node may have restarted. After this refusal the engine sends a hello and the texts.
        if client not in self._clients:
            number = 0 if isinstance(message, FreeMessage) else message.number
            return encode(RefusedMessage(number, "no hello came before it"))
        if isinstance(message, FreeMessage):
            for run in message.runs:
                self._free((client, run))
            return None
        self._clients[client] = self._clients.pop(client)
        try:
            answer = (
                self._ahead(client, message, interrupted or threading.Event())
                if isinstance(message, AheadMessage)
                else self._round(client, message)
            )
        # This client's runs may be half updated; other clients are not affected.
        except MODEL_FAULTS as error:
            self._free_all(client)
            reason = f"drafting failed: {fault_text(error)}"[:MOST_TEXT]
            return encode(RefusedMessage(message.number, reason))
        if answer is None:
            return None
        # A frame that is too large would end the connection.
        frame, is_refused = frame_of(answer)
        if is_refused:
            self._free_all(client)  # kept runs would not report these likelihoods again
        return frame

    def forget_unused(self) -> None:
        """Frees runs without a request for UNUSED_S."""
        now = self._clock()
        for key in [k for k, run in self._runs.items() if now - run.last_used > UNUSED_S]:
            self._free(key)

    def close(self) -> None:
        """Frees all runs."""
        for key in list(self._runs):
            self._free(key)

    # -- hello and welcome --

    def _welcome(self, client: bytes, hello: HelloMessage) -> WelcomeMessage | RefusedMessage:
        if hello.version != VERSION:
            return RefusedMessage(
                0, f"version is {hello.version}: {VERSION} is allowed by this node"
            )
        if hello.tokenizer != self._tokenizer_hash:
            received, allowed = hello.tokenizer[:12], self._tokenizer_hash[:12]
            return RefusedMessage(
                0, f"tokenizer is {received}: {allowed}, of this node's SSMs, is allowed"
            )
        if hello.vocab_size not in self._pools:
            if not hello.vocab_size:
                return RefusedMessage(0, "vocab_size is 0: at least 1")
            # Unused pools are dropped only here: a client that reconnects usually finds its pool.
            sizes = {*self._clients.values()}
            self._pools = {size: pool for size, pool in self._pools.items() if size in sizes}
            if len(self._pools) >= MOST_VOCABULARIES:
                return RefusedMessage(
                    0, f"vocab_size is {hello.vocab_size}: one of {sorted(self._pools)}"
                )
            self._pools[hello.vocab_size] = SsmPool(self._models, hello.vocab_size)
        if self._clients.get(client, hello.vocab_size) != hello.vocab_size:
            return RefusedMessage(
                0, f"vocab_size is {hello.vocab_size}: only that of the first hello"
            )
        while len(self._clients) >= MOST_CLIENTS and client not in self._clients:
            oldest = next(iter(self._clients))
            self._free_all(oldest)
            del self._clients[oldest]
        self._clients[client] = hello.vocab_size
        return WelcomeMessage(
            VERSION,
            self._tokenizer_hash,
            self._process_id,
            [_ssm_message(name, model.info) for name, model in self._models.items()],
        )

    def _free_all(self, client: bytes) -> None:
        for key in [key for key in self._runs if key[0] == client]:
            self._free(key)

    # -- one round --

    @torch.inference_mode()
    def _round(self, client: bytes, message: RoundMessage) -> DraftsMessage:
        received_at = time.perf_counter()
        pool = self._pools[self._clients[client]]
        runs, replies = self._updated_runs(client, message.runs, pool)
        drafts = _RoundDrafting(pool, received_at).draft(runs)
        for run in runs:
            name, length = run.request.run, len(run.sequence.tokens)
            auditions = self._audition(run, pool)
            replies.append(RunReply(name, length, -1, drafts.get(name, []), auditions))
        return DraftsMessage(message.number, (time.perf_counter() - received_at) * 1000, replies)

    @torch.inference_mode()
    def _ahead(
        self, client: bytes, message: AheadMessage, interrupted: CancelSignal
    ) -> AheadDraftsMessage | None:
        """The drafts for likely outcomes of the LLM's verification; None if `interrupted`."""
        received_at = time.perf_counter()
        pool = self._pools[self._clients[client]]
        texts = [request.text for request in message.runs]
        runs, not_ready = self._updated_runs(client, texts, pool, keep_drafts=True)
        verified = _RoundDrafting(pool, received_at, reporting=False).draft(runs)
        replies = [AheadReply(one.run, one.length, one.need, [], [], []) for one in not_ready]
        run_by_name = {run.request.run: run for run in runs}
        requests = [
            (request, run_by_name[request.text.run])
            for request in message.runs
            if request.text.run in run_by_name
        ]
        plans: list[tuple[ServedRun, AheadPlan]] = []
        for request, run in requests:
            try:
                _check(replace(request.text, drafts=request.drafts), pool)
                plans.append((run, ahead_plan(request, run, self._clients[client])))
            except ConfigError:
                continue  # rounds do not need drafts made ahead
        results, errors = pool.draft_ahead([plan for _, plan in plans], interrupted)
        # Not reported: an error that recurs is reported in a round.
        for name in errors:
            for run, _ in plans:
                _close_ssm(run, pool, name)  # opened again by its next draft
        if interrupted.is_set():
            return None
        # Only for an answer that is sent: an SSM reports each likelihood once.
        for request, run in requests:
            for reply in verified.get(request.text.run, []):
                _report(reply, pool, run)
        drafts_by_run = {id(run): one for (run, _), one in zip(plans, results, strict=True)}
        replies += [
            ahead_reply(
                request,
                run,
                pool.ssms,
                drafts_by_run.get(id(run), {}),
                verified.get(request.text.run, []),
                received_at,
            )
            for request, run in requests
        ]
        return AheadDraftsMessage(
            message.number, (time.perf_counter() - received_at) * 1000, replies
        )

    def _updated_runs(
        self,
        client: bytes,
        requests: Sequence[RunRequest],
        pool: SsmPool,
        *,
        keep_drafts: bool = False,
    ) -> tuple[list[ServedRun], list[RunReply]]:
        """A message's runs, their texts brought up to date; and replies to the runs with a missing
        text or an invalid request. `keep_drafts`: whether to keep the drafts of a text without
        new tokens."""
        self.forget_unused()
        in_message = {(client, request.run) for request in requests}
        runs: list[ServedRun] = []
        replies = []
        for request in requests:
            try:
                # `to_node` cannot check limits that depend on the SSMs and the client.
                _check(request, pool)
                run = self._updated_run(client, request, pool, in_message, keep_drafts)
            except ConfigError as error:
                # Other runs of the message still get drafts.
                errors = [error_reply(one.ssm, one.index, error) for one in request.drafts]
                replies.append(RunReply(request.run, request.start, -1, errors, []))
                continue
            if run is None:
                replies.append(RunReply(request.run, 0, 0, [], []))
            else:
                runs.append(run)
        return runs, replies

    def _updated_run(
        self,
        client: bytes,
        request: RunRequest,
        pool: SsmPool,
        in_message: Container[tuple[bytes, str]],
        keep_drafts: bool,
    ) -> ServedRun | None:
        """The run with its text brought up to date and committed in its SSMs; None if text or the
        settings of a new run are missing. A new run may replace the least recently used run that is
        not `in_message`. Raises ConfigError for invalid settings."""
        key = (client, request.run)
        run = self._runs.get(key)
        if run is not None and run.holds(request.start, request.tokens):
            run.request, run.last_used = request, self._clock()
            # The message may repeat tokens (see `ServedRun.holds`).
            new_tokens = request.tokens[len(run.sequence.tokens) - request.start :]
            # Without new tokens the LLM may still be verifying the drafts.
            if new_tokens or not keep_drafts:
                _commit(run, pool, tuple(new_tokens))
            return run
        # The run is new, or its text has changed or has a gap: the run begins anew.
        self._free(key)
        if request.start or request.settings is None or not request.tokens:
            return None
        while len(self._runs) >= MOST_RUNS:
            # Never empty: at most MOST_RUNS - 1 other runs are in the message.
            others = [one for one in self._runs if one not in in_message]
            self._free(min(others, key=lambda one: self._runs[one].last_used))
        vocab_size = self._clients[client]
        # SSMs find a run by its id, and two clients may use the same id.
        run_id = f"{client.hex()}:{request.run}"
        sequence = sequence_from(
            run_id, request.settings, request.tokens, vocab_size, self._tokenizer
        )
        self._runs[key] = ServedRun(sequence, request, self._clock())
        return self._runs[key]

    def _audition(self, run: ServedRun, pool: SsmPool) -> list[Audition]:
        names, window = run.request.to_score, run.request.audition
        if not window:
            return []
        log_probs, timings = pool.audition(names, run.sequence.tokens, window=window)
        ms = {timing.lane: timing.seconds * 1000 for timing in timings}
        return [Audition(name, values, ms.get(name, 0.0)) for name, values in log_probs.items()]

    def _free(self, key: tuple[bytes, str]) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            pool = self._pools[self._clients[key[0]]]
            for name in run.open_ssms:
                with suppress(*MODEL_FAULTS):  # closing may fail after a fault
                    pool.ssms[name].close(run.sequence)


class _RoundDrafting:
    """Drafts for one message. `received_at`: when the message arrived, by time.perf_counter.
    `reporting`: whether replies have the SSMs' calibration temperatures and likelihoods."""

    def __init__(self, pool: SsmPool, received_at: float, *, reporting: bool = True) -> None:
        self._pool = pool
        self._received_at = received_at
        self._reporting = reporting
        self._replies: dict[str, list[DraftReply]] = {}

    def draft(self, runs: Sequence[ServedRun]) -> dict[str, list[DraftReply]]:
        """The drafts by run name. Requests of several runs may share an SSM's passes."""
        to_draft: list[tuple[Sequence[DraftRequest], Sequence[float] | None]] = []
        for run in runs:
            messages = [one for one in run.request.drafts if self._ensure_open(run, one)]
            requests = [draft_request(one, run.sequence) for one in messages]
            combine, weights = run.sequence.speculation.combine, None
            if requests and drafts_together(requests[0].kind, combine):
                weights = [one.weight for one in messages]
            to_draft.append((requests, weights))
        for run, results in zip(runs, self._pool.draft_runs(to_draft), strict=True):
            for request, result in results:
                if isinstance(result, BaseException):
                    self._fail(run, request, result)
                else:
                    self._add(run, request, result)
        return self._replies

    def _ensure_open(self, run: ServedRun, message: DraftRequestMessage) -> bool:
        """Opens the run in an SSM unless it is open; False if the SSM fails."""
        if message.ssm not in run.open_ssms:
            run.open_ssms.add(message.ssm)
            try:
                self._pool.ssms[message.ssm].open(run.sequence)
            except MODEL_FAULTS as error:
                self._fail(run, draft_request(message, run.sequence), error)
        return message.ssm in run.open_ssms

    def _fail(self, run: ServedRun, request: DraftRequest, error: BaseException) -> None:
        _close_ssm(run, self._pool, request.name)
        reply = error_reply(request.name, request.index, error)
        self._replies.setdefault(run.request.run, []).append(reply)

    def _add(self, run: ServedRun, request: DraftRequest, draft: Draft) -> None:
        run.drafts[request.name] = draft
        reply = draft_reply(request, draft, self._received_at, run.request.top_k)
        if self._reporting:
            _report(reply, self._pool, run)
        self._replies.setdefault(run.request.run, []).append(reply)


def _check(request: RunRequest, pool: SsmPool) -> None:
    """Raises ConfigError for an invalid request."""
    for draft in request.drafts:
        kind = draft.kind
        if kind not in DRAFT_KINDS or draft_kind(kind).drawn or kind == "auto":
            raise ConfigError.of("draft", kind, "a kind whose tokens are not drawn")
        if not draft_kind(kind).by_score and shape_nodes(tuple(draft.shape)) > MAX_TREE_NODES:
            raise ConfigError.of("shape", draft.shape, f"at most {MAX_TREE_NODES} tree nodes")
    for name in (*(draft.ssm for draft in request.drafts), *request.to_score):
        if name not in pool.ssms:
            raise ConfigError.of("ssm", name, f"one of {', '.join(pool.ssms)}")
    vocab_size = next(iter(pool.ssms.values())).vocab_size
    end = request.start + len(request.tokens)
    if end > MOST_TOKENS:
        raise ConfigError.of("tokens", end, f"at most {MOST_TOKENS}")
    if request.tokens and max(request.tokens) >= vocab_size:
        raise ConfigError.of("tokens", max(request.tokens), f"ids from 0 to {vocab_size - 1}")


def _commit(run: ServedRun, pool: SsmPool, token_ids: tuple[int, ...]) -> None:
    run.sequence.tokens += token_ids
    for name in sorted(run.open_ssms):
        # Without new tokens the draft was not verified: it is dropped.
        draft = run.drafts.pop(name, None) if token_ids else None
        try:
            pool.ssms[name].commit(run.sequence, draft, token_ids)
        except MODEL_FAULTS:
            _close_ssm(run, pool, name)  # opened again by its next draft
    run.drafts.clear()


def _report(reply: DraftReply, pool: SsmPool, run: ServedRun) -> None:
    """Adds the SSM's calibration temperature and likelihoods to the reply; an SSM reports each
    token's likelihood once."""
    ssm = pool.ssms[reply.ssm]
    reply.temperature = ssm.temperature(run.sequence)
    reply.likelihoods = ssm.likelihoods(run.sequence)


def _close_ssm(run: ServedRun, pool: SsmPool, name: str) -> None:
    run.open_ssms.discard(name)
    run.drafts.pop(name, None)
    pool.ssms[name].close(run.sequence)


def _ssm_message(name: str, info: ModelInfo) -> ServedSsm:
    return ServedSsm(
        name, info.parameters, info.architecture, info.vocab_size, info.context_length,
        info.dtype, info.device, info.fingerprint,
    )  # fmt: skip
