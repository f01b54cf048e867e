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

from bench.made.drafts import Drafting
from bench.made.parts import (
    HOSTILE_TEXTS,
    MAX_NODES,
    WORDS,
    MergedTree,
    Target,
    models,
    vocabulary,
)
from bench.made.rules import (
    MINIONS,
    Ballot,
    Mechanisms,
    chosen,
    rewarded,
)
from core.config import Request, SamplingParams, SpeculationConfig
from core.events import (
    Ahead,
    Combined,
    Drafted,
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

__all__ = ["DRAFTERS", "ENDINGS", "HOSTILE_TEXTS", "MINIONS", "Mechanisms", "synthetic_run"]

DRAFTERS = ("ssm-code", "ssm-dialogue", "ssm-stories")
ENDINGS = ("completed", "cancelled", "failed", "cut")

PLAIN_EVERY = 7


def synthetic_run(
    rounds: int = 8,
    seed: int = 0,
    drafters: tuple[str, ...] = DRAFTERS,
    run_id: str | None = None,
    end: str = "completed",
    hostile: bool = False,
    mechanisms: Mechanisms | None = None,
) -> list[Event]:
    """The events of one SYNTHETIC run of `rounds` rounds.

    `end` is one of ENDINGS: `cut` has no last event, as after a crash. `hostile` puts markup,
    template syntax, control and bidi characters and very long tokens into every kind of text.
    About four tokens a round; without drafters every round is plain. `mechanisms` adds votes, a
    length controller's estimates, drafts made ahead and a drafter that fails.
    """
    if end not in ENDINGS:
        raise ValueError(f"end is {end!r}: one of {', '.join(ENDINGS)}")
    maker = _Maker(run_id or f"synthetic-{seed}", drafters, seed, hostile)
    maker.uses = mechanisms or Mechanisms()
    return list(maker.events(rounds, seed, end))


class _Maker(Drafting):
    def __init__(self, run_id: str, drafters: tuple[str, ...], seed: int, hostile: bool) -> None:
        self.run_id, self.drafters, self.hostile = run_id, drafters, hostile
        self.rng = rng = random.Random(seed)
        self.uses = Mechanisms()
        self.forward = (0.0, 0.0)
        self.early: dict[str, float] = {}
        self.fates: list[Ahead] = []
        self.winner = ""
        self.shares: list[float] = []
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
        self.weights = dict.fromkeys(drafters, 1.0)

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
                drafters=self.drafters,
                expansion=self.shape,
                record_top_k=3,
                combine=self.uses.combine,
                weights="paper" if self.uses.combine == "vote" else "full_information",
                length=self.uses.length,
                pipeline="off" if self.uses.pipeline == "off" else "across",
            ),
        )
        plain = asked.to_plain()
        plain["sampling"]["seed"] = seed
        plain["speculation"].update(
            draft="topk",
            verify="greedy",
            max_tree_nodes=MAX_NODES,
            pipeline=self.uses.pipeline,
        )
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
            versions={"specscope": "0.1.0", "synthetic": "bench/made/run.py"},
            seed=seed,
            queue_ms=0.25,
            warnings=("SYNTHETIC run: made by bench/made/run.py, no model ran.",),
        )

    # -- one round --

    def _round(self, number: int, cut: bool) -> Iterator[Event]:
        self.target.extend(self.committed + len(self.shape) + 2)
        plain = not self.drafters or number % PLAIN_EVERY == PLAIN_EVERY - 1
        spans: list[Span] = []
        if number == 0:
            spans.append(self._span("llm", "prefill", 8.0))
        drafts = () if plain else self._drafts(number, spans)
        self._unasked("unused")  # in a plain round, or of a drafter that has failed
        yield self._seen(Drafted(**self._head(), round=number, drafts=drafts))
        ballot = chosen(self.uses.combine, drafts, self.weights)
        tree, self.winner = ballot.tree, ballot.winner
        spans.append(self._span("combine", "combine", 0.1))
        yield self._seen(self._combined(number, ballot))
        spans.append(self._span("llm", "forward", 6.0))
        self.forward = spans[-1].start_ms, spans[-1].end_ms
        spans += self._drafting_ahead(number)
        spans.append(self._span("verify", "verify", 0.3))
        verified = self._verified(number, tree)
        yield self._seen(verified)
        spans.append(self._span("commit", "commit", 0.2))
        yield self._seen(
            self._completed(number, verified, 0 if plain else len(self.shape), cut, spans)
        )

    def _combined(self, number: int, ballot: Ballot) -> Combined:
        tree = ballot.tree
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
            rule=self.uses.combine,
            weights=dict(self.weights) if self.uses.weighs else {},
            masses=ballot.masses,
            dropped_masses=ballot.dropped_masses,
            winner=ballot.winner,
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
        self._learn(len(verified.outcomes), len(verified.path))
        following = 0 if not self.drafters else len(self.shape)
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
            next_speculation_length=following,
            weights=dict(self.weights),
            temperatures=dict.fromkeys(self.drafters, 1.0 + 0.01 * number),
            spans=tuple(spans),
            kv_used=first + count,
            kv_capacity=self.position + 8 * number + 64,
            **self._told(number, following, last=cut),
        )

    # -- small things --

    def _learn(self, nodes: int, accepted: int) -> None:
        if self.uses.combine == "vote":
            if nodes:
                share = accepted / nodes
                mean = sum(self.shares) / len(self.shares) if self.shares else share
                self.weights = rewarded(self.weights, self.winner, share, mean)
                self.shares.append(share)
            return
        moved = {name: w * self.rng.uniform(0.9, 1.1) for name, w in self.weights.items()}
        mean = sum(moved.values()) / max(1, len(moved))
        self.weights = {name: weight / mean for name, weight in moved.items()}

    def _seen(self, event: Event) -> Event:
        self.fold.observe(event)
        return event

    def _head(self) -> dict[str, Any]:
        self.seq += 1
        return {"run_id": self.run_id, "seq": self.seq, "at_ms": round(self.clock, 6)}
