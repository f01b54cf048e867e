"""How the bundled models are made: corpora to token files, training, evaluation.

A recipe as a program, run as `python -m zoo prepare|train|evaluate`. Imports `core` for its errors
and checks only; knows nothing of the engine, the page or the run log. Distilling and boost-tuning
have their seam in `zoo.losses`.
"""
