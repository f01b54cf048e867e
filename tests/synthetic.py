"""SYNTHETIC runs for tests: coherent events that no model produced.

Every run says so itself: its prompt begins with SYNTHETIC, its models are named synthetic-*, and
its warnings name this file. Knows core's contracts only; no figure in it was measured, times are
plausible inventions. The same arguments give the same events.
"""

from __future__ import annotations

import codecs
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from core.events import (
    Combined,
    Drafted,
    DraftRecord,
    Event,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    Span,
    TopK,
    Trial,
    Verified,
)
from core.metrics import StatsFold
from tests.synthetic_parts import (
    HOSTILE_TEXTS,
    MAX_NODES,
    WORDS,
    MergedTree,
    Target,
    models,
    vocabulary,
)

__all__ = ["DRAFTERS", "ENDINGS", "HOSTILE_TEXTS", "synthetic_run"]

DRAFTERS = ("ssm-code", "ssm-dialogue", "ssm-stories")
ENDINGS = ("completed", "cancelled", "failed", "cut")

EXPANSION = (1, 1, 3, 1, 1, 1)
PLAIN_EVERY = 7


def synthetic_run(
    rounds: int = 8,
    seed: int = 0,
    drafters: tuple[str, ...] = DRAFTERS,
    run_id: str | None = None,
    end: str = "completed",
    hostile: bool = False,
) -> list[Event]:
    """The events of one SYNTHETIC run of `rounds` rounds.

    `end` is one of ENDINGS: `cut` has no last event, as after a crash. `hostile` puts markup,
    template syntax, control and bidi characters and very long tokens into every kind of text.
    About four tokens a round; without drafters every round is plain.
    """
    if end not in ENDINGS:
        raise ValueError(f"end is {end!r}: one of {', '.join(ENDINGS)}")
    maker = _Maker(run_id or f"synthetic-{seed}", drafters, random.Random(seed), hostile)
    return list(maker.events(rounds, seed, end))


