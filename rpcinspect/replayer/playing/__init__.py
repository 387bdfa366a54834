"""One session being carried out: when what is sent, as what, which captured message a live one repeats, how
long is waited, and what came of it.
"""
