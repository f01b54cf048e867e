"""`routing`: compares routers, which choose the SSMs that draft, with all SSMs, with single SSMs,
and with the best choice in hindsight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from bench.contestants import run_events
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.prompts import Prompt, domains, load_prompts
from bench.recorded import RecordedLlm, SplicedText, splice
from bench.results import Results
from bench.settings import Settings
from bench.suites.routing_searches import (
    NEAR_BEST,
    SearchCounts,
    count_searches,
    first_routed,
    search_good_ssm,
)
from bench.tables import (
    NOTHING,
    Group,
    Row,
    Table,
    claim_row,
    claims_table,
    figure,
    long_rows,
    per_pass,
    ratio,
    speed,
    table,
)
from bench.timing import time_call
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.events import RoundCompleted
from core.metrics import audition_ms
from core.plurals import number_of
from core.routing.regret import regret_of
from lab.figures import Estimate
from lab.order import Block

# The number in a name: how many SSMs may draft.
ALL, CREDIT, CREDIT_ONE, COSINE = "all SSMs", "credit, 2", "credit, 1", "cosine, 2"
ALONE = "alone: "
ROUTED = {CREDIT: 2, CREDIT_ONE: 1, COSINE: 2}
NODES = 32
TREE = SpeculationConfig(
    combine="vote_tree", vote_nodes=NODES, max_tree_nodes=NODES, draft="best_first",
    speculation_length=10,
)  # fmt: skip
# ORDERS: the domains of each spliced text. SEGMENT: the tokens per domain.
ORDERS = (
    ("stories", "code", "math", "dialogue"),
    ("code", "dialogue", "stories", "math"),
    ("dialogue", "math", "code", "stories"),
    ("math", "stories", "dialogue", "code"),
)
SEGMENT = 48
# Tokens within which a good SSM must be found, in at least SHARE of the searches.
FOUND_WITHIN = {"own": 16, "turning": 24, "spliced": 24}
SHARE = 0.9
# The largest allowed regrets on texts that change their domain.
MOST_REGRET = {"to_fixed": ("the best fixed SSM", 0.0), "to_oracle": ("the oracle", 0.1)}
# Reworded development prompts, with the same ids.
REWORDED = Path(__file__).parent.parent / "prompts-reworded.jsonl"
# Prompts that change their domain; `domain` is the domain of the end.
TURNING = Path(__file__).parent.parent / "prompts-turning.jsonl"
TITLES = {
    "own": "The LLM's own continuations",
    "turning": "The LLM's own continuations of prompts that change their domain",
    "spliced": "Spliced texts",
}


def routing_configs(ssms: Sequence[str]) -> dict[str, SpeculationConfig]:
    """Contestants by name, all with the same node budget."""
    return {
        ALL: TREE,
        CREDIT: replace(TREE, routing="credit"),
        CREDIT_ONE: replace(TREE, routing="credit", routed_drafters=1),
        COSINE: replace(TREE, routing="cosine"),
        **{f"{ALONE}{name}": replace(TREE, drafters=(name,)) for name in ssms},
    }


@dataclass(frozen=True)
class Routing(Suite):
    """`orders`: the domains of each spliced text, in order."""

    one_dtype: ClassVar[bool] = True

    name: str = "routing"
    about: str = "which SSMs draft: tokens per pass and per second, regret, changes of domain"
    defaults: Settings = Settings(prompts=24, tokens=96, repeats=1, dtypes=("float32",))
    orders: tuple[tuple[str, ...], ...] = ORDERS

    def measure(self, context: Context) -> None:
        models = context.load(context.settings.dtypes[0])
        configs = routing_configs(list(models.ssms))
        turning = load_prompts(TURNING)[: context.settings.prompts]
        with closing(Engine(models)) as engine:
            for kind, prompts in (("own", context.prompts), ("turning", turning)):
                texts_by_id = {one.id: one.text for one in prompts}
                blocks = Blocks(context, {"text": kind}, list(texts_by_id))
                blocks.measure(
                    {
                        n: partial(_continuation_run, context, engine, texts_by_id, c)
                        for n, c in configs.items()
                    },
                    warm=Block(blocks.items[0], 0),
                )
            _compare_wordings(context, engine, configs)
            all_domains = set(domains(context.all_prompts))
            orders = [order for order in self.orders if all_domains.issuperset(order)]
            texts = {
                text.name: text
                for order in orders
                for text in [splice(engine, context.all_prompts, order, SEGMENT)]
            }
        recorded = RecordedLlm(models.llm)
        with_recorded = replace(models, llm=cast(Any, recorded))
        spliced = Blocks(context, {"text": "spliced"}, list(texts))
        with closing(Engine(with_recorded)) as engine:
            spliced.measure(
                {n: partial(_spliced_run, engine, recorded, texts, c) for n, c in configs.items()},
                warm=Block(spliced.items[0], 0) if spliced.items else None,
            )

    def report(self, context: Context) -> Report:
        return Report(routing_tables(context.results))


def _continuation_run(
    context: Context,
    engine: Engine,
    texts: Mapping[str, str],
    config: SpeculationConfig,
    block: Block,
) -> dict[str, Any]:
    sampling = SamplingParams(context.settings.tokens, ignore_eos=True)
    return _run(engine, Request(texts[block.item], sampling, config))


def _spliced_run(
    engine: Engine,
    llm: RecordedLlm,
    texts: Mapping[str, SplicedText],
    config: SpeculationConfig,
    block: Block,
) -> dict[str, Any]:
    text = texts[block.item]
    llm.text = (*text.prompt_ids, *text.token_ids)
    sampling = SamplingParams(len(text.token_ids), ignore_eos=True)
    request = Request("spliced", sampling, config, prompt_token_ids=text.prompt_ids)
    return _run(engine, request, text)


def _compare_wordings(
    context: Context, engine: Engine, configs: Mapping[str, SpeculationConfig]
) -> None:
    """Stores the SSMs that `credit` chooses for a prompt and for its other wording."""
    ids = {prompt.id for prompt in context.all_prompts}
    others = {one.id: one for one in load_prompts(REWORDED) if one.id in ids}
    for prompt in context.all_prompts:
        if prompt.id not in others or context.results.has(reworded=prompt.id):
            continue
        choices = {
            name: [_first_choice(engine, one, configs[name]) for one in (prompt, others[prompt.id])]
            for name in (CREDIT, CREDIT_ONE)
        }
        context.results.add({"reworded": prompt.id, "choices": choices})


def _first_choice(engine: Engine, prompt: Prompt, config: SpeculationConfig) -> list[str]:
    events = engine.generate(Request(prompt.text, SamplingParams(1), config))
    first = next(event for event in events if isinstance(event, RoundCompleted))
    return sorted(one.drafter for one in first.routing if one.role == "routed")


def run_counted(engine: Engine, request: Request) -> tuple[dict[str, Any], list[RoundCompleted]]:
    """Tokens, rounds and seconds of a run, and the events of its rounds. Raises EngineError if a
    drafter fails."""
    events, seconds = time_call(lambda: list(run_events(engine, [request])))
    rounds = [event for event in events if isinstance(event, RoundCompleted)]
    tokens = sum(len(one.token_ids) for one in rounds)
    return {"tokens": tokens, "rounds": len(rounds), "seconds": seconds}, rounds


def _run(engine: Engine, request: Request, text: SplicedText | None = None) -> dict[str, Any]:
    figures, rounds = run_counted(engine, request)
    # Seconds in which SSMs score the text's last tokens.
    figures["audition"] = sum(map(audition_ms, rounds)) / 1000
    if request.speculation.routing == "all":
        return figures
    routes = [
        frozenset(one.drafter for one in each.routing if one.role in ("routed", "explored"))
        for each in rounds
        for _ in each.token_ids
    ]
    token_ids = [token for one in rounds for token in one.token_ids]
    sequence = engine.prepare(request)
    names = list(engine.models.ssms)
    all_ids = [*sequence.prompt_ids, *token_ids]
    # Greedy tokens at every position, even if the SSM did not draft there.
    choices = engine.first_choice_tokens(sequence, names, all_ids, len(sequence.prompt_ids))
    hits = {n: [a == b for a, b in zip(choices[n], token_ids, strict=True)] for n in names}
    regret = regret_of(hits, routes, request.speculation.speculation_length)
    # In a spliced text, a search begins at each change of domain. In other texts, the only search
    # begins at the first token: the prompt shows which domain follows.
    starts = [0] if text is None else text.starts[1:]
    parts = zip(starts, [*starts[1:], len(token_ids)], strict=True)
    # Several SSMs may share the least number of passes.
    best = {one.drafters[0] for one in regret.alone if one.passes == regret.fixed.passes}
    figures |= {
        "to_fixed": regret.against(regret.fixed),
        "to_oracle": regret.against(regret.oracle),
        "best_fixed_after": first_routed(routes, best),
        "searches": [search_good_ssm(routes, hits, *part) for part in parts],
    }
    return figures


def routing_tables(results: Results) -> tuple[str, ...]:
    texts, claims = [], []
    for kind, title in TITLES.items():
        rows = long_rows(results.where(text=kind))
        if not rows:
            continue
        note = (
            "Tokens per LLM pass and per second, medians over texts, and all tokens over all passes"
            " of all texts; after the comma: the ratio to all SSMs, on the same texts."
        )
        if kind == "spliced":
            note += (
                f" A recorded text, {SEGMENT} tokens of each domain, stands for the LLM's choices."
            )
        columns: dict[str, Callable[[Group], object]] = {
            "SSMs that draft": lambda group: group["contestant"],
            "tokens per pass": partial(_against_all, per_pass, 2),
            "all tokens over all passes": _pooled_against_all,
            "tokens per second": partial(_against_all, speed, 0),
            "auditions, % of time": _audition_percent,
            "regret to the best fixed": partial(_percent, "to_fixed"),
            "regret to the oracle": partial(_percent, "to_oracle"),
        }
        texts.append(str(Table(title, rows, ("contestant",), columns, note)))
        counts = {name: _search_counts(kind, rows, name) for name in ROUTED}
        texts.append(_search_table(kind, counts))
        claims += [*_routing_claims(kind, rows), *_search_claims(kind, counts)]
    claims += [_wording_claim(results, name) for name in (CREDIT, CREDIT_ONE)]
    return (*texts, claims_table(list(filter(None, claims))))


def _wording_claim(results: Results, name: str) -> list[str]:
    pairs = [sample["choices"][name] for sample in results.samples if "choices" in sample]
    if not pairs:
        return []
    equal = sum(one == other for one, other in pairs)
    return _count_row(f"`{name}`: other words leave the choice as it was", equal, len(pairs))


def _count_row(claim: str, count: int, total: int) -> list[str]:
    """A claim about `count` of `total` cases; the target is SHARE."""
    share, target = 100 * count / total, 100 * SHARE
    verdict = "reached" if share >= target else f"not reached, by {max(1, target - share):.0f} %"
    return [claim, f"at least {target:.0f} %", f"{count} of {total} ({share:.0f} %)", verdict]


def _against_all(value: Any, digits: int, group: Group) -> str:
    gain = "" if group["contestant"] == ALL else f", {ratio(group.ratio(value, contestant=ALL))}"
    return f"{figure(group.median(value), digits)}{gain}"


def _pooled_against_all(group: Group) -> str:
    against_all = ratio(group.tokens_per_pass_ratio(contestant=ALL))
    gain = "" if group["contestant"] == ALL else f", {against_all}"
    return f"{figure(group.tokens_per_pass())}{gain}"


def _audition_percent(group: Group) -> str:
    return f"{100 * group.sum('audition') / group.sum('seconds'):.1f}"


def _percent(field: str, group: Group) -> str:
    middle = group.median(field)
    return "" if middle is None else f"{100 * middle.value:+.1f} %"


def _routing_claims(kind: str, rows: Sequence[Row]) -> list[list[str]]:
    all_rows = Group(rows)
    credit = all_rows.of(contestant=CREDIT)
    target = 0.95 if kind == "spliced" else 1.0
    # Pooled: most texts take the same number of passes either way, and a median would hide the
    # losses of a few texts.
    row = claim_row(
        f"{kind}: `credit` with 2 against all, all tokens over all passes",
        credit.tokens_per_pass_ratio(contestant=ALL),
        target,
    )
    row[2] += f"; the median text {ratio(credit.ratio(per_pass, contestant=ALL))}"
    lines = [row]
    if kind == "own":
        lines += [_best_fixed_claim(all_rows.of(contestant=name)) for name in (CREDIT, CREDIT_ONE)]
    else:
        lines += [
            _regret_row(f"{kind}: regret of `{CREDIT}` to {other}", credit.median(field), most)
            for field, (other, most) in MOST_REGRET.items()
        ]
    if kind == "spliced":
        best = _best_alone(rows)
        for name in (CREDIT, CREDIT_ONE):
            both = Group([*all_rows.of(contestant=name).rows, *best])
            faster = both.of(contestant=name).ratio(speed, contestant=ALONE)
            what = f"spliced: `{name}` against the best single SSM, tokens per second"
            lines.append(claim_row(what, faster, 1.15))
    return lines


def _best_fixed_claim(group: Group) -> list[str]:
    limit, firsts = FOUND_WITHIN["own"], [row["best_fixed_after"] for row in group.rows]
    found = sum(first is not None and first <= limit for first in firsts)
    claim = f"own: `{group['contestant']}`: the best fixed SSM drafts by token {limit}"
    return _count_row(claim, found, len(firsts))


def _regret_row(claim: str, regret: Estimate | None, most: float) -> list[str]:
    """A claim about a regret, as a fraction of passes. `most`: the highest allowed regret."""
    target = f"at most {100 * most:.0f} %"
    if regret is None:
        return [claim, target, NOTHING, NOTHING]
    value, low, high = (f"{100 * x:+.1f} %" for x in (regret.value, regret.low, regret.high))
    excess = 100 * (regret.value - most)
    verdict = "reached" if excess <= 0 else f"not reached, by {max(0.1, excess):.1f} %"
    return [claim, target, f"{value} ({low} to {high})", verdict]


def _search_counts(kind: str, rows: Sequence[Row], name: str) -> SearchCounts:
    alone = dict.fromkeys(r["contestant"] for r in rows if r["contestant"].startswith(ALONE))
    searches = [one for row in rows if row["contestant"] == name for one in row["searches"]]
    ssms = [one.removeprefix(ALONE) for one in alone]
    return count_searches(searches, FOUND_WITHIN[kind], ssms, ROUTED[name])


def _search_table(kind: str, counts: Mapping[str, SearchCounts]) -> str:
    limit, parts = FOUND_WITHIN[kind], "changes" if kind == "spliced" else "texts"
    note = (
        f"Good SSM: its tokens are right at least {100 * NEAR_BEST:.0f} % as often as the best "
        f"SSM's, {'up to the next change' if kind == 'spliced' else 'in the whole continuation'}. "
        "At the right: fixed sets of as many SSMs as the router lets draft; the best of them in "
        "hindsight, and the mean of all."
    )
    heads = ["SSMs that draft", parts, "a good one from the first token on", "others"]
    heads += [
        f"of these within {number_of(limit, 'token')}",
        "a good one in a set that never changes",
    ]
    lines = [
        (name, one.parts, one.at_once, one.late, one.followed, _never_changes(one))
        for name, one in counts.items()
    ]
    return table(f"How soon a good SSM drafts: {TITLES[kind]}", heads, lines, note)


def _never_changes(one: SearchCounts) -> str:
    return f"{one.fixed_parts}: {' + '.join(one.fixed)}; mean {one.mean_parts:.1f}"


def _search_claims(kind: str, counts: Mapping[str, SearchCounts]) -> list[list[str]]:
    """In spliced texts, a change does not count if a good SSM drafts its first token."""
    limit, lines = FOUND_WITHIN[kind], []
    for name in (CREDIT, CREDIT_ONE):
        one = counts[name]
        base = f"{' + '.join(one.fixed)} without a change: {one.fixed_parts} of {one.parts}"
        if kind == "spliced" and one.late:
            claim = f"{kind}: `{name}` follows a change within {number_of(limit, 'token')}"
            row = _count_row(claim, one.followed, one.late)
            row[2] += f"; a good SSM before the change: {one.at_once} of {one.parts}; {base}"
            lines.append(row)
        elif kind != "spliced":
            claim = f"{kind}: `{name}`: a good SSM found within {number_of(limit, 'token')}"
            row = _count_row(claim, one.within, one.parts)
            row[2] += f"; {base}"
            # A set of SSMs that never changes finds a good SSM at least as often.
            if row[3] == "reached" and one.fixed_parts >= one.within:
                row[3] = "says nothing: reached without a change"
            lines.append(row)
    return lines


def _best_alone(rows: Sequence[Row]) -> list[Row]:
    """For each text and repeat, the row of the SSM that was fastest alone."""
    best: dict[tuple[Any, Any], Row] = {}
    for row in rows:
        key = row["prompt"], row["repeat"]
        if row["contestant"].startswith(ALONE) and (
            key not in best or speed(row) > speed(best[key])
        ):
            best[key] = row
    return [{**row, "contestant": ALONE} for row in best.values()]
