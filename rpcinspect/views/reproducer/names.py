"""Names and comments of a reproducer: those that the script itself has, and captured text made harmless.

In: places in values, captured text. Out: source. The user's modules must not take a name that the script has.
"""

from __future__ import annotations

import re
import textwrap

from rpcinspect.rpc.pickles.places import Place
from rpcinspect.views.reproducer.python_names import quoted


def accessor(place: Place) -> str:
    """`[0]["x"].y`"""
    text = ""
    for step in place:
        key = quoted(step.key) if isinstance(step.key, str) else str(step.key)
        text += f".{step.key}" if step.attribute else f"[{key}]"
    return text


def comment_text(text: str) -> str:
    """Captured text for a comment or a docstring: ASCII, on one line."""
    return ascii(text)[1:-1]


def comment(line: str) -> str:
    """Comment lines of a sentence."""
    plain = comment_text(line)
    indent = "#   " if plain.startswith("  ") else "# "
    return "\n".join(textwrap.wrap(plain.strip(), 86, initial_indent=indent, subsequent_indent=indent)) or "#"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


HELPERS = ("recorded", "through", "make_object", "rref_of", "skip_contexts", "at_once")
STANDARD = _names(
    "contextlib functools json mmap multiprocessing os socket struct sys tempfile time traceback"
)
RESERVED = STANDARD | _names(
    """
    torch dist dist_autograd rpc Path HERE TIMEOUT DEADLINE GROUPS GRADIENTS ANSWERS AWAITED Recorded recorded
    through make_object RRefOf skip_contexts at_once Check wait_until difference tensor_difference parts
    bits_difference as_bytes load build work run run_group main t check context_id entered others numpy
    threading random SEEDS reproduce
    """
)
"""Names that the script itself has."""
VARIABLE = re.compile(r"(out|future|rref|in|own|context_)\d+")
"""Names of what belongs to one message, by its number."""
