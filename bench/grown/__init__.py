"""Grown models: function-preserving enlargements with a large model's cost and the small model's
text."""
