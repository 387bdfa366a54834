"""Arguments of commands that are more than a word.

In: what the command line named. Out: values; raises `UsageMistake` for what is none, in one line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.fields.kinds import SIZES
from rpcinspect.fields.phrases import read_packed
from rpcinspect.late_pattern import late
from rpcinspect.limits import DEFAULT_UNPACKING, Unpacking
from rpcinspect.rpc.types import unpack_id

if TYPE_CHECKING:
    from rpcinspect.equality.rules import Rules


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Reads names from options that may be repeated and may hold several, separated by commas."""
    found = [name.strip() for value in given for name in value.split(",")]
    return tuple(dict.fromkeys(name for name in found if name))


def renames(given: Iterable[str], form: str = "OLD=NEW") -> dict[str, str]:
    """Reads `--rename OLD=NEW`, each name once."""
    found: dict[str, str] = {}
    for value in given:
        old, equals, new = value.partition("=")
        if not (old and equals and new) or old in found or new in found.values():
            raise UsageMistake(f"--rename: not {form} with each name once")
        found[old] = new
    return found


def worker_names(given: Iterable[str]) -> dict[int, str]:
    """Reads `--worker ID=NAME`, each id and name once; torch takes no other characters in a name."""
    found: dict[int, str] = {}
    for value in given:
        number, equals, name = value.partition("=")
        known = number.isascii() and number.isdigit() and len(number) <= 5
        if not (known and equals and WORKER_NAME.fullmatch(name)):
            raise UsageMistake(f"--worker {value}: not ID=NAME, such as 2=worker2")
        if int(number) in found or name in found.values():
            raise UsageMistake(f"--worker {value}: each id and each name once")
        found[int(number)] = name
    return found


WORKER_NAME = late(r"[\w:.-]{1,127}", re.ASCII)


def context_id(given: str | None) -> int | None:
    """Reads `--context`: an id, or CREATOR:COUNTER."""
    found = None if given is None else read_packed(given)
    if given is not None and found is None:
        raise UsageMistake(f"--context {given}: not a context id, such as 3 or 0:3")
    return found


def read_rref(given: str) -> tuple[int, int] | None:
    """Reads the id of an RRef, CREATOR:COUNTER; None for any other text."""
    packed = read_packed(given) if ":" in given else None
    return None if packed is None else unpack_id(packed)


def read_size(given: str) -> int | None:
    """Reads the bytes of `512MB`, `4GB` or `1.5 GiB`; None for what is no size, or nothing."""
    found = SIZE.fullmatch(given.strip().upper())
    return None if found is None else int(float(found[1]) * UNITS[found[2]]) or None


UNITS = {unit.upper(): factor for unit, factor in SIZES.items() if unit}
SIZE = late(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?) *({'|'.join(UNITS)})")


def unpacking(limit: str | None) -> Unpacking:
    """Reads `--unpack-limit`: how far captures are unpacked; a size from the user holds at any ratio."""
    if limit is None:
        return DEFAULT_UNPACKING
    size = read_size(limit)
    if size is None and limit != "none":
        raise UsageMistake(f"--unpack-limit {limit}: a size, such as 500GB, or none")
    return Unpacking(bytes=size, ratio=None)


def rules(rtol: float | None, atol: float | None, **others: Any) -> Rules:
    """Reads `--rtol` and `--atol` into what counts as a difference."""
    from rpcinspect.equality.rules import Rules

    for name, value in (("--rtol", rtol), ("--atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            raise UsageMistake(f"{name} {value:g}: must be 0 or more, finite")
    return Rules(rtol=rtol, atol=atol, **others)


def above_zero(option: str, value: float | None) -> float | None:
    """Reads a time or a factor."""
    if value is not None and not 0 < value < math.inf:
        raise UsageMistake(f"{option} {value:g}: a finite number above 0")
    return value
