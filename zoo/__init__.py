"""How the bundled models are made: corpora to token files, training, distilling, evaluation.

A recipe as a program, run as `python -m zoo`. It imports `core`, to measure with its engine, and
`lab.figures`. It imports neither the page nor the run log.
"""
