"""A line of text to type into that holds what is plainly visible only.

In: keys, and what is pasted. Out: the same without control characters and marks that turn text round: Textual
would send them to the terminal as they are.
"""

from __future__ import annotations

from textual.widgets import Input


class PlainInput(Input):
    """The widget."""

    def validate_value(self, value: str) -> str:
        """Returns a value without what is not visible."""
        return value if value.isprintable() else "".join(filter(str.isprintable, value))
