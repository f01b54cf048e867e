"""Models behind `LanguageModel`, and their passes."""
