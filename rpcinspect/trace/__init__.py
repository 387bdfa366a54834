"""What happened between the workers of a run and what went wrong: questions about all messages together.

Records and the session come in; plain frozen results come out, which every view shows in its own way. What is
asked of the whole run begins in `answers.py`.
"""
