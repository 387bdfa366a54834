"""RPC records → what happened between whom: workers, exchanges, autograd contexts, RRefs. Pure."""
