"""Implementations of `LanguageModel`, and their passes."""
