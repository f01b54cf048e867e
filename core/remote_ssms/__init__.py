"""SSMs on drafter nodes (other machines): a server that drafts (`python -m core.nodes`), and the
engine's pool of their SSMs. Here "node" means a drafter node, "tree node" a node of a token tree.

Needs the packages of requirements-cluster.txt, except `checking` and `connecting`; imported only if
nodes are named.
"""
