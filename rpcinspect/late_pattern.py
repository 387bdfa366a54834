"""Regular expressions that are compiled once they are used: most are for what few captures have.

In: what `re.compile` takes. Out: what it returns, as far as one can tell. Compiling takes 0.1 ms, and there
are dozens.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Returns the pattern, not compiled yet."""
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._asked = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Is asked once for each method, which is found without from then on."""
        found = getattr(re.compile(*self._asked), name)
        setattr(self, name, found)
        return found
