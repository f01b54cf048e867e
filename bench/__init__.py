"""`python -m bench`: suites of measurements; each suite is a small object chosen by name."""
