"""Makes the values of the page's pictures from a Frame.

Values have dicts keyed by number instead of lists: Gradio's stream diff is wrong for lists inside
lists, and expensive for lists that slide."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from itertools import accumulate
from typing import Any

from core.config.mechanisms import combine_rule, length_policy
from ui.run.budget import with_budget_bounds
from ui.run.charts import drafters_value, lengths_value, timeline_value
from ui.run.explain import bars, explain
from ui.run.frame import Baseline, Before, Frame
from ui.run.opening import OPENING
from ui.run.pipeline_notes import is_fault
from ui.run.probabilities import probability_words, rounded_probability
from ui.run.race import place_value, race_value
from ui.run.routing_values import route_in_short, routed_candidates, routing_value
from ui.run.trees import drafts_apart, dropped_values, picture_words, tree_nodes
from ui.run.view import Detail, TokenView, View
from ui.run.votes import proposals_value, vote_in_short
from ui.words.spreads import SINGLE, is_slower

__all__ = ["PICTURES", "SIMPLER", "PictureMaker", "selected_round_words", "picture_values"]

Value = dict[str, Any]

SIMPLER = "sequence"
"""The preset to try if several drafters make a run slower than plain decoding."""

# The latest tokens are sent one by one: LIVE_TOKENS, or FINAL_TOKENS of a complete run. Older text
# is sent in pieces of CHUNK tokens, so that Gradio's diff sends little.
LIVE_TOKENS = 200
FINAL_TOKENS = 4000
CHUNK = 100


PICTURES = (
    "figures",
    "strip",
    "tree",
    "routing",
    "proposals",
    "inspector",
    "lengths",
    "timeline",
)
CHARTS = ("lengths", "timeline")
# Seconds that an update of the charts may wait.
CHART_S = 0.25


def picture_values(
    frame: Frame,
    baseline: Baseline | None = None,
    charts: dict[str, Value] | None = None,
    before: Before | None = None,
    cache: dict[int, Value] | None = None,
) -> dict[str, Value]:
    """The values of PICTURES, by name. `charts`: values of the CHARTS to use again. `cache`: token
    values that calls for the same run share."""
    drawn = charts or {
        "lengths": with_budget_bounds(lengths_value(frame, before), frame.view),
        "timeline": timeline_value(frame),
    }
    return {
        "figures": figures_value(frame, baseline, before),
        "strip": strip_value(frame, cache),
        "tree": tree_value(frame),
        "routing": routing_value(frame),
        "proposals": proposals_value(frame),
        "inspector": inspector_value(frame),
        **{name: drawn[name] for name in CHARTS},
    }


class PictureMaker:
    """`picture_values` for one tab. At full speed the charts, which cost a browser most, are
    usually updated once in CHART_S seconds."""

    def __init__(self) -> None:
        self._charts: dict[str, Value] = {}
        self._charts_at = float("-inf")
        self._selected = -1

    def values(
        self, frame: Frame, baseline: Baseline | None, now: float, before: Before | None = None
    ) -> dict[str, Value]:
        """The values of PICTURES; `now`: seconds of a monotonic clock."""
        same_run = self._charts.get("lengths", {}).get("run") == frame.view.run_id
        pinned_moved = frame.pinned and frame.selected_round != self._selected
        may_wait = frame.mode == "full" and not frame.is_complete and same_run and not pinned_moved
        charts = self._charts if may_wait and now - self._charts_at < CHART_S else None
        values = picture_values(frame, baseline, charts, before)
        if charts is None:
            self._charts = {name: values[name] for name in CHARTS}
            self._charts_at, self._selected = now, frame.selected_round
        return values


def strip_value(frame: Frame, cache: dict[int, Value] | None = None) -> Value:
    """The text as tokens; in a long run the oldest text comes in pieces."""
    view = frame.view
    limit = FINAL_TOKENS if frame.is_complete else LIVE_TOKENS
    first = max(0, len(view.tokens) - limit) // CHUNK * CHUNK
    last = len(view.tokens) - 1
    return {
        "run": view.run_id,
        "drafters": drafters_value(view),
        "prompt": view.started.prompt if view.started else "",
        "template": _template(view),
        "old": {
            str(at // CHUNK): "".join(token.text for token in view.tokens[at : at + CHUNK])
            for at in range(0, first, CHUNK)
        },
        "tokens": {
            # The last token's value is not cached, since `view.tail` is added to it.
            str(first + i): _token(token, view.tail)
            if first + i == last
            else _cached_token(token, cache)
            for i, token in enumerate(view.tokens[first:])
        },
        **selected_round_words(frame),
        "token": _selected_token(frame),
        "pinned": frame.pinned,
        "done": frame.is_complete,
        "notes": {
            str(round_.number): " ".join(faults)
            for round_ in view.rounds
            if (faults := [note for note in round_.notes if is_fault(note)])
        },
    }


def _selected_token(frame: Frame) -> int | None:
    """The selected node's token, a key of `node_of_token`."""
    nodes = frame.detail.node_of_token if frame.detail else {}
    return next((token for token, node in nodes.items() if node == frame.node), None)


