"""How the bundled models are made: corpora to token files, training, distilling, evaluation.

Run as `python -m zoo`.
"""
