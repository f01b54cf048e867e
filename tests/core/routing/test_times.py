"""The times by which a router compares SSMs."""

from __future__ import annotations

import pytest

from core.engine.engine import Engine
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