def selected_round_words(frame: Frame) -> Value:
    """Fields of `strip_value` that depend on the displayed round."""
    return {**place_value(frame), "said": route_in_short(frame)}


def _cached_token(token: TokenView, cache: dict[int, Value] | None) -> Value:
    """The cache's key is the object's `id`, unique while the run's view holds the token."""
    if cache is None:
        return _token(token, "")
    # The run's view holds the token: its `id` stays unique.
    cached = cache.get(id(token))
    if cached is None:
        cached = cache[id(token)] = _token(token, "")
    return cached


def _token(token: TokenView, tail: str) -> Value:
    return {
        # Short keys, since a frame may have thousands of tokens.
        "t": token.text + tail,
        "tok": token.token,
        "id": token.token_id,
        "r": token.round,
        "k": token.kind,
        "by": ",".join(str(i) for i, _ in token.scores),
        "s": {str(i): rounded_probability(score) for i, score in token.scores},
        "p": rounded_probability(token.probability),
    }


def figures_value(
    frame: Frame,
    baseline: Baseline | None,
    before: Before | None = None,
) -> Value:
    """The race against plain decoding, and the run's figures, None while unknown. `before`: the
    previous run, for comparison."""
    view, stats = frame.view, frame.view.stats
    any_yet = stats.num_rounds > 0
    values: Value = {
        "run": view.run_id,
        "state": _state(frame),
        # Whether the dock opens on the drafters' pane.
        "who": bool(routed_candidates(view)) or _is_vote(view),
    }
    for name in FIGURES:
        values[name] = getattr(stats, name) if any_yet else None
    values["max_new_tokens"] = view.sampling.get("max_new_tokens")
    values["finish_reason"] = "" if frame.run_id == OPENING else view.finish_reason
    # Plain decoding has no speed-up over itself.
    compared = (
        baseline if any_yet and view.drafters and not _is_unmeasured(frame, baseline) else None
    )
    ratio = compared.speed_up(stats.tokens_per_second) if compared else None
    values["speedup"] = ratio.value if ratio else None
    values["sample"] = SINGLE if ratio and ratio.groups < 2 else ""
    values["slower"] = ratio is not None and is_slower(ratio)
    values["offer"] = SIMPLER if values["slower"] and _has_simpler(view) else ""
    values["scores"] = _scores_value(view)
    # Without the previous run's speed-up: one sample cannot be compared with this run's repeats.
    values["before"] = {name: getattr(before.stats, name) for name in FIGURES} if before else {}
    return {**values, **race_value(frame, baseline)}


def _has_simpler(view: View) -> bool:
    policy = length_policy(view.speculation.get("length", ""))
    return len(view.drafters) > 1 and policy.set_by_user


def _is_vote(view: View) -> bool:
    return bool(view.drafters) and combine_rule(view.speculation.get("combine", "union")).chains


def _scores_value(view: View) -> Value:
    """Empty before the first draft."""
    board = view.scoreboard
    counts = [board.get(name, (0, 0)) for name in view.slots]
    return {
        key: {**drafter, "accepted": accepted, "proposed": proposed}
        for (key, drafter), (accepted, proposed) in zip(
            drafters_value(view).items(), counts, strict=True
        )
        if board
    }


def _is_unmeasured(frame: Frame, baseline: Baseline | None) -> bool:
    """Whether there is no speed-up to show yet."""
    partial = frame.view.state != "completed" and not (baseline and baseline.blocks)
    return frame.measuring or partial


def _state(frame: Frame) -> str:
    """A run that has ended may be shown at an earlier position."""
    if frame.run_id == OPENING:
        return "recording"
    state = frame.view.state
    if not state:
        return "queued" if frame.place else ""
    if state != "running" or not frame.ended:
        return state
    return "interrupted" if frame.at_end else "playing back"


FIGURES = (
    "tokens_per_second",
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "num_rounds",
    "ttft_ms",
    "num_new_tokens",
    "num_accepted_tokens",
    "num_draft_tokens",
    "num_verified_nodes",
    "total_ms",
    "draft_ms",
    "verify_ms",
    "prefill_ms",
    "queue_ms",
    "overlap_ratio",
)


