"""Rounds on a GPU: drafting, the LLM's pass, acceptance and commit as captured CUDA graphs.

Everything works on tensors of fixed shapes and never reads a tensor's values on the host, so that
it can be captured; on a CPU the same code runs eagerly, which is how it is tested. The engine holds
a FusedRound or None; nothing else outside this folder imports from it.
"""
