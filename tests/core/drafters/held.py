"""The size of a drafter between two runs."""

import pickle

from core.drafters.base import Drafter


def held_bytes(drafter: Drafter) -> int:
    """The size in bytes of the drafter's attributes, pickled."""
    return len(pickle.dumps(vars(drafter)))
