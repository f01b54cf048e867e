"""SSMs on drafter nodes, which are other machines: a server that drafts (`python -m core.nodes`),
and the engine's pool of their SSMs. In this package a node is such a machine, and one of a
token tree is a tree node; elsewhere in core a node is one of a token tree.

Needs the packages of requirements-cluster.txt, except `checking` and `connecting`; imported only if
nodes are named.
"""
