"""SSMs on other machines: a server that drafts (`python -m core.nodes`), and the pool that asks it.

All but `checking` needs the packages of requirements-cluster.txt, and is imported where nodes are
named.
"""
