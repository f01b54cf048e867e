"""The laboratory: studies (configurations x prompts x repeats), measured cell by cell.

Of the project's packages it imports only core: the decoder and the store of results are passed in.
"""
