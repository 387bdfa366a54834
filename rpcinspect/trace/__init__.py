"""What happened between the workers of a run and what went wrong.

Questions about all messages together begin in `answers.py`: records and the session come in; plain frozen
results come out, which every view shows in its own way. Findings begin in `findings.py`: records pass by, one
by one, and none is kept; then the session comes in, and `Finding`s come out.
"""
