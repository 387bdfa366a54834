"""What is closed at the end of a `with` statement: the same few lines for all that has a `close`."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound="Closing")


class Closing:
    """Base of classes with a `close` that may be called again: makes them context managers."""

    def close(self) -> None:
        """Gives up whatever is held."""
        raise NotImplementedError

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
