"""SYNTHETIC runs of every mechanism, made and played without a model. Knows core alone."""
