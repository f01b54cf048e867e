"""The pickled size of a drafter."""

import pickle

from core.drafters.base import Drafter


def held_bytes(drafter: Drafter) -> int:
    return len(pickle.dumps(vars(drafter)))
