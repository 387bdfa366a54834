"""`rpcinspect export parquet`: a session as a partition of the tables in a folder.

In: captures, a folder. Out: the tables, a line that says how much that was; `OutputError` where pyarrow is
missing, or the partition is that of other captures.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import quote

from rpcinspect.cli.options import STDIN, NoHashOption, ShownOptions, option

if TYPE_CHECKING:
    from rpcinspect.export.parquet.lake import Lake
    from rpcinspect.session.model import Session

MAX_PARTITION = 200
"""Characters of a partition's name, as the folder has it: file systems take 255."""


class ParquetCommand(ShownOptions, frozen=True, kw_only=True):
    """Write tables for DuckDB or Spark; one folder holds many captures."""

    EXAMPLES: ClassVar = (
        "export parquet run.pcap -o lake",
        "export parquet run.pcap -o lake --partition monday",
    )

    output: Annotated[Path, option("-o --output DIR", "Write to this folder of sessions.")]
    partition: Annotated[
        str | None, option("--partition NAME", "Name the session. Default: the name of its file.")
    ] = None
    skip_written: Annotated[
        bool, option("--skip-written", "Do nothing where this capture was written before and is unchanged.")
    ] = False
    no_hash: NoHashOption = False

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.output == Path(STDIN):
            yield "-o: tables are written into a folder, not to standard output"
        if self.partition is None and STDIN in self.files:
            yield "standard input has no name: give one with --partition"
        if self.partition is not None and not 0 < len(quote(self.partition, safe="")) <= MAX_PARTITION:
            yield f"--partition: a name of 1 to {MAX_PARTITION} characters is needed"

    def run(self) -> int:
        """Makes the session, then writes tables; returns the exit code."""
        from contextlib import ExitStack

        from rpcinspect import exit_codes
        from rpcinspect.cli.inputs import Inputs, say_what_is_unread
        from rpcinspect.cli.interrupt import held_back
        from rpcinspect.cli.output import say_if_empty, tell
        from rpcinspect.fields.phrases import counted

        chosen = self.chosen()
        with ExitStack() as stack:
            lake = stack.enter_context(self._lake())
            text = "" if chosen is None else chosen.text
            if self.skip_written and lake.has(self.files, text, hashes=not self.no_hash):
                tell([f"{lake.place} has it already"], None)
                return exit_codes.OK
            inputs = Inputs(self, stack, twice=True)
            session, shown, decoding, records = inputs.session_then_records(chosen, stack)
            if self.partition is None:
                _must_be_free(lake, session)
            with held_back():  # what was begun is known before it can be dropped
                lake.begin(session, shown, decoding.bytes, hashes=not self.no_hash)
            for record in records:
                lake.feed(record)
            rows = lake.finish()
            with held_back():
                size = lake.publish()
            say_what_is_unread(decoding)
            say_if_empty(session)
            names = ("messages", "tensors", "calls", "edges", "findings")
            told = ", ".join(counted(rows[name], name[:-1]) for name in names)
            tell([f"{told} in {lake.place}, {size:,} bytes"], None)
        return exit_codes.OK

    def _lake(self) -> "Lake":
        """Returns the lake, with nothing written yet."""
        from rpcinspect.cli.requirements import missing_extra

        missing = missing_extra("parquet", "export parquet needs pyarrow")
        if missing is not None:
            from rpcinspect.errors import OutputError

            raise OutputError(missing)
        from rpcinspect.export.parquet.lake import Lake, partition_name

        return Lake(self.output, self.partition or partition_name(self.files))


def _must_be_free(lake: "Lake", session: "Session") -> None:
    """Raises `OutputError` rather than replace tables only because two captures have one name."""
    from rpcinspect.errors import OutputError
    from rpcinspect.views.words import moment

    others = lake.others(session)
    if not others:
        return
    path, begin = others[0]
    when = "" if begin is None else f" of {moment(begin)}"
    raise OutputError(
        f"{lake.place}: another capture{when} is there, {path}: give this one another name with --partition, "
        f"or replace that one with --partition {lake.partition}"
    )
