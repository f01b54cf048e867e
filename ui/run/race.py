"""The race: the same text, written by the LLM alone and with drafts, pass by pass."""

from __future__ import annotations

from typing import Any

from core.plurals import noun_of
from ui.run.baselines import round_ends_ms
from ui.run.frame import Baseline, Frame
from ui.run.proof import same_distribution
from ui.run.view import View
from ui.words.spreads import apart_words, is_noise, is_unsure, noise_words, speed_up_words

__all__ = ["place_value", "race_value", "speed_sentence", "verdict"]

Value = dict[str, Any]

TEXT_TOKENS = 600
"""A longer text is shown without its words."""


def race_value(frame: Frame, baseline: Baseline | None) -> Value:
    """`rounds`: for each round its number of tokens (`n`) and its end (`ms`). `words`: the text's
    tokens; `alike`: how many of `words` plain decoding writes too. `plain_ms`: the end of each
    plain pass. `repeat`: see `_lane_times`. `pinned`: whether a visitor has selected the round.

    `plain`: the number of tokens of plain decoding while it runs, else -1. `drafts`: whether the
    run has drafters. `text`: whether plain decoding wrote the same text, in words; `text_why`: the
    full sentence for `text`. `blocks`: the number of measured repeats."""
    view = frame.view
    plain_ends, ends, repeat = _lane_times(frame, baseline)
    words = view.tokens if len(view.tokens) <= TEXT_TOKENS else ()
    return {
        "rounds": {
            str(round_.number): {"n": round_.emitted, "ms": round(end, 2)}
            for round_, end in zip(view.rounds, ends, strict=True)
        },
        "words": {str(i): token.text for i, token in enumerate(words)},
        "alike": _num_alike(frame, len(words)),
        "plain_ms": {str(i): round(ms, 2) for i, ms in enumerate(plain_ends)},
        "repeat": repeat,
        **place_value(frame),
        "pinned": frame.pinned,
        "plain": frame.plain_so_far,
        "drafts": bool(view.drafters),
        "verdict": verdict(frame),
        # No sentence before all repeats are measured: a single repeat is too noisy.
        "speed": "" if frame.measuring else speed_sentence(view, baseline),
        "text": _text_answer(frame),
        "text_why": frame.answer.sentence if frame.answer else "",
        "blocks": len(baseline.blocks) if baseline else 0,
    }


def _lane_times(
    frame: Frame, baseline: Baseline | None
) -> tuple[tuple[float, ...], tuple[float, ...], Value]:
    """The ends of the plain passes and of the run's rounds, in milliseconds from the end of the
    prefill, and the repeat (block) to which these times belong: the repeat with the median
    speed-up."""
    own = round_ends_ms(frame.view)
    # Both lanes are drawn over the same words: plain passes are shown only for equal texts.
    if baseline is None or not baseline.ends or not _is_identical(frame):
        return (), own, {}
    total = len(baseline.ends)
    if frame.measuring or total < 2:
        return baseline.ends[0][0], own, {}
    # Without a median repeat the first repeat is shown, which is the run itself.
    number = baseline.median_block
    plain_ends, ends = baseline.ends[number or 0]
    repeat = {"number": (number or 0) + 1, "of": total, "median": number is not None}
    # A visitor may have stepped back: `own` has the rounds shown.
    return plain_ends, ends[: len(own)], repeat


def place_value(frame: Frame) -> Value:
    """The selected round (`sel`), -1 for none, and whether it is shown to its end (`whole`)."""
    whole = frame.detail is None or frame.detail.completed is not None
    return {"sel": frame.selected_round, "whole": whole}


def verdict(frame: Frame) -> str:
    """The number of LLM passes with drafts and without; empty before the run's end, and for a run
    without drafters or rounds."""
    view, stats = frame.view, frame.view.stats
    if not frame.is_complete or not view.drafters or not stats.num_rounds:
        return ""
    tokens = f"{'The same ' if _is_identical(frame) else ''}{_count(stats.num_new_tokens, 'token')}"
    plain = stats.num_new_tokens  # plain decoding: a token a pass
    fewer = plain != stats.num_rounds
    instead = f" instead of {plain:,}" if fewer else ", as many as without drafts"
    return f"{tokens} in {_count(stats.num_rounds, 'LLM pass')}{instead}"


def speed_sentence(view: View, baseline: Baseline | None) -> str:
    """How many times as fast as plain decoding the run was, with the range. Empty if the speed-up
    was not measured, if the run has no drafters, or if it did not complete."""
    ratio = baseline.speed_up(view.stats.tokens_per_second) if baseline else None
    if baseline is None or ratio is None or not view.drafters or view.state != "completed":
        return ""
    words = speed_up_words(ratio, against=baseline.note)
    tokens_per_pass = view.stats.num_new_tokens / max(1, view.stats.num_rounds)
    noise = noise_words(ratio, tokens_per_pass)
    if not noise and (apart := apart_words(ratio)):
        return f"{words}: {apart}"
    if is_unsure(ratio) and not is_noise(ratio.value, tokens_per_pass):
        # This sentence is kept to one line at 1280 pixels.
        above = f"; above {tokens_per_pass:.2f}x is noise" if noise else ""
        return f"{words}: no difference is shown{above}"
    return f"{words}: {noise}" if noise else words


def _is_identical(frame: Frame) -> bool:
    return frame.answer is not None and frame.answer.kind == "identical"


def _num_alike(frame: Frame, num_words: int) -> int:
    """Without an answer the number is predicted from the verify rule."""
    answer = frame.answer or same_distribution(frame.view)
    if answer is None or answer.kind == "identical":
        return num_words
    return min(answer.at or 0, num_words)


def _text_answer(frame: Frame) -> str:
    answer = frame.answer
    if answer is None:
        return ""
    if answer.kind == "identical":
        return "same text ✔"
    if answer.kind == "distribution":
        return "same distribution, another text"
    place = "" if answer.at is None else f" at token {answer.at + 1}"
    return f"{'a rounding tie' if answer.kind == 'tie' else 'another text: a bug'}{place}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun_of(number, noun)}"