def tree_value(frame: Frame) -> Value:
    """The displayed round's tree at its present `stage`.

    `root`: the last committed token before the round. `own`: the LLM's own token. `node`: the
    selected node. `committed`: the number of tokens that the round committed. `why`: the rejection
    and the vote, in words. `words`: the combine rule's words. `rest`: whether the run is complete
    or is not played at full speed."""
    view, detail = frame.view, frame.detail
    value: Value = {
        "run": view.run_id,
        "round": frame.selected_round,
        "stage": detail.stage if detail else "draft",
        "drafters": drafters_value(view),
        "root": _root(view, detail),
        "nodes": {},
        "drafts": {},
        "own": None,
        "dropped": {},
        "words": {},
        "node": frame.node,
        "committed": None,
        "why": "",
        "rest": frame.is_complete or frame.mode != "full",
    }
    if detail is None:
        return value
    if detail.combined:
        value["words"] = asdict(picture_words(view, detail.combined))
    value["nodes"] = tree_nodes(detail, view.drafters)
    value["drafts"] = drafts_apart(detail, view.drafters)
    value["dropped"] = dropped_values(detail, view.drafters, value["root"]["t"])
    if detail.completed:
        value["committed"] = len(detail.completed.token_ids)
    verdict = detail.verified
    why = ""
    if verdict and verdict.own_kind == "recovered":
        why = explain(detail, None, view.letters, view.sampling).sentence
    # The reason for the path's end goes first: a low panel cuts off the last words.
    value["why"] = " ".join(filter(None, (why, vote_in_short(detail))))
    if verdict and verdict.own_token_id is not None:
        value["own"] = {
            "t": verdict.own_text,
            "id": verdict.own_token_id,
            "kind": verdict.own_kind,
            "drew": verdict.rule != "greedy",
            "p": rounded_probability(verdict.own_probability),
            "after": verdict.path[-1] if verdict.path else -1,
        }
    return value


def _root(view: View, detail: Detail | None) -> Value:
    """The last committed token before the round. Without a run the text is None."""
    if detail and detail.combined:
        return {"t": detail.combined.root_text, "id": detail.combined.root_token_id}
    number = detail.round if detail else 0
    before = next((token for token in reversed(view.tokens) if token.round < number), None)
    if before:
        return {"t": before.token, "id": before.token_id}
    started = view.started
    if started and started.prompt_token_ids:
        return {"t": started.prompt_texts[-1], "id": started.prompt_token_ids[-1]}
    return {"t": None, "id": -1}


def _template(view: View) -> Value:
    """The chat template's text before and after the prompt; empty if there is no template."""
    if view.started is None or not view.started.config.get("chat"):
        return {}
    return dict(_around(view.started.prompt, view.started.prompt_texts))


# Cached: a long conversation has many places to search.
@lru_cache(maxsize=64)
def _around(prompt: str, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """If the prompt occurs in several places, the best begins and ends between tokens, apart from
    white space. Among equals a place with text after it is preferred, then the last place."""
    text = "".join(texts)
    if prompt not in text:
        prompt = prompt.strip()  # some templates strip it
    if not prompt or prompt not in text:
        return ()
    bounds = {0, *accumulate(map(len, texts))}

    def preference(begin: int) -> tuple[bool, bool, int]:
        before, after = text[:begin], text[begin + len(prompt) :]
        starts = range(len(before.rstrip()), begin + 1)
        ends = range(begin + len(prompt), len(text) - len(after.lstrip()) + 1)
        is_whole = not bounds.isdisjoint(starts) and not bounds.isdisjoint(ends)
        return is_whole, bool(after.strip()), begin

    begins = [i for i in range(len(text)) if text.startswith(prompt, i)]
    begin = max(begins, key=preference)
    return ("before", text[:begin]), ("after", text[begin + len(prompt) :])


def inspector_value(frame: Frame) -> Value:
    """One node explained: the bars of its probabilities, and the verdict in a sentence."""
    view, detail = frame.view, frame.detail
    explanation = explain(detail, frame.node, view.letters, view.sampling)
    return {
        "run": view.run_id,
        "round": frame.selected_round,
        "node": frame.node,
        "drafters": drafters_value(view),
        "title": explanation.title,
        "sentence": explanation.sentence,
        "outcome": explanation.outcome,
        "token": explanation.token,
        "id": explanation.token_id,
        "parent_t": explanation.parent_text,
        "bars": bars(detail, explanation, view.drafters),
        "meant": probability_words(view.config),
    }
