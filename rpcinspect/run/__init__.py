"""One run in memory and what follows from it: calls, causes, contexts, times, RRefs, device maps.

In: a session and its records. Out: `RunModel`, which commands, checks, diff, replay and exports ask.
"""
