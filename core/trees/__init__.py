"""Token trees: drafts, combination, sampling, noise, verification. Pure functions, no model."""
