"""TensorPipe messages → RPC records: envelopes, commands, pickles, tensors.

Knows PyTorch, has never heard of TCP.
"""
