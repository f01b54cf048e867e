"""The laboratory: studies (configurations x prompts x repeats), measured one cell after the other.

Compare, Tune, Prompts, their endpoints and `python -m bench` all measure through it. Imports core
only: the decoder and the store of results are passed in.
"""
