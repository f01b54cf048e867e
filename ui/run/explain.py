"""Explains a token: a node's verdict in a sentence, and the bars of its probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.config.mechanisms import verify_rule
from core.events import Combined, TopK, Verified
from core.plurals import number_of
from ui.run.listed import shorten
from ui.run.probabilities import rounded_probability
from ui.run.provenance import fused_provenance, lookup_reasons, own_proposals
from ui.run.trees import dropped_after, tree_nodes
from ui.run.view import Detail
from ui.words.glossary import TOKEN_KINDS

__all__ = ["RECORD_TOP_K", "Explanation", "bars", "explain", "quote"]

MAX_QUOTED = 40
MAX_NAMED = 2  # with more proposers, a title has their letters without their names
# Values within SMALL of 0 or 1 are written with `<` or `>`; `percent` uses SMALLEST near 0.
SMALLEST, SMALL = 0.0001, 0.0005
OWN = "the LLM's own token"
OWN_TITLES = {
    "recovered": f"{OWN} after a rejection",
    "bonus": f"a {TOKEN_KINDS['bonus'].name}",
}
RECORD_TOP_K = 5
"""The page's default of `record_top_k`."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The inspector's content. `parent`: the node that the bars follow (-1: the root, None:
    none)."""

    title: str = ""
    sentence: str = ""
    outcome: str = ""
    token: str = ""
    token_id: int = -1
    parent: int | None = -1
    parent_text: str = ""
    llm_probability: float | None = None


def quote(text: str) -> str:
    """A token in quotation marks, shortened, with signs for line ends, tabs and leading spaces, and
    a dot for other characters that are not printable."""
    shown = shorten(text, MAX_QUOTED).replace("\n", "↵").replace("\t", "⇥").replace("\r", "␍")
    words = shown.lstrip(" ")
    shown = "␣" * (len(shown) - len(words)) + words
    return "“" + "".join(c if c.isprintable() else "·" for c in shown) + "”"


def explain(
    detail: Detail | None,
    node: int | None,
    letters: Mapping[str, str],
    sampling: Mapping[str, Any],
) -> Explanation:
    """Explains `node` of the round's tree: -1 is the root, None the LLM's own token. `letters`:
    each drafter's letter, by name. `sampling`: the run's sampling fields."""
    if detail is None:
        return Explanation(
            sentence="Select a token or a node to see why it was accepted or rejected."
        )
    if detail.combined is None:
        return _explain_drafts(detail)
    tree, verdict = detail.combined, detail.verified
    if node == -1:
        return _explain_root(tree)
    if node is None or not 0 <= node < len(tree.token_ids):
        return _explain_own_token(detail, tree, letters, sampling)
    parent = tree.parents[node]
    outcome = verdict.outcomes[node] if verdict else "pending"
    labels = {name: _label(name, letters) for name in letters}
    origin, lookups = fused_provenance(detail, node, labels), lookup_reasons(detail, node, labels)
    return Explanation(
        title=f"{quote(tree.texts[node])} at depth {tree.depths[node]}, "
        f"proposed by {_names(tree, node, letters)}",
        sentence=" ".join(filter(None, [_verdict(tree, verdict, node, sampling), origin, lookups])),
        outcome=outcome,
        token=tree.texts[node],
        token_id=tree.token_ids[node],
        parent=parent,
        parent_text=tree.root_text if parent < 0 else tree.texts[parent],
        llm_probability=verdict.llm_probabilities[node] if verdict else None,
    )


def bars(
    detail: Detail | None, explanation: Explanation, drafters: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """The most probable tokens after `explanation.parent`, and the explained token, by source:
    `llm` or a drafter's index. Before the verdict: the drafters' own drafts, with their scores."""
    if detail is None:
        return {}
    if detail.verified is None:
        return _drafted_bars(detail, explanation, drafters)
    index = {name: str(i) for i, name in enumerate(drafters)}
    rows = [top for top in detail.verified.top_k if top.node == explanation.parent]
    by_source = {index.get(top.source, top.source): _bar(top, explanation.token_id) for top in rows}
    if by_source.get("llm") and explanation.llm_probability is not None:
        _add_explained(
            by_source["llm"], explanation, rounded_probability(explanation.llm_probability)
        )
    for name in _proposers(detail.combined, explanation):
        if name in index:
            _add_explained(by_source.setdefault(index[name], {}), explanation, None)
    return by_source


def _drafted_bars(
    detail: Detail, explanation: Explanation, drafters: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    children = [
        node
        for node in tree_nodes(detail, drafters).values()
        if node["parent"] == explanation.parent
    ]
    by_source: dict[str, dict[str, Any]] = {}
    for key in map(str, range(len(drafters))):
        drafted = [node for node in children if key in node["by"]]
        drafted.sort(key=lambda node: -node["by"][key]["score"])
        if drafted:
            by_source[key] = {
                str(i): {
                    "t": node["t"],
                    "id": node["id"],
                    "p": node["by"][key]["score"],
                    "hit": node["id"] == explanation.token_id,
                }
                for i, node in enumerate(drafted[:RECORD_TOP_K])
            }
    return by_source


def _add_explained(
    tokens: dict[str, Any], explanation: Explanation, probability: float | None
) -> None:
    if not any(one["hit"] for one in tokens.values()):
        tokens[str(len(tokens))] = {
            "t": explanation.token,
            "id": explanation.token_id,
            "p": probability,
            "hit": True,
        }


def _proposers(tree: Combined | None, explanation: Explanation) -> tuple[str, ...]:
    positions = zip(tree.parents, tree.token_ids, strict=True) if tree else ()
    position = (explanation.parent, explanation.token_id)
    nodes = (node for node, one in enumerate(positions) if one == position)
    return next((tree.drafters_of(node) for node in nodes if tree), ())


def _bar(top: TopK, token_id: int) -> dict[str, Any]:
    return {
        str(i): {
            "t": text,
            "id": top.token_ids[i],
            "p": rounded_probability(top.probabilities[i]),
            "hit": top.token_ids[i] == token_id,
        }
        for i, text in enumerate(top.texts)
    }


def _names(tree: Combined, node: int, letters: Mapping[str, str]) -> str:
    proposals = own_proposals(tree, node) if tree.origins else tree.proposals[node]
    counts = Counter(proposal.drafter for proposal in proposals)
    label = _label if len(counts) <= MAX_NAMED else lambda name, by: by.get(name, name)
    parts = [
        label(name, letters) + (f" {times} times" if times > 1 else "")
        for name, times in counts.items()
    ]
    return ", ".join(parts) or "no drafter"


def _label(name: str, letters: Mapping[str, str]) -> str:
    return f"{letters[name]} ({name})" if name in letters else name


def _explain_drafts(detail: Detail) -> Explanation:
    if not detail.drafted or not any(draft.token_ids for draft in detail.drafted.drafts):
        return Explanation(sentence="Nothing was drafted in this round.")
    return Explanation(
        title="The first tokens of the drafts",
        sentence="The bars are the drafters' scores of their own drafts. The drafts are not one "
        "tree yet, and the LLM has not been run on them.",
        outcome="pending",
    )


def _explain_root(tree: Combined) -> Explanation:
    return Explanation(
        title=f"{quote(tree.root_text)}, the root",
        sentence="The last token of the text so far, which the LLM reads together with the tree. "
        "The bars are the next-token probabilities of the LLM and of each drafter.",
        outcome="root",
        parent_text=tree.root_text,
    )


def _explain_own_token(
    detail: Detail,
    tree: Combined,
    letters: Mapping[str, str],
    sampling: Mapping[str, Any],
) -> Explanation:
    verdict = detail.verified
    if verdict is None:
        sentence = (
            "The bars are the drafters' scores of their own drafts. The LLM has not verified this "
            "tree yet: click a node for the drafts at its place."
        )
        if not tree.token_ids:
            sentence = (
                f"{'No drafted token is in the tree' if tree.dropped else 'Nothing was drafted'}: "
                "the LLM's pass writes one token."
            )
        return Explanation(
            title=f"The drafts after {quote(tree.root_text)}",
            sentence=sentence,
            outcome="pending",
            parent_text=tree.root_text,
        )
    after = verdict.path[-1] if verdict.path else -1
    before = tree.root_text if after < 0 else tree.texts[after]
    if verdict.own_token_id is None:
        return Explanation(
            title="No token of the LLM's own",
            sentence=f"The accepted path ends the text with {quote(before)}.",
            outcome="own",
            parent=None,
            parent_text=before,
        )
    own, own_p = quote(verdict.own_text), probability(verdict.own_probability)
    reasons = {
        "recovered": _stopped_here(tree, verdict, after, letters, sampling),
        "bonus": f"{quote(before)} ends an accepted branch; the same LLM pass also gives {own} "
        f"after it ({own_p}), for free."
        + _dropped_draft(detail, after, verdict.own_token_id, letters),
        "plain": _without_a_tree(detail, verdict, letters),
    }
    return Explanation(
        title=f"{own}, {OWN_TITLES.get(verdict.own_kind, OWN)}",
        sentence=reasons.get(verdict.own_kind, ""),
        outcome="own",
        token=verdict.own_text,
        token_id=verdict.own_token_id,
        parent=after,
        parent_text=before,
        llm_probability=verdict.own_probability,
    )


def _without_a_tree(detail: Detail, verdict: Verified, letters: Mapping[str, str]) -> str:
    own, own_p = quote(verdict.own_text), probability(verdict.own_probability)
    num_dropped = len(detail.combined.dropped) if detail.combined else 0
    if not num_dropped:
        return f"Nothing was drafted in this round: plain decoding, {own} ({own_p})."
    assert verdict.own_token_id is not None
    return (
        f"No draft was verified: {number_of(num_dropped, 'drafted token')} dropped before the "
        f"LLM's pass, as not worth its time. The LLM wrote {own} ({own_p})."
        + _dropped_draft(detail, -1, verdict.own_token_id, letters)
    )


def _dropped_draft(detail: Detail, after: int, token_id: int, letters: Mapping[str, str]) -> str:
    names = [letters.get(name, name) for name in dropped_after(detail, after, token_id)]
    if not names:
        return ""
    return f" It was drafted too (by {', '.join(names)}), but dropped before the LLM's pass."


def _stopped_here(
    tree: Combined,
    verdict: Verified,
    after: int,
    letters: Mapping[str, str],
    sampling: Mapping[str, Any],
) -> str:
    own, own_p = quote(verdict.own_text), probability(verdict.own_probability)
    children = [node for node, parent in enumerate(tree.parents) if parent == after]
    if not children:
        return f"Nothing was drafted here; the LLM went on with {own} ({own_p})."
    likeliest = max(children, key=lambda node: verdict.llm_probabilities[node])
    other = probability(verdict.llm_probabilities[likeliest])
    # A drawn token shows no preference, even if it is the most probable token.
    chose = "drew" if _is_drawn(verdict, sampling) else "prefers"
    by = ", ".join(letters.get(name, name) for name in tree.drafters_of(likeliest))
    draft = quote(tree.texts[likeliest])
    if len(children) > 1:
        names = {letters.get(name, name) for node in children for name in tree.drafters_of(node)}
        count = number_of(len(children), "token")
        return (
            f"Of {count} drafted here ({', '.join(sorted(names))}) the LLM gives {draft} ({by}) "
            f"the highest probability, {other}; it {chose} {own} ({own_p}), which no draft had, so "
            "the draft stops here."
        )
    if len(tree.drafters_of(likeliest)) == 1:
        words = f"{by}'s draft said {draft}"
    else:
        words = f"The drafts said {draft} (by {by})"
    return f"{words}; the LLM {chose} {own} ({own_p} against {other}), so the draft stops here."


def _is_drawn(verdict: Verified, sampling: Mapping[str, Any]) -> bool:
    return verify_rule(verdict.rule).temperatures != "zero" and sampling.get("temperature") != 0


def percent(share: float) -> str:
    """A share as text: 41.2 % for 0.412; <0.01 % for the smallest, >99.95 % for the greatest."""
    if 0 < share < SMALLEST:
        return f"<{100 * SMALLEST:g} %"
    if 1 - SMALL < share < 1:
        return f">{100 * (1 - SMALL):g} %"
    return f"{100 * share:.3g} %" if share < 1 else "100 %"


def probability(p: float) -> str:
    """A probability as text: 0.412, <0.001 or >0.999."""
    p = rounded_probability(p)  # rounded first, as in the pictures
    if 0 < p < SMALL:
        return "<0.001"
    if 1 - SMALL <= p < 1:
        return ">0.999"
    return f"{p:.3f}" if 0 < p < 1 else f"{p:.0f}"


def _verdict(
    tree: Combined, verdict: Verified | None, node: int, sampling: Mapping[str, Any]
) -> str:
    if verdict is None:
        return "Waiting for the LLM's verdict. The bars are the drafters' scores of their drafts."
    parent = tree.parents[node]
    if verdict.outcomes[node] == "not_reached":
        return _not_reached(tree, verdict, node)
    if verify_rule(verdict.rule).reads_q:
        return _trial_words(verdict, node)
    own_p = probability(verdict.llm_probabilities[node])
    own = quote(tree.texts[node])
    before = quote(tree.root_text if parent < 0 else tree.texts[parent])
    choice, choice_p = _llm_choice(tree, verdict, parent)
    accepted = verdict.outcomes[node] == "accepted"
    if not _is_drawn(verdict, sampling):
        if accepted:
            return f"Accepted: after {before} the LLM's most probable token is {own} ({own_p})."
        return (
            f"Rejected: after {before} the LLM's most probable token is {choice} "
            f"({choice_p}); {own} has {own_p}."
        )
    seed = sampling.get("seed")
    words_of_seed = f"with seed {seed} the LLM draws {own if accepted else choice} at this place"
    if accepted:
        return f"Accepted: {words_of_seed} (probability {own_p}), and that token was in the tree."
    return f"Rejected: {words_of_seed} (probability {choice_p}), not {own} ({own_p})."


def _llm_choice(tree: Combined, verdict: Verified, parent: int) -> tuple[str, str]:
    """Text and probability of the accepted child of `parent`, else of the LLM's own token."""
    accepted = next((n for n in verdict.path if tree.parents[n] == parent), None)
    if accepted is not None:
        return quote(tree.texts[accepted]), probability(verdict.llm_probabilities[accepted])
    return quote(verdict.own_text), probability(verdict.own_probability)