class _Maker:
    def __init__(
        self, run_id: str, drafters: tuple[str, ...], rng: random.Random, hostile: bool
    ) -> None:
        self.run_id, self.drafters, self.rng, self.hostile = run_id, drafters, rng, hostile
        self.bytes = vocabulary(hostile)
        self.texts = [token.decode("utf-8", "replace") for token in self.bytes]
        self.target = Target(rng, hostile)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.fold = StatsFold()
        self.clock = 0.0
        self.seq = -1
        self.position = 0
        self.committed = 0
        self.root = 1
        self.weights = {name: 1 / len(drafters) for name in drafters}

    def events(self, rounds: int, seed: int, end: str) -> Iterator[Event]:
        yield self._seen(self._started(rounds, seed))
        for number in range(rounds):
            yield from self._round(number, cut=end == "completed" and number == rounds - 1)
        tail = self.decoder.decode(b"", final=True)
        self.clock += 0.05
        common: dict[str, Any] = {**self._head(), "text_tail": tail}
        common["stats"] = self.fold.stats(self.clock)
        if end == "completed":
            yield RunCompleted(finish_reason="length", **common)
        elif end == "cancelled":
            yield RunCancelled(**common)
        elif end == "failed":
            message = "SYNTHETIC failure " + (" ".join(HOSTILE_TEXTS) if self.hostile else "")
            yield RunFailed(error="DrafterError", message=message, **common)

    def _started(self, rounds: int, seed: int) -> RunStarted:
        prompt = f"SYNTHETIC prompt {seed}: Once upon a time — a fox"
        if self.hostile:
            prompt += " ".join(HOSTILE_TEXTS)
        texts = tuple(re.findall(r"\s*\S+|\s+$", prompt))
        self.position = len(texts)
        asked = Request(
            prompt=prompt,
            sampling=SamplingParams(max_new_tokens=rounds * 8 + 1),
            speculation=SpeculationConfig(
                drafters=self.drafters, expansion=EXPANSION, record_top_k=3
            ),
        )
        plain = asked.to_plain()
        plain["sampling"]["seed"] = seed
        plain["speculation"].update(draft="topk", verify="greedy", max_tree_nodes=MAX_NODES)
        return RunStarted(
            **self._head(),
            created_utc=(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=seed)).isoformat(),
            prompt=prompt,
            prompt_token_ids=tuple(1 + len(text) % len(WORDS) for text in texts),
            prompt_texts=texts,
            config=plain,
            asked=asked.to_plain(),
            models=models(self.drafters, len(self.bytes)),
            drafters=self.drafters,
            dtype="float32",
            device="cpu",
            versions={"specscope": "0.1.0", "synthetic": "tests/synthetic.py"},
            seed=seed,
            queue_ms=0.25,
            warnings=("SYNTHETIC run: made by tests/synthetic.py, no model ran.",),
        )

    # -- one round --

    def _round(self, number: int, cut: bool) -> Iterator[Event]:
        self.target.extend(self.committed + len(EXPANSION) + 2)
        plain = not self.drafters or number % PLAIN_EVERY == PLAIN_EVERY - 1
        spans: list[Span] = []
        if number == 0:
            spans.append(self._span("llm", "prefill", 8.0))
        drafts = () if plain else tuple(self._draft(name, spans) for name in self.drafters)
        yield self._seen(Drafted(**self._head(), round=number, drafts=drafts))
        tree = MergedTree()
        for draft in drafts:
            tree.add(draft)
        spans.append(self._span("combine", "combine", 0.1))
        yield self._seen(self._combined(number, tree))
        spans.append(self._span("llm", "forward", 6.0))
        spans.append(self._span("verify", "verify", 0.3))
        verified = self._verified(number, tree)
        yield self._seen(verified)
        spans.append(self._span("commit", "commit", 0.2))
        yield self._seen(self._completed(number, verified, 0 if plain else 6, cut, spans))

    def _draft(self, name: str, spans: list[Span]) -> DraftRecord:
        skill = 0.75 - 0.05 * self.drafters.index(name)
        names = ("token_ids", "parents", "depths", "scores", "qs", "ranks")
        lists: dict[str, list[Any]] = {name: [] for name in names}
        tokens = lists["token_ids"]
        frontier = [(-1, True)]
        for depth, width in enumerate(EXPANSION, start=1):
            deeper = []
            for parent, on_path in frontier:
                for rank, (token, right) in enumerate(self._guesses(depth, width, on_path, skill)):
                    score = round(self.rng.uniform(0.1, 0.9) / (rank + 1), 6)
                    deeper.append((len(tokens), right))
                    for values, value in zip(
                        lists.values(), (token, parent, depth, score, 1.0, rank), strict=True
                    ):
                        values.append(value)
            frontier = deeper
        own = (
            self._span(name, "catch_up", 0.4),
            self._span(name, "draft", 0.5 * len(EXPANSION)),
        )
        spans += own
        return DraftRecord(
            drafter=name,
            texts=self._shown(tokens),
            drafted_ahead=False,
            spans=own,
            **{field: tuple(values) for field, values in lists.items()},
        )

    def _guesses(
        self, depth: int, width: int, on_path: bool, skill: float
    ) -> Iterator[tuple[int, bool]]:
        """`width` different tokens, the right one among them if the drafter gets this far."""
        where = self.committed + depth - 1
        hard = 0.8 * self.target.hardness[where] + 0.2 * self.rng.random()
        place = self.rng.randrange(width) if on_path and hard < skill else -1
        for rank in range(width):
            right = rank == place
            token = self.target.token_ids[where] if right else self._wrong(where, rank)
            yield token, right

    def _wrong(self, where: int, rank: int) -> int:
        # Drafters share three candidates, so that they often agree on a wrong token too.
        step = 1 + 3 * rank + self.rng.randrange(3)
        return 1 + (self.target.token_ids[where] - 1 + step) % (len(self.bytes) - 1)

    def _combined(self, number: int, tree: MergedTree) -> Combined:
        return Combined(
            **self._head(),
            round=number,
            token_ids=tuple(tree.token_ids),
            texts=self._shown(tree.token_ids),
            parents=tuple(tree.parents),
            depths=tuple(tree.depths),
            proposals=tuple(tuple(proposals) for proposals in tree.proposals),
            dropped=tuple(tree.dropped),
            root_token_id=self.root,
            root_text=self.texts[self.root],
        )

    def _verified(self, number: int, tree: MergedTree) -> Verified:
        node, path = -1, list[int]()
        trials: list[Trial] = []
        outcomes = ["not_reached"] * len(tree.token_ids)
        chances = [round(self.rng.uniform(0.0, 0.04), 6) for _ in outcomes]
        while children := tree.children(node):
            wanted = self.target.token_ids[self.committed + len(path)]
            found = next((c for c in children if tree.token_ids[c] == wanted), None)
            for child in children:
                chances[child] = 0.75 if child == found else chances[child]
                outcomes[child] = "accepted" if child == found else "rejected"
                drafter = tree.proposals[child][0].drafter
                trials.append(Trial(child, drafter, chances[child], 1.0, child == found))
            if found is None:
                break
            path.append(found)
            node = found
        own = self.target.token_ids[self.committed + len(path)]
        kind = "plain" if not outcomes else "recovered" if tree.children(node) else "bonus"
        return Verified(
            **self._head(),
            round=number,
            rule="greedy",
            path=tuple(path),
            outcomes=tuple(outcomes),
            own_token_id=own,
            own_text=self.texts[own],
            own_kind=kind,
            own_probability=0.625,
            llm_probabilities=tuple(chances),
            trials=tuple(trials),
            top_k=tuple(self._tops(path)),
        )

    def _tops(self, path: list[int]) -> Iterator[TopK]:
        for step, node in enumerate((-1, *path)):
            wanted = self.target.token_ids[self.committed + step]
            yield self._top(node, "llm", wanted, 0.75 if step < len(path) else 0.625)
            for name in self.drafters:
                yield self._top(node, name, wanted, 0.5)

    def _top(self, node: int, source: str, likely: int, chance: float) -> TopK:
        others = self.rng.sample([i for i in range(len(self.bytes)) if i != likely], 2)
        tokens = [likely, *others]
        return TopK(node, source, tuple(tokens), self._shown(tokens), (chance, 0.125, 0.0625))

    def _completed(
        self, number: int, verified: Verified, length: int, cut: bool, spans: list[Span]
    ) -> RoundCompleted:
        accepted = len(verified.path)
        lost = 1 if cut and accepted > 1 else 0  # the limit ends the text inside the path
        count = accepted - lost if lost else accepted + 1
        tokens = self.target.token_ids[self.committed : self.committed + count]
        first = self.position + self.committed
        self.committed += count
        self.root = tokens[-1]
        self._learn()
        return RoundCompleted(
            **self._head(),
            round=number,
            position=first,
            token_ids=tuple(tokens),
            texts=self._shown(tokens),
            text_deltas=tuple(self.decoder.decode(self.bytes[token]) for token in tokens),
            num_accepted=accepted - lost,
            num_cut=lost,
            speculation_length=length,
            next_speculation_length=0 if not self.drafters else len(EXPANSION),
            weights=dict(self.weights),
            temperatures=dict.fromkeys(self.drafters, 1.0 + 0.01 * number),
            spans=tuple(spans),
            kv_used=first + count,
            kv_capacity=self.position + 8 * number + 64,
        )

    # -- small things --

    def _learn(self) -> None:
        moved = {name: w * self.rng.uniform(0.9, 1.1) for name, w in self.weights.items()}
        total = sum(moved.values())
        self.weights = {name: weight / total for name, weight in moved.items()}

    def _seen(self, event: Event) -> Event:
        self.fold.observe(event)
        return event

    def _head(self) -> dict[str, Any]:
        self.seq += 1
        return {"run_id": self.run_id, "seq": self.seq, "at_ms": round(self.clock, 6)}

    def _span(self, lane: str, name: str, typical_ms: float) -> Span:
        start = self.clock
        self.clock = round(start + typical_ms * self.rng.uniform(0.8, 1.2), 6)
        return Span(lane, name, start, self.clock)

    def _shown(self, tokens: list[int]) -> tuple[str, ...]:
        return tuple(self.texts[token] for token in tokens)
