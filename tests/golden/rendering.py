"""What a command said and wrote, as one text that is the same wherever and whenever it was run.

In: a folder with `stdout`, `stderr` and the files in `made`. Out: their text. Tables of Parquet become their
schema and rows, what else is no text is escaped; in pages, the data of a run is unpacked, and style and
program, which are the same in all of them, are left out but for `WHOLE`.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import rpcinspect

MAX_BYTES = 200_000
"""Of a file that is no text; of more, there is only the hash."""
WHOLE = ("captures/basic_chain.pcap", "captures/pairs/dropout_seed.pcap.gz")
"""Captures whose pages are kept with style and program."""
STYLE = re.compile(r"<(style|script)>.*?</\1>", re.DOTALL)
DATA = re.compile(r'(<script type="text/plain"[^>]*>)([^<]*)(</script>)')
WRITTEN = re.compile(r"\d{19}(?=\])|(?<=,)(?<!\",)\d+(?=' \+)")
"""When a capture was written, in ns: a table keeps it to know the capture again. The schema of several
may end within one."""
VERSION = re.compile(rf"(rpcinspect[^\n]{{0,20}}){re.escape(rpcinspect.__version__)}")


def rendered(folder: Path) -> str:
    """The text of all."""
    parts = [f"--- {name}\n{_text(folder / name)}" for name in ("stdout", "stderr")]
    made = folder / "made"
    files = sorted(path for path in made.rglob("*") if path.is_file())
    parts += [f"--- {path.relative_to(made)}\n{_text(path)}" for path in files]
    text = "\n".join(parts).replace(f"{made}/", "OUT/").replace(str(folder), "FOLDER")
    packed = sum(path.stat().st_size for path in files if path.suffix == ".parquet")
    if packed:  # how well they are packed is up to the release of pyarrow
        text = text.replace(f", {packed:,} bytes\n", ", SIZE bytes\n")
    return VERSION.sub(r"\1VERSION", text)


def _text(path: Path) -> str:
    if path.suffix == ".parquet":
        return "\n".join(_rows(path))
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _escaped(data)
    if "\0" in text:
        return _escaped(data)
    return _page(text) if text[:15].lower() == "<!doctype html>" else text


def _page(text: str) -> str:
    """A page's data in the clear."""
    if not any(name in text for name in WHOLE):
        text = STYLE.sub(r"<\1></\1>", text)
    return DATA.sub(lambda found: f"{found[1]}\n{_unpacked(found[2])}\n{found[3]}", text)


def _unpacked(text: str) -> str:
    return gzip.decompress(base64.b64decode(text)).decode()


def _rows(path: Path) -> Iterator[str]:
    """Schema and rows of a table."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path, use_threads=False)
    yield WRITTEN.sub("TIME", str(table.schema))
    yield from (json.dumps(row, default=repr) for row in table.to_pylist())


def _escaped(data: bytes) -> str:
    """Bytes as a text that keeps the lines which they have, so that two of them can be compared."""
    if len(data) > MAX_BYTES:
        return f"{len(data)} bytes, sha256 {sha256(data).hexdigest()}"
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c == "\n" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
