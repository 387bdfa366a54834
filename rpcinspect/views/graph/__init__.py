"""The autograd graph of a context for Graphviz and Mermaid, and the words that all its views share."""
