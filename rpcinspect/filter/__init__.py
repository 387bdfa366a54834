"""Filters: a text such as `body == PYTHON_CALL and latency > 50ms` → the messages of a session that match.
Pure."""

from __future__ import annotations
