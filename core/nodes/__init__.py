"""SSMs on other machines: a server that drafts (`python -m core.nodes`), and the engine's pool of
their SSMs.

Needs the packages of requirements-cluster.txt, except `checking` and `connecting`; imported only if
nodes are named.
"""
