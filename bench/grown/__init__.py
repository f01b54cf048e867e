"""Grown models: function-preserving enlargements, which cost what a large model costs and say what
the small one says. An artificial pair: no such model exists, and "grown" is said wherever it is
used.
"""
