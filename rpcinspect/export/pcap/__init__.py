"""A session, or some of its messages, as a capture of its own that decodes by itself.

Sessions and records come in, the bytes of a pcap go out. Nothing is opened here.
"""
