"""The smallest part of a run that shows where it parts from another one.

A comparison and its two sessions come in; the indexes of messages, and a capture of them, go out.
"""
