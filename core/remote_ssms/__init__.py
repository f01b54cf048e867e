"""SSMs on drafter nodes: a server that drafts, and the engine's pool of the nodes' SSMs. Here
"node" means a drafter node, "tree node" a node of a token tree.
"""
