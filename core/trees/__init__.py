"""Token trees: drafts, combination, sampling, noise, verification."""
