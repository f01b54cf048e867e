"""The times by which a router compares SSMs; a route within what a scheduler grants."""

from __future__ import annotations

import pytest

from core.engine.engine import Engine
from core.routing import Route, within_grant
from tests.fakes import TableModel, loaded_tables, random_table
from tests.laws.runs import bundled_engine


def test_ssms_of_one_shape_take_equally_long_whatever_noise_was_measured() -> None:

    engine = Engine(bundled_engine().models)
    names = list(engine.models.ssms)
    for place, name in enumerate(names[:2]):
        engine.costs.draft_costs(name).start.add(1.0 + 3.0 * place)
    times = [engine._round_ms(names, name) for name in names]
    assert times == [times[0]] * len(names)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_an_ssm_of_another_shape_has_its_own_time(factor: float) -> None:

    models = [TableModel(name, 8, random_table(8, 1), 64) for name in ("llm", "a", "b")]
    engine = Engine(loaded_tables(models[0], models[1:]))
    for name, ms in (("a", 1.0), ("b", factor)):
        engine.costs.draft_costs(name).start.add(ms)
    a, b = (engine._round_ms(["a", "b"], name) for name in ("a", "b"))
    assert (a == b) == (factor == 1.0)


def test_a_grant_keeps_half_of_its_places_for_ssms_that_are_explored() -> None:
    scores = {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2}
    route = Route(("a", "b", "c", "d"), frozenset({"a", "d"}), "why")
    assert within_grant(route, scores, 4) is route
    kept = {most: within_grant(route, scores, most) for most in (1, 2, 3)}
    assert [kept[most].drafters for most in (1, 2, 3)] == [("a",), ("a", "b"), ("a", "b", "d")]
    assert kept[1].explored == {"a"} and kept[1].reason == "why; the batch grants 1"
    plain = Route(("a", "b", "c"), frozenset(), "")
    assert within_grant(plain, scores, 2).drafters == ("b", "c")
