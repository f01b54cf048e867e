"""Whole rounds: from the drafts to the commit without a word to the host."""
