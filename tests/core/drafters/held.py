"""How much a drafter holds between two runs."""

import pickle

from core.drafters.base import Drafter


def held_bytes(drafter: Drafter) -> int:
    """Bytes of all that its attributes hold, whatever they are called."""
    return len(pickle.dumps(vars(drafter)))
