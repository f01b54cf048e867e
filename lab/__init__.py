"""The laboratory: studies (configurations x prompts x repeats), measured cell by cell.

Compare, Tune, Prompts, their endpoints and `python -m bench` all measure through it. Imports core
only: the decoder and the store of results are passed in.
"""
