"""Workers that exist only on the wire: sockets, pipes, the store, and membership in a group.

All of them share one thread and one `Loop`, never block, and take what others send for hostile.
"""
