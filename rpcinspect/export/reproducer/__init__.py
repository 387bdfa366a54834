"""Captured calls as a script of plain PyTorch: which calls in which order, then the lines of Python."""
