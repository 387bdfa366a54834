"""The autograd graph of a context for Graphviz, and the words that all its views share."""
