"""`python -m bench`: suites of measurements; each suite is a small object chosen by name.

Imports core and lab. Only `bench/page/` also imports ui; only it, `sessions_log.py` and the suite
`sessions` import storage.
"""
