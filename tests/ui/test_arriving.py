"""Fields on their way to a form."""

from __future__ import annotations

import pytest

from ui.shared.pending_fields import LAPSE_S, Sent

SENT = Sent.of([["a", "b"], "1,1,3", 8.0], [["a"], "1", 8], at=100.0)


@pytest.mark.parametrize(
    ("shown", "here"),
    [
        ([["a", "b"], "1,1,3", 8.0], False),
        ([["a"], "1,1,3", 8.0], False),
        ([["a"], "1", 8.0], True),
        ([["b"], "1", 8.0], True),  # touched meanwhile
        ([["a"], "2,2", 5], True),
    ],
)
def test_all_have_come_once_none_shows_what_it_showed(shown: list[object], here: bool) -> None:
    assert SENT.has_arrived(shown, 101.0) == here


def test_nothing_is_waited_for_for_ever() -> None:
    late = [["a"], "1,1,3", 8.0]
    assert not SENT.has_arrived(late, 100.0 + LAPSE_S)
    assert SENT.has_arrived(late, 100.1 + LAPSE_S)


def test_what_was_sent_as_it_was_is_not_awaited() -> None:
    assert Sent.of(["x", 8], ["x", 8.0], at=0.0).has_arrived(["x", 8], 0.1)
