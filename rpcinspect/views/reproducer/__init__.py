"""Captured calls as a script of PyTorch alone, from the inert values to the lines of Python."""
