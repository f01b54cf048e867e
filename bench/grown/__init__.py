"""Grown models: function-preserving enlargements with the cost of a large model and the text of the
small one."""
