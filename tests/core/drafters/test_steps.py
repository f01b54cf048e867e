"""Models in lock-step have the results that each model has alone."""

from collections.abc import Sequence

import pytest
import torch

from core.drafters.lockstep import Steps, StepsRun, run_in_lockstep, run_steps
from core.errors import EngineError
from core.models.protocol import chain
from core.models.stacking import common_stack
from tests.core.models.test_stack import alike


def sum_of_likeliest(row: int, ids: Sequence[int], fed: list[int]) -> Steps[int]:
    total = 0
    for token_id in ids:
        (logits,) = yield [chain(row, [token_id])]
        fed.append(token_id)
        total += int(logits[-1].argmax())
    return total


def models_with_steps(counts: Sequence[int]) -> tuple[dict[str, tuple], list[list[int]]]:
    stack = alike(len(counts))
    fed: list[list[int]] = [[] for _ in counts]
    works = {
        f"ssm-{i}": (model, sum_of_likeliest(model.open_row(), range(3, 3 + counts[i]), fed[i]))
        for i, model in enumerate(stack.members)
    }
    return works, fed


def test_each_model_has_the_result_that_it_has_alone() -> None:
    works, fed = models_with_steps((4, 4, 2))
    apart, _ = models_with_steps((4, 4, 2))
    result = run_in_lockstep(works)
    assert {name: one.result for name, one in result.items()} == {
        name: run_steps(model, steps) for name, (model, steps) in apart.items()
    }
    assert [len(one) for one in fed] == [4, 4, 2] and not any(one.error for one in result.values())


def test_a_failing_pass_is_the_error_of_all_its_models() -> None:
    works, _ = models_with_steps((2, 2))
    members = [model for model, _ in works.values()]
    stack = common_stack(members)

    def fail(_: object) -> list[list[torch.Tensor]]:
        raise RuntimeError("no memory")

    stack.forward = fail  # type: ignore[method-assign,assignment]
    result = run_in_lockstep(works)
    assert {str(one.error) for one in result.values()} == {"no memory"}


def test_a_stop_iteration_of_a_model_is_raised() -> None:
    works, _ = models_with_steps((2, 2))
    model, steps = works["ssm-0"]

    def fail(_: object) -> list[torch.Tensor]:
        raise StopIteration

    model.forward = fail
    with pytest.raises(StopIteration):
        run_steps(model, steps)


def test_a_share_is_of_the_given_time() -> None:
    work: StepsRun[int] = StepsRun(None, iter(()), charges=[(0.0, 1.0, 1.0), (1.0, 4.0, 1 / 3)])  # type: ignore[arg-type]
    assert work.share(0.0, 4.0) == pytest.approx(0.5)
    assert work.share(1.0, 4.0) == pytest.approx(1 / 3)
    assert work.share(0.5, 1.0) == 1.0 and work.share(5.0, 6.0) == 0.0
    assert work.share(2.0, 2.0) == 1.0


def test_a_row_that_is_not_open_fails_as_it_does_alone() -> None:
    works, _ = models_with_steps((2, 2))
    model, _ = works["ssm-0"]
    works["ssm-0"] = (model, sum_of_likeliest(7, [1], []))
    result = run_in_lockstep(works)
    assert isinstance(result["ssm-0"].error, EngineError)
