"""Arguments of commands that are more than a word, and what is wrong with those that several commands have.

In: what the command line named. Out: values, None for what can't be one; mistakes in one line each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator


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


def wrong_reading(reader: str, tshark_options: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with `--reader` and `--tshark-option`."""
    if tshark_options and reader == "native":
        yield "--tshark-option is for tshark, not for --reader native"
