"""Exchanges of a session, and which request was sent while serving which.

A session and its records come in, calls and their causes go out. Replay and diff are built on it.
"""
