"""Compares remote errors, without everything that differs between runs of the same program.

In: the type of an exception and the text of it, as one worker told it to another. Out: the text without
paths, line numbers, addresses, ids, native frames and frames of libraries; the first line that differs; and
in which kinds of what was taken out two texts differ.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import zip_longest

from rpcinspect.equality.difference import Difference, to_json
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.remote_error import RemoteError

MAX_TEXT = 1 << 16
"""Characters of a text that are looked at."""


def compare_errors(a: RemoteError, b: RemoteError, path: str, rules: Rules) -> list[Difference]:
    """Compares types first, then texts; gives at most one difference of each."""
    found = []
    types = [same_main(error.type) if error.type else named_type(error.text) for error in (a, b)]
    if types[0] != types[1]:
        found.append(
            Difference(
                code="error", path=f"{path}.type", a_value=to_json(types[0]), b_value=to_json(types[1])
            )
        )
    text_a, text_b = essence(rules.renamed_text(a.text)), essence(b.text)
    if text_a != text_b:
        pairs = zip_longest(text_a.splitlines(), text_b.splitlines())
        line_a, line_b = next(((x, y) for x, y in pairs if x != y), (text_a, text_b))
        found.append(
            Difference(code="error", path=f"{path}.text", a_value=to_json(line_a), b_value=to_json(line_b))
        )
    return found


def essence(text: str) -> str:
    """The text without what depends on where and when it was raised; one line per line that is left."""
    return _sifted(text)[0]


def reworded(a: str, b: str) -> list[str]:
    """Returns in what two texts that `compare_errors` takes as equal differ all the same."""
    taken_a, taken_b = _sifted(a)[1], _sifted(b)[1]
    kinds = [kind for kind in _KINDS if taken_a.get(kind) != taken_b.get(kind)]
    return kinds or ["empty lines or length"]


def _sifted(text: str) -> tuple[str, dict[str, list[str]]]:
    """Returns what is left of a text, and what was taken out of it, by kind."""
    taken: dict[str, list[str]] = defaultdict(list)

    def without(kind: str, pattern: re.Pattern[str], replacement: str, text: str) -> str:
        def take(match: re.Match[str]) -> str:
            taken[kind].append(match[0])
            return match.expand(replacement)

        return pattern.sub(take, text)

    text = text[:MAX_TEXT]
    for pattern in _NATIVE:
        text = without("native frames", pattern, "", text)
    lines = []
    in_library = False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            path, number, function = frame.groups()
            taken["paths"].append(path)
            taken["line numbers"].append(number)
            in_library = _LIBRARY.search(path) is not None
            if in_library:
                taken["frames of libraries"].append(function)
            else:
                lines.append(f"  in {function}")
        elif line.startswith("    ") and (in_library or _CARETS.fullmatch(line)):
            taken["frames of libraries" if in_library else "marks under lines"].append(line.strip())
        elif line.strip():
            in_library = False
            lines.append(line)
    text = "\n".join(lines)
    for kind, pattern, replacement in _IN_LINES:
        text = without(kind, pattern, replacement, text)
    return text, taken


def named_type(text: str) -> str | None:
    """The exception that a text names behind the worker on which it was raised: `ValueError('…')`."""
    match = _NAMED.match(text)
    return None if match is None else same_main(match[1])


def same_main(name: str) -> str:
    """Returns the name with `__main__` for `__mp_main__`, its name in a process that multiprocessing has
    spawned."""
    return re.sub(r"\b__mp_main__\b", "__main__", name)


_NAMED = re.compile(r"On WorkerInfo\(id=\d+, name=[^\n]*\):\n([A-Za-z_][\w.]{0,200})\(")
_FRAME = re.compile(r'\s+File "([^"]*)", line (\d+), in (.*)')
_TORCH = r"torch[/\\](?:_\w*|autograd|distributed|functional|jit|nn|optim|testing|utils)[/\\.]"
"""torch where it was built; a user's folder may be called torch too."""
_OURS = r"rpcinspect[/\\]replayer[/\\]workers[/\\]"
"""The frames through which a live worker calls a function."""
_LIBRARY = re.compile(
    rf"(?:^|[/\\])(?:(?:site-packages|dist-packages|lib[/\\]python3[.\d]*)[/\\]|{_TORCH}|{_OURS})|^<frozen "
)
_CARETS = re.compile(r"\s*[~^]+\s*")

# Of a line. Texts that were quoted in another error have their line ends escaped. The second is for patterns
# that may look for something behind it from many places: all of them must take linear time on hostile text.
_END = r"(?:(?!\\n)[^\n])*"
_SOME = r"(?:(?!\\n)[^\n]){0,500}?"

_NATIVE = (
    re.compile(rf"(?:\\n|\n|^)[ \t]*frame #\d+: {_END}"),
    re.compile(rf"(?:\\n|\n|^)[ \t]*#\d+ {_SOME} from {_SOME}:\d+"),
    re.compile(rf"Exception raised from {_SOME}\(most recent call first\):"),
    re.compile(r"C\+\+ CapturedTraceback:"),
)
"""Native frames, wherever they stand."""

_IN_LINES = (
    ("names of modules", re.compile(r"\b__mp_main__\b"), "__main__"),
    ("addresses", re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    ("ids", re.compile(r"WorkerInfo\(id=\d+"), "WorkerInfo(id=…"),
    ("ids", re.compile(r"\b(Node|node) \d+"), r"\1 …"),
    ("ids", re.compile(r"GloballyUniqueId\([^()]*\)"), "GloballyUniqueId(…)"),
    ("ids", re.compile(r"\b(id|Id|ID|pid|PID|thread|process)( ?[:=]? ?)-?\d+"), r"\1\2…"),
    (
        "addresses",
        re.compile(r"\[(?=[\da-fA-F]{0,4}:)[\da-fA-F:.]{2,45}(?:%\w{1,20})?\](?::\d+)?"),
        "<address>",
    ),
    ("addresses", re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?"), "<address>"),
    ("addresses", re.compile(r"\blocalhost:\d+"), "<address>"),
    ("addresses", re.compile(r"\b([Pp]ort)( ?[:=]? ?)\d+"), r"\1\2…"),
    (
        "paths",
        re.compile(r"""(?<![\w<])(?:\.{0,2}/)(?:[^\s/'"\\:,;()<>]+/)*[^\s/'"\\:,;()<>]+(?::\d+)?"""),
        "<path>",
    ),
    ("paths", re.compile(r"""\b[A-Za-z]:\\+(?:[^\s'"\\:]+\\+)*[^\s'"\\:]+(?::\d+)?"""), "<path>"),
    (
        "paths",
        re.compile(r"(?<![\w.+-])[\w.+-]+\.(?:py|pyx|cpp|cc|cu|h|hpp|so|pt)(?::\d+)?\b"),
        "<path>",
    ),
    ("line numbers", re.compile(r"\blines? \d+(?:-\d+)?"), "line …"),
)
"""What is another number or place in each run → what stands for it."""

_KINDS = (
    *("paths", "line numbers", "frames of libraries", "native frames", "marks under lines"),
    *("addresses", "ids", "names of modules"),
)
"""All that is taken out, in words."""
