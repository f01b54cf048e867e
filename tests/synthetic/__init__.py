"""SYNTHETIC runs: the engine's events with TableModels, at invented times."""

from tests.synthetic.run import DRAFTERS, ENDINGS, SyntheticFailure, synthetic_run
from tests.synthetic.text import HOSTILE_TEXTS
from tests.synthetic.times import VOTE_AHEAD, Mechanisms

__all__ = ["DRAFTERS", "ENDINGS", "HOSTILE_TEXTS", "VOTE_AHEAD", "Mechanisms"]
__all__ += ["SyntheticFailure", "synthetic_run"]
