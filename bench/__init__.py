"""`python -m bench`: suites of measurements; each suite is a small object chosen by name.

The package imports core and lab. Only `bench/page/` also imports ui; only `bench/page/`,
`sessions_log.py` and the suite `sessions` import storage.
"""
