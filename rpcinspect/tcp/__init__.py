"""Packets → ordered streams of TCP: link layers, IP, tunnels, fragments, reassembly.

Blocks of packets come in, streams as ranges of the capture files go out. Knows nothing of what the bytes say;
does no I/O.
"""
