"""Packets → TensorPipe messages: TCP, frames, libnop, pipes and channels.

Has never heard of RPC; does no I/O.
"""
