"""SYNTHETIC runs: the engine's events with TableModels (bench/table_model.py), with invented texts
and times."""

from tests.synthetic.run import DRAFTERS, ENDINGS, SyntheticFailure, synthetic_run
from tests.synthetic.text import HOSTILE_TEXTS
from tests.synthetic.times import VOTE_AHEAD, Mechanisms

__all__ = ["DRAFTERS", "ENDINGS", "HOSTILE_TEXTS", "VOTE_AHEAD", "Mechanisms"]
__all__ += ["SyntheticFailure", "synthetic_run"]
