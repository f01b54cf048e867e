"""SSMs on other machines: a server that drafts (`python -m core.nodes`), and the pool that asks it.

Needs the packages of requirements-cluster.txt; core imports it only where nodes are named.
"""
