"""Records of log captures → TensorPipe messages, as the wire stages make them of packets; and back.

The format is told in docs/log-format.md; `capture/log.py` cuts a log into records.
"""
