"""Streams → TensorPipe messages: frames, libnop, handshakes, pipes and channels.

Has never heard of RPC; does no I/O.
"""
