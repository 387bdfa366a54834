"""Streams of a TCPStore → what processes asked it and told it: names and addresses of workers, who came when.

Does no I/O.
"""
