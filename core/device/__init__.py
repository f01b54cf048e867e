"""Drafting, acceptance and commit over tensors of fixed shapes, wherever they lie.

Nothing here asks what a tensor holds: on CUDA it is captured as graphs, elsewhere the same code
runs as it is written.
"""
