"""Two runs against each other: which message is which, where they part, why, and what follows from it.

Two sessions come in, a `Comparison` goes out. Nothing is shown here.
"""
