"""Token trees: drafts, combination, sampling, verification. Pure functions."""
