"""Torch's own agent in the place of played workers: our side of it, and the programs that run in its process
(`main`, `nodes`, `tensors`).
"""
