"""`python -m bench`: suites of measurements; each suite is a small object chosen by name.

Imports core, torch and transformers only; no widget and no SQL.
"""
