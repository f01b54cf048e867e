"""Rounds on a GPU: drafting, the LLM's pass, acceptance and commit as captured CUDA graphs.

The passes work on tensors of fixed shapes and read no tensor's values on the host: a graph cannot
capture such a read.
"""
