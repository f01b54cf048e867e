"""How the bundled models are made: corpora to token files, training, distilling, evaluation.

A recipe as a program, run as `python -m zoo`. It imports `core`, whose engine it measures with, and
`lab.figures`, but neither the page nor the run log.
"""
