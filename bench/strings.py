"""`make strings`: every text of the program that people may read, in one place, where it can be judged.

    python bench/strings.py                  all of them, by module, each with its line
    python bench/strings.py cli checks       only those of these folders
    python bench/strings.py --words 12       only texts of at least so many words

In: the source of the package. Out: string literals of more than one word, and docstrings of commands, which
are their help; what a text holds of values stands as {…}. Templates and scripts of pages have their own
texts.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "rpcinspect"
SHOWN = re.compile(r">([^<>{}]*[A-Za-z]{2,}[^<>{}]*)<|[\"'`]([A-Z][^\"'`]* [^\"'`]*)[\"'`]")
"""In templates and scripts: text between tags, and quoted text that begins a sentence."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("folders", nargs="*", help="folders or modules below the package")
    options.add_argument("--words", type=int, default=2, metavar="N", help="texts of at least N words")
    chosen = options.parse_args()
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE).as_posix()
        if chosen.folders and not name.startswith(tuple(chosen.folders)):
            continue
        texts = [(line, text) for line, text in _texts(path) if len(text.split()) >= chosen.words]
        if texts:
            print(f"\n{name}")
            for line, text in texts:
                print(f"{line:>6}  {text}")
    return 0


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of a file."""
    if path.suffix == ".py":
        yield from texts_of(path.read_text(encoding="utf-8"), helps="cli" in path.parts)
    elif path.suffix in (".html", ".js"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for found in SHOWN.finditer(line):
                yield number, (found[1] or found[2]).strip()


def texts_of(source: str, *, helps: bool = False) -> Iterator[tuple[int, str]]:
    """(line, text) of the literals of a module, in their order. A text that is put together of several, by +
    or in an f-string, is one; docstrings and texts below names, which document them, are none. `helps`: those
    of classes are help."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    shown = {id(node.body[0]) for node in nodes if helps and isinstance(node, ast.ClassDef)}
    silent = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and id(node) not in shown
    }
    found: list[tuple[int, int, str]] = []
    inner: set[int] = set()
    for node in nodes:  # from the outside in
        text = None if id(node) in silent else _text(node)
        if text is None:
            continue
        inner |= {id(child) for child in ast.walk(node)} - {id(node)}
        if id(node) not in inner and re.search(r"[A-Za-z]{2,}.* |^{…}.*[a-z]{2,}", text):
            found.append((node.lineno, node.col_offset, " ".join(text.split())))  # type: ignore[attr-defined]
    for line, _, text in sorted(found):
        yield line, text


def _text(node: ast.AST) -> str | None:
    """What a literal says, values as {…}; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{…}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        if left is not None or right is not None:
            return (left or "{…}") + (right or "{…}")
    return None


if __name__ == "__main__":
    sys.exit(main())
