"""How the bundled models are made: corpora to token files, training, distilling, evaluation.

A recipe as a program, run as `python -m zoo`. Knows `core`, by whose engine it measures; knows
nothing of the page or the run log.
"""
