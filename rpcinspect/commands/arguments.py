"""Arguments of commands that are more than a word, and what is wrong with those that several commands have.

In: what the command line named. Out: values, None for what can't be one; mistakes in one line each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from rpcinspect.capture import Reading
from rpcinspect.limits import DEFAULT_UNPACKING, Unpacking


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Names from options that may be repeated and may hold several, separated by commas."""
    found = [name.strip() for value in given for name in value.split(",")]
    return tuple(dict.fromkeys(name for name in found if name))


def renames(given: Iterable[str]) -> dict[str, str] | None:
    """`OLD=NEW`, each old name once."""
    found: dict[str, str] = {}
    for value in given:
        old, equals, new = value.partition("=")
        if not (old and equals and new) or old in found:
            return None
        found[old] = new
    return found


def read_size(given: str) -> int | None:
    """Bytes of `512MB`, `4GB` or `1.5 GiB`."""
    found = SIZE.fullmatch(given.strip().upper())
    return None if found is None else int(float(found[1]) * UNITS[found[2]])


UNITS = {
    **{name: 1000**power for power, name in enumerate(("B", "KB", "MB", "GB", "TB"))},
    **{name: 1024**power for power, name in enumerate(("KIB", "MIB", "GIB", "TIB"), 1)},
}
SIZE = re.compile(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?) *({'|'.join(UNITS)})")


def wrong_tolerances(rtol: float | None, atol: float | None) -> Iterator[str]:
    """What is wrong with `--rtol` and `--atol`."""
    for name, value in (("--rtol", rtol), ("--atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            yield f"{name} {value:g}: a finite number from 0 up"


OPTIONS = {"imports": "--import", "seeds": "--seed", "maps": "--map", "renames": "--rename", "write": "-w"}
"""Of fields that are not called as their options."""


class ReadingRequest(Struct, frozen=True, kw_only=True):
    """What the command line says of how captures are read."""

    files: tuple[str, ...] = ()
    output: Path | None = None
    reader: str = "auto"
    tshark_options: tuple[str, ...] = ()
    unpack_limit: str | None = None

    def given(self, names: str) -> list[str]:
        """The options of these fields that say anything else than by default."""
        nothing = type(self)()
        said = [name for name in names.split() if getattr(self, name) != getattr(nothing, name)]
        return [OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in said]

    def reading(self) -> Reading:
        """The same for the pipeline."""
        return Reading(
            reader=self.reader,
            preferences=self.tshark_options,
            unpacking=unpacking(self.unpack_limit),
        )

    def wrong_reading(self) -> Iterator[str]:
        """What is wrong with `--reader`, `--tshark-option` and `--unpack-limit`."""
        if self.tshark_options and self.reader == "native":
            yield "--tshark-option is for tshark, not for --reader native"
        try:
            unpacking(self.unpack_limit)
        except ValueError:
            yield f"--unpack-limit {self.unpack_limit}: a size, such as 500GB, or none"


def unpacking(limit: str | None) -> Unpacking:
    """How far `--unpack-limit` has captures unpacked; what the user says holds at any ratio. `ValueError`: it
    says neither a size nor `none`.
    """
    if limit is None:
        return DEFAULT_UNPACKING
    if limit == "none":
        return Unpacking(bytes=None, ratio=None)
    size = read_size(limit)
    if not size:
        raise ValueError("no size")
    return Unpacking(bytes=size, ratio=None)