def _not_reached(tree: Combined, verdict: Verified, node: int) -> str:
    above = tree.parents[node]
    while above >= 0 and verdict.outcomes[above] == "not_reached":
        above = tree.parents[above]
    if above >= 0 and verdict.outcomes[above] == "rejected":
        return (
            f"Not reached: {quote(tree.texts[above])} before it was rejected, "
            "so nothing below it could be the text."
        )
    return "Not reached: another token was accepted in its place before its turn came."


def _trial_words(verdict: Verified, node: int) -> str:
    """`mss` accepts a draw with probability min(1, p / q) (SpecInfer, Algorithm 2). `traversal`
    decides a node jointly with its subtree."""
    jointly = verdict.rule == "traversal"
    draw = "draw, verified jointly with its subtree," if jointly else "draw"
    random_number = "" if jointly else "; a uniform random number was above it"
    parts = []
    for trial in (t for t in verdict.trials if t.node == node):
        ratio = trial.p / trial.q if trial.q > 0 else 0.0
        ratio_text = f"p / q = {trial.p:.3g} / {trial.q:.3g} = {ratio:.3g}"
        if not trial.accepted:
            parts.append(
                f"{trial.drafter}'s {draw} was rejected ({ratio_text}{random_number}); "
                "p was then replaced by norm(max(0, p - q))"
            )
        elif ratio >= 1:
            parts.append(f"{trial.drafter}'s {draw} was accepted for certain ({ratio_text})")
        else:
            parts.append(f"{trial.drafter}'s {draw} was accepted, with the chance {ratio_text}")
    head = "Accepted: " if verdict.outcomes[node] == "accepted" else "Rejected: "
    return head + "; ".join(parts) + "." if parts else head.strip(": ") + "."
