"""The laboratory: studies (configurations x prompts x repeats), measured cell by cell.

The tabs Compare, Tune and Prompts, their endpoints and `python -m bench` measure with this package.
It imports core only: the decoder and the store of results are passed in.
"""
