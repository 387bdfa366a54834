"""What went wrong in a run: the findings.

Records pass by, one by one, and none is kept; then the session comes in, and `Finding`s go out. Each family
of findings is a stage of its own, joined in `findings.py`.
"""
