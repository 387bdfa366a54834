"""Captures for coding agents: tools that answer with the tables of the commands, over the Model Context
Protocol. Nothing here computes an answer: that is the matter of `library` and `views`.
"""
