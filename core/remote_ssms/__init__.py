"""SSMs on drafter nodes (other machines): a server that drafts (`python -m core.nodes`), and the
engine's pool of their SSMs. Here "node" means a drafter node, "tree node" a node of a token tree.

The modules `checking` and `connecting` can be imported without the packages of
requirements-cluster.txt. The other modules are imported only if nodes are named, or to serve as a
node.
"""
