"""Work in lock-step: the same results as one after another, and the share of the time of each."""

from collections.abc import Sequence

import pytest
import torch

from core.drafters.lockstep import Steps, StepsRun, run_in_lockstep, run_steps
from core.errors import EngineError
from core.models.protocol import chain
from core.models.stacking import common_stack
from tests.core.models.test_stack import alike


def adding(row: int, ids: Sequence[int], seen: list[int]) -> Steps[int]:
    """Feeds one token a step; the result is the sum of the likeliest next tokens."""
    total = 0
    for token_id in ids:
        (logits,) = yield [chain(row, [token_id])]
        seen.append(token_id)
        total += int(logits[-1].argmax())
    return total


def works(counts: Sequence[int]) -> tuple[dict[str, tuple], list[list[int]]]:
    stack = alike(len(counts))
    seen: list[list[int]] = [[] for _ in counts]
    made = {
        f"ssm-{i}": (model, adding(model.open_row(), range(3, 3 + counts[i]), seen[i]))
        for i, model in enumerate(stack.members)
    }
    return made, seen


def test_each_comes_to_what_it_comes_to_alone() -> None:
    run_all, seen = works((4, 4, 2))
    apart, _ = works((4, 4, 2))
    result = run_in_lockstep(run_all)
    assert {name: one.result for name, one in result.items()} == {
        name: run_steps(model, steps) for name, (model, steps) in apart.items()
    }
    assert [len(one) for one in seen] == [4, 4, 2] and not any(one.error for one in result.values())


def test_a_failing_pass_is_the_error_of_all_that_took_part() -> None:
    run_all, _ = works((2, 2))
    members = [model for model, _ in run_all.values()]
    stack = common_stack(members)

    def broken(_: object) -> list[list[torch.Tensor]]:
        raise RuntimeError("no memory")

    stack.forward = broken  # type: ignore[method-assign,assignment]
    result = run_in_lockstep(run_all)
    assert {str(one.error) for one in result.values()} == {"no memory"}


def test_a_model_may_fail_with_what_ends_a_generator() -> None:
    run_all, _ = works((2, 2))
    model, steps = run_all["ssm-0"]

    def broken(_: object) -> list[torch.Tensor]:
        raise StopIteration

    model.forward = broken
    with pytest.raises(StopIteration):
        run_steps(model, steps)


def test_a_share_is_of_the_given_time() -> None:
    work: StepsRun[int] = StepsRun(None, iter(()), charges=[(0.0, 1.0, 1.0), (1.0, 4.0, 1 / 3)])  # type: ignore[arg-type]
    assert work.share(0.0, 4.0) == pytest.approx(0.5)
    assert work.share(1.0, 4.0) == pytest.approx(1 / 3)
    assert work.share(0.5, 1.0) == 1.0 and work.share(5.0, 6.0) == 0.0
    assert work.share(2.0, 2.0) == 1.0


def test_a_row_that_is_not_open_fails_as_it_does_alone() -> None:
    run_all, _ = works((2, 2))
    model, _ = run_all["ssm-0"]
    run_all["ssm-0"] = (model, adding(7, [1], []))
    result = run_in_lockstep(run_all)
    assert isinstance(result["ssm-0"].error, EngineError)
