"""Rounds on a GPU: drafting, the LLM's pass, acceptance and commit as captured CUDA graphs.
Graphs of a model's single passes are in `core.models.graphed`.

The passes work on tensors of fixed shapes and never read a tensor's values on the host, so that
they can be captured; on a CPU the same code runs eagerly, as in the tests. Only the engine imports
from this folder: it has a DeviceRound or None.
"""
