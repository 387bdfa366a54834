"""Finds out which tests come through which block of code, also in the processes that they start.

Each module of a copy of the package is compiled with marks: at the head of each block of statements in a
function, and behind each compound statement, a byte of a shared file is set. Only the compiled files have
these marks (`__pycache__`), so that lines, sources and tracebacks stay as they are. Each file of tests
runs in a process of its own, since what one file has decoded others may use again.

In: a copy of the checkout. Out: a `Map`, kept file of tests by file of tests: one that has not changed,
beside a package that has not changed, does not run again.
"""

from __future__ import annotations

import ast
import base64
import importlib.util
import json
import marshal
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

SIZE = 1 << 16
"""More marks than the package has blocks."""

HEAD = """
try:
    from rpcinspect._marks import MARKS as _MARKS
except Exception:
    _MARKS = bytearray({size})
"""
"""A worker of a replay may run where the package is not to be imported."""

MARKS = """
import mmap
with open({path!r}, "r+b") as _file:
    MARKS = mmap.mmap(_file.fileno(), 0)
"""


class Marking(ast.NodeTransformer):
    """Puts a mark before the first statement of each block in functions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inside = 0
        self.lines: dict[int, int] = {}
        """Each line that a statement in a function covers → its block, of the innermost statement."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.inside += 1
        text = node.body[:1] if ast.get_docstring(node, clean=False) is not None else []
        node.body = [*text, *self._marked(node.body[len(text) :])]
        self.inside -= 1
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        inside, self.inside = self.inside, 0
        self.generic_visit(node)
        self.inside = inside
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not self.inside:
            return super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, name, None), list):
                setattr(node, name, self._marked(statements))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            part.body = self._marked(part.body)
        return node

    def _marked(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        wanted = True
        for statement in statements:
            simple = not (hasattr(statement, "body") or hasattr(statement, "cases"))
            if wanted and not isinstance(statement, (ast.Nonlocal, ast.Global)):
                self.number += 1
                mark = ast.parse(f"_MARKS[{self.number}] = 1").body[0]
                for part in ast.walk(mark):
                    ast.copy_location(part, statement)
                result.append(mark)
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                self.lines[line] = self.number
            result.append(statement if simple else self.visit(statement))
            wanted = not simple
        return result


def mark(tree: Path, marks: Path) -> dict[str, dict[int, int]]:
    """Compiles the package of a copy with marks; for each module, the block of each line of a function."""
    marks.write_bytes(bytes(SIZE))
    (tree / "rpcinspect" / "_marks.py").write_text(MARKS.format(path=str(marks)), encoding="utf-8")
    blocks: dict[str, dict[int, int]] = {}
    number = 0
    for path in sorted((tree / "rpcinspect").rglob("*.py")):
        if path.name == "_marks.py":
            continue
        source = path.read_bytes()
        marking = Marking(number)
        parsed = marking.visit(ast.parse(source))
        number = marking.number
        after = 0
        while after < len(parsed.body) and _comes_first(parsed.body[after]):
            after += 1
        parsed.body[after:after] = ast.parse(HEAD.format(size=SIZE)).body
        code = compile(ast.fix_missing_locations(parsed), str(path), "exec", dont_inherit=True)
        cached = Path(importlib.util.cache_from_source(str(path)))
        cached.parent.mkdir(exist_ok=True)
        unchecked = (1).to_bytes(4, "little")  # Python loads it without a look at the source
        head = importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source)
        cached.write_bytes(head + marshal.dumps(code))
        blocks[path.relative_to(tree / "rpcinspect").as_posix()] = marking.lines
    if number >= SIZE:
        sys.exit(f"the package has {number:,} blocks: raise SIZE in bench/faults_map.py")
    return blocks


def _comes_first(statement: ast.stmt) -> bool:
    """Whether nothing may stand before a statement: a module's text, an import from __future__."""
    imported = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    return imported or isinstance(statement, ast.Expr)


@dataclass(frozen=True)
class Came:
    """A test that passed, and where it came through."""

    seconds: float
    children: bool
    """Whether it started processes."""
    bits: bytes
    """A bit for each block."""

    def through(self, block: int) -> bool:
        """Whether it came through a block."""
        return bool(self.bits[block >> 3] & 0x80 >> (block & 7))


@dataclass
class Map:
    """Which tests came through which block, and how long they took."""

    blocks: dict[str, dict[int, int]]
    """A module, a line of it → its block."""
    tests: dict[str, Came]

    def covering(self, module: str, line: int) -> tuple[list[str], list[str]]:
        """The tests that came through a line, and those beside them in their files, which may have used what
        these decoded."""
        block = self.blocks.get(module, {}).get(line)
        if block is None:
            return [], []
        direct = [name for name, came in self.tests.items() if came.through(block)]
        files = {name.partition("::")[0] for name in direct}
        chosen = set(direct)
        beside = [name for name in self.tests if name.partition("::")[0] in files and name not in chosen]
        return direct, beside


def read(folder: Path) -> Map:
    """The map that lies in a folder; an empty one where there is none."""
    path = folder / "blocks.json"
    blocks: dict[str, dict[int, int]] = {}
    if path.exists():
        told = json.loads(path.read_text(encoding="utf-8"))
        blocks = {
            module: {int(line): number for line, number in lines.items()} for module, lines in told.items()
        }
    tests: dict[str, Came] = {}
    for report in sorted(folder.glob("report-*.jsonl"), key=lambda path: "-children" in path.stem):
        for line in report.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            if said["outcome"] == "passed" and said["test"] not in tests:
                bits = zlib.decompress(base64.b85decode(said["blocks"]))
                tests[said["test"]] = Came(said["seconds"], "-children" in report.stem, bits)
    return Map(blocks, tests)
