"""The pass of Llama-like models and the drafting loop, compiled by numba for CPUs."""
