"""One message against one other, and all their parts; diff and replay are built on it.

Records and the bytes of their tensors come in, differences go out. Nothing is opened, aligned or shown here.
"""
