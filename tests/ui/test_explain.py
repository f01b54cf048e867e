"""The inspector's sentences and bars about a token."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from core.events import ProposalRecord, Scheduled, Trial
from tests.synthetic import synthetic_run
from tests.ui.example_run import run_events, run_view
from ui.run.explain import bars, explain, probability, quote
from ui.run.trees import picture_words, places
from ui.run.view import Detail, detail_of


def details() -> list[Detail]:
    return [d for d in (detail_of(run_events(), r) for r in range(30)) if d]


def node_with(outcome: str) -> tuple[Detail, int]:
    for detail in details():
        if outcome in detail.verified.outcomes:
            return detail, detail.verified.outcomes.index(outcome)
    raise AssertionError(outcome)


@pytest.mark.parametrize(
    ("outcome", "begins"),
    [("accepted", "Accepted: after"), ("rejected", "Rejected: after"), ("not_reached", "Not reac")],
)
def test_each_outcome_is_reported_with_its_numbers(outcome: str, begins: str) -> None:
    detail, node = node_with(outcome)
    explanation = explain(detail, node, run_view().letters, {})
    assert explanation.outcome == outcome and explanation.sentence.startswith(begins)
    assert detail.combined and quote(detail.combined.texts[node]) in explanation.title
    if outcome != "not_reached":
        assert re.search(r"\(\d\.\d{3}\)", explanation.sentence)


def test_a_title_names_two_proposers_and_gives_the_letters_of_more() -> None:
    detail, letters = detail_of(synthetic_run(12), 1), {"p": "P", "q": "Q", "r": "R"}
    assert detail is not None and detail.combined is not None

    def title(*names: str) -> str:
        offered = tuple(ProposalRecord(name, 0.5, 1.0, 0) for name in names)
        tree = replace(detail.combined, proposals=(offered, *detail.combined.proposals[1:]))
        return explain(replace(detail, combined=tree), 0, letters, {}).title.partition("by ")[2]

    assert title("p") == "P (p)" and title("p", "p") == "P (p) 2 times"
    assert title("p", "q", "p") == "P (p) 2 times, Q (q)"
    assert title("p", "q", "r", "lost") == "P, Q, R, lost" and title() == "no drafter"


def test_the_last_digit_of_a_probability_is_that_of_its_bar() -> None:
    """Text and bar are rounded twice: first to four decimals, then to three."""
    for exact, drawn in ((0.77452, "0.774"), (0.77457, "0.775"), (0.00047, "0.001")):
        assert probability(exact) == drawn
    assert probability(0.00044) == "<0.001" and probability(0.999999) == ">0.999"


def test_a_rejection_names_the_llms_own_token() -> None:
    for detail in details():
        verdict, tree = detail.verified, detail.combined
        last_accepted = verdict.path[-1] if verdict.path else -1
        for node, outcome in enumerate(verdict.outcomes):
            if outcome == "rejected" and tree.parents[node] == last_accepted:
                sentence = explain(detail, node, run_view().letters, {}).sentence
                assert quote(verdict.own_text) in sentence
                return
    raise AssertionError("no rejection at the end of a path")


def test_the_own_token_is_reported_by_its_kind() -> None:
    words = {
        "recovered": "so the draft stops here",
        "bonus": "for free",
        "plain": "Nothing was drafted",
    }
    kinds = set()
    for detail in details():
        kind, explanation = detail.verified.own_kind, explain(detail, None, run_view().letters, {})
        assert words[kind] in explanation.sentence and explanation.outcome == "own"
        kinds.add(kind)
    assert kinds == set(words)


def test_a_bonus_token_that_was_drafted_but_dropped_is_reported_so() -> None:
    detail = next(d for d in details() if d.verified.own_kind == "bonus" and d.verified.path)
    assert "dropped before" not in explain(detail, None, run_view().letters, {}).sentence
    last, verdict, tree = detail.verified.path[-1], detail.verified, detail.combined
    name = tree.drafters_of(last)[0]
    draft = next(one for one in detail.drafted.drafts if one.drafter == name)
    parent = next(j for j, node in places(detail, name).items() if node == last)
    longer = replace(
        draft,
        token_ids=(*draft.token_ids, verdict.own_token_id),
        texts=(*draft.texts, verdict.own_text),
        parents=(*draft.parents, parent),
        depths=(*draft.depths, draft.depths[parent] + 1),
        scores=(*draft.scores, 0.5),
        qs=(*draft.qs, 0.5),
        ranks=(*draft.ranks, 0),
    )
    drafts = tuple(longer if one is draft else one for one in detail.drafted.drafts)
    dropped = replace(tree, dropped=(*tree.dropped, (name, len(draft.token_ids))))
    changed = replace(detail, drafted=replace(detail.drafted, drafts=drafts), combined=dropped)
    sentence = explain(changed, None, run_view().letters, {}).sentence
    assert (
        f"drafted too (by {run_view().letters[name]}), but dropped before the LLM's pass"
        in sentence
    )


def test_a_round_whose_drafts_were_all_dropped_is_not_one_without_drafts() -> None:
    detail = next(d for d in details() if d.verified.own_kind == "plain")
    drafted, verdict = next(d for d in details() if d.drafted.drafts).drafted, detail.verified
    draft = replace(drafted.drafts[0], parents=(-1, *drafted.drafts[0].parents[1:]))
    own = replace(verdict, own_token_id=draft.token_ids[0], own_text=draft.texts[0])
    tree = replace(detail.combined, dropped=((draft.drafter, 0), (draft.drafter, 1)))
    changed = replace(
        detail, drafted=replace(drafted, drafts=(draft,)), combined=tree, verified=own
    )
    sentence = explain(changed, None, run_view().letters, {}).sentence
    assert "2 drafted tokens dropped before the LLM's pass" in sentence
    assert f"drafted too (by {run_view().letters[draft.drafter]})" in sentence


def test_of_several_drafted_tokens_the_likeliest_is_named_with_its_drafters() -> None:
    letters = run_view().letters
    num_seen = 0
    for detail in details():
        verdict, tree = detail.verified, detail.combined
        last_accepted = verdict.path[-1] if verdict.path else -1
        siblings = [node for node, parent in enumerate(tree.parents) if parent == last_accepted]
        if verdict.own_kind != "recovered" or len(siblings) < 2:
            continue
        likeliest = max(siblings, key=lambda node: verdict.llm_probabilities[node])
        its_letters = [letters[name] for name in tree.drafters_of(likeliest)]
        proposers = {name for node in siblings for name in tree.drafters_of(node)}
        all_letters = sorted(letters[name] for name in proposers)
        assert explain(detail, None, letters, {}).sentence.startswith(
            f"Of {len(siblings)} tokens drafted here ({', '.join(all_letters)}) the LLM gives "
            f"{quote(tree.texts[likeliest])} ({', '.join(its_letters)}) the highest probability, "
            f"{probability(verdict.llm_probabilities[likeliest])}; it "
        )
        num_seen += 1
    assert num_seen


def test_a_tree_below_its_budget_dropped_nothing_for_lack_of_nodes() -> None:
    view, tree = run_view(), details()[0].combined
    count = len(tree.token_ids)
    for budget, words in ((count + 1, "not worth the time"), (count, "the node budget was full")):
        config = {
            **view.started.config,
            "speculation": {**view.speculation, "max_tree_nodes": budget},
        }
        started = replace(view, started=replace(view.started, config=config))
        assert words in picture_words(started, replace(tree, rule="union")).dropped
        assert "weighted score" in picture_words(started, replace(tree, rule="vote_tree")).dropped


def test_a_schedule_that_cut_a_tree_for_other_requests_is_named() -> None:
    view, tree = run_view(), replace(details()[0].combined, rule="union")
    speculation = {**view.speculation, "max_tree_nodes": len(tree.token_ids)}
    config = {**view.started.config, "speculation": speculation}
    started = replace(view, started=replace(view.started, config=config))
    cut = Scheduled("shared", 4, 4, 4, None, None, 9, 5, 40, 20, 0.0, "", "")
    uncut, alone = replace(cut, num_granted=9), replace(cut, num_live=1)
    over_budget = "over the node budget"
    by_schedule = "left out by schedule shared"
    for scheduled, short in ((cut, by_schedule), (uncut, over_budget), (alone, over_budget)):
        rounds = tuple(replace(one, scheduled=scheduled) for one in view.rounds)
        words = picture_words(replace(started, rounds=rounds), tree)
        assert words.dropped_short == short
        assert ("of other requests" in words.dropped) == (scheduled is cut)


def test_a_path_that_ends_the_text_has_no_own_token() -> None:
    detail = details()[0]
    verdict = replace(detail.verified, own_token_id=None, own_kind="none", own_text="")
    ended = replace(detail, verified=verdict)
    explanation = explain(ended, None, run_view().letters, {})
    assert "ends the text" in explanation.sentence
    assert any(top.node == (verdict.path[-1] if verdict.path else -1) for top in verdict.top_k)
    assert bars(ended, explanation, run_view().drafters) == {}, (
        "nothing was chosen after the end of the text"
    )


def test_mss_is_explained_by_trials_and_traversal_by_branches() -> None:
    detail, node = node_with("accepted")
    trials = (Trial(node, "ssm-code", 0.1, 0.4, False), Trial(node, "ssm-stories", 0.3, 0.2, True))
    for rule, words in (
        ("mss", "Accepted: ssm-code's draw was rejected (p / q = 0.1 / 0.4 = 0.25"),
        ("traversal", "verified jointly with its subtree, was rejected (p / q = 0.1 / 0.4 = 0.25)"),
    ):
        verdict = replace(detail.verified, rule=rule, trials=trials)
        sentence = explain(replace(detail, verified=verdict), node, run_view().letters, {}).sentence
        assert words in sentence and "for certain (p / q = 0.3 / 0.2 = 1.5" in sentence


def test_match_is_explained_by_its_seed() -> None:
    for outcome, words in (("accepted", "was in the tree"), ("rejected", "not “")):
        detail, node = node_with(outcome)
        verdict = replace(detail.verified, rule="match")
        explanation = explain(
            replace(detail, verified=verdict), node, run_view().letters, {"seed": 7}
        )
        assert "with seed 7" in explanation.sentence and words in explanation.sentence
        at_zero = {"seed": 7, "temperature": 0.0}
        explanation = explain(replace(detail, verified=verdict), node, run_view().letters, at_zero)
        assert "the LLM's most probable token is" in explanation.sentence


def test_before_the_verdict_nothing_is_claimed() -> None:
    detail, node = node_with("accepted")
    unverified = replace(detail, verified=None, completed=None)
    assert "Waiting" in explain(unverified, node, run_view().letters, {}).sentence
    assert explain(unverified, None, run_view().letters, {}).outcome == "pending"
    assert explain(replace(unverified, combined=None), node, run_view().letters, {}).sentence
    assert explain(None, None, run_view().letters, {}).sentence
    assert explain(detail, 10**6, run_view().letters, {}).outcome == "own", (
        "a node that does not exist"
    )
    assert explain(detail, -1, run_view().letters, {}).outcome == "root"


def test_before_the_verdict_a_round_without_a_tree_has_no_bars_to_explain() -> None:
    detail = node_with("accepted")[0]
    empty = replace(detail.combined, token_ids=(), parents=(), dropped=())
    unverified = replace(detail, combined=empty, verified=None, completed=None)
    sentence = explain(unverified, None, run_view().letters, {}).sentence
    assert sentence == "Nothing was drafted: the LLM's pass writes one token."
    dropped = replace(unverified, combined=replace(empty, dropped=(("ssm-code", 0),)))
    sentence = explain(dropped, None, run_view().letters, {}).sentence
    assert sentence.startswith("No drafted token is in the tree: ")


def test_bars_are_what_the_token_was_chosen_from() -> None:
    detail, node = node_with("accepted")
    explanation = explain(detail, node, run_view().letters, {})
    rows = bars(detail, explanation, run_view().drafters)
    assert set(rows) == {"llm", "0", "1", "2"}
    parent = detail.combined.parents[node]
    top = next(t for t in detail.verified.top_k if t.node == parent and t.source == "llm")
    assert [row["t"] for row in rows["llm"].values()] == list(top.texts)
    hits = [row for row in rows["llm"].values() if row["hit"]]
    assert all(row["id"] == explanation.token_id for row in hits)
    # A drafter without recorded alternatives is listed too.
    proposers = {str(run_view().drafters.index(name)) for name in detail.combined.drafters_of(node)}
    llm_only = replace(
        detail.verified, top_k=tuple(t for t in detail.verified.top_k if t.source == "llm")
    )
    rows = bars(replace(detail, verified=llm_only), explanation, run_view().drafters)
    assert set(rows) == {"llm", *proposers}
    assert all(
        [one["id"] for one in rows[key].values()] == [explanation.token_id] for key in proposers
    )
    assert all(one["p"] is None for key in proposers for one in rows[key].values())


def test_an_unlikely_token_that_was_drawn_is_a_bar_too() -> None:
    detail, _ = node_with("accepted")
    view = run_view()
    drawn = replace(
        explain(detail, None, view.letters, {}), token=" in", token_id=10**6, llm_probability=0.0101
    )
    *likely, last = bars(detail, drawn, view.drafters)["llm"].values()
    assert last == {"t": " in", "id": 10**6, "p": 0.0101, "hit": True}
    assert likely and not any(one["hit"] for one in likely)


def test_a_draw_is_no_preference_and_who_drafted_is_named() -> None:
    detail = next(one for one in details() if one.verified.own_kind == "recovered")
    verdict, tree = detail.verified, detail.combined
    last_accepted = verdict.path[-1] if verdict.path else -1
    drafted = [node for node, parent in enumerate(tree.parents) if parent == last_accepted]
    likeliest = max(drafted, key=lambda node: verdict.llm_probabilities[node])
    by = ", ".join(run_view().letters[name] for name in tree.drafters_of(likeliest))
    for rule, temperature, verb in (
        *(("greedy", 0.0, "prefers"), ("match", 0.0, "prefers")),
        *(("match", 0.8, "drew"), ("mss", 0.8, "drew")),
    ):
        judged = replace(detail, verified=replace(verdict, rule=rule))
        sentence = explain(judged, None, run_view().letters, {"temperature": temperature}).sentence
        subject, beginning = "the LLM", f"The drafts said {quote(tree.texts[likeliest])} (by {by})"
        if "," not in by:
            beginning = f"{by}'s draft said {quote(tree.texts[likeliest])}"
        if len(drafted) > 1:
            subject, beginning = "it", f"Of {len(drafted)} tokens drafted here ("
        assert sentence.startswith(beginning)
        assert f"; {subject} {verb} {quote(verdict.own_text)} (" in sentence
