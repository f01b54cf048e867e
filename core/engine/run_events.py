"""The first and the last event of a run."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
from datetime import UTC, datetime
from functools import cache

from core.config.mechanisms import can_begin_ahead, draft_kind
from core.errors import MODEL_FAULTS, log_unexpected
from core.events import RunCancelled, RunCompleted, RunFailed, RunStarted
from core.models.layer_stream import stream_of
from core.models.loading.load import LoadedModels
from core.models.protocol import ranks_info
from core.sequence import TokenSequence

__all__ = ["run_cancelled", "run_completed", "run_failed", "run_started"]

VERSIONED = ("torch", "transformers", "tokenizers")


def run_started(
    sequence: TokenSequence, models: LoadedModels, prompt_texts: tuple[str, ...], queue_ms: float
) -> RunStarted:
    """The run's first event. `prompt_texts`: the text of each prompt token; `queue_ms`: the
    request's time in the queue."""
    info, stream = models.llm.info, stream_of(models.llm)
    run = dataclasses.replace(
        sequence.request, sampling=sequence.sampling, speculation=sequence.speculation
    )
    return RunStarted(
        run_id=sequence.run_id,
        seq=sequence.next_seq(),
        at_ms=sequence.ms(),
        created_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        prompt=sequence.request.prompt,
        prompt_token_ids=sequence.prompt_ids,
        prompt_texts=prompt_texts,
        config=run.to_plain(),
        # `config`: the run as it is decoded. `asked`: the request as it was sent.
        asked=sequence.request.to_plain(),
        models=models.infos,
        drafters=sequence.speculation.drafters,
        dtype=info.dtype,
        device=info.device,
        versions=dict(_versions()),
        seed=sequence.sampling.seed or 0,
        queue_ms=queue_ms,
        warnings=(*models.warnings, *_warnings(sequence, info.dtype)),
        offload=None if stream is None else stream.info,
        ranks=ranks_info(models.llm),
    )


def run_completed(sequence: TokenSequence) -> RunCompleted:
    """The event of a finished run."""
    now = sequence.ms()
    return RunCompleted(
        sequence.run_id,
        sequence.next_seq(),
        now,
        sequence.finish_reason,
        sequence.detokenizer.flush(),
        sequence.fold.stats(now),
    )


def run_cancelled(sequence: TokenSequence) -> RunCancelled:
    """The event of a run that its caller cancelled."""
    now = sequence.ms()
    tail = sequence.detokenizer.flush()
    stats = sequence.fold.stats(now)
    return RunCancelled(sequence.run_id, sequence.next_seq(), now, tail, stats)


def run_failed(sequence: TokenSequence, error: BaseException) -> RunFailed:
    """Ends a run by an error and returns its event."""
    log_unexpected(f"run {sequence.run_id} failed", error)
    # Set first: a sequence without a finish reason counts as running.
    sequence.finish_reason = "failed"
    now = sequence.ms()
    try:
        tail = sequence.detokenizer.flush()
    except MODEL_FAULTS:  # the tokenizer itself may have failed
        tail = ""
    return RunFailed(
        sequence.run_id,
        sequence.next_seq(),
        now,
        tail,
        type(error).__name__,
        str(error),
        sequence.fold.stats(now),
    )


def _warnings(sequence: TokenSequence, dtype: str) -> tuple[str, ...]:
    speculation = sequence.speculation
    warnings = [*sequence.warnings]
    # The order in which a matrix product adds up may depend on its number of rows. In float32 the
    # difference matters only in a tie.
    if dtype != "float32":
        warnings.append(
            f"{dtype}: a pass over a tree rounds differently from a pass over one token, so where "
            "two tokens are nearly equal the text may differ from plain decoding's; in float32 it "
            "is equal token for token"
        )
    if not speculation.drafters:
        warnings.append("no drafters: this is plain decoding")
    draft, combine = speculation.draft, speculation.combine
    if speculation.pipeline == "ahead" and not can_begin_ahead(draft, combine):
        by = f"draft={draft}" if draft_kind(draft).fused else f"combine={combine}"
        warnings.append(
            f"pipeline=ahead does nothing with {by}: its SSMs draft one tree together, and begin "
            "it when the round begins"
        )
    return tuple(warnings)


@cache
def _versions() -> dict[str, str]:
    # Cached: reading the versions takes milliseconds.
    versions = {name: importlib.metadata.version(name) for name in VERSIONED}
    return {"python": platform.python_version(), **versions}
