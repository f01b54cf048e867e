"""How the bundled models are made: corpora to token files, training, distilling, evaluation.

A recipe as a program, run as `python -m zoo`. Imports `core`, with whose engine it measures, and
`lab.figures`; neither the page nor the run log.
"""
