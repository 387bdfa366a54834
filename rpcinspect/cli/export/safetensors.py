"""`rpcinspect export safetensors`: the tensors of a run."""

from pathlib import Path
from typing import Annotated, ClassVar

from rpcinspect.cli.options import ShownOptions, option


class SafetensorsCommand(ShownOptions, frozen=True, kw_only=True):
    """Write every tensor as safetensors, named by its message, with index.jsonl beside them."""

    EXAMPLES: ClassVar = ("export safetensors run.pcap -o tensors",)

    output: Annotated[Path, option("-o --output DIR", "Write to this folder.")]

    def run(self) -> int:
        """Finds out in a first pass how messages are numbered, writes in a second; returns the exit code."""
        from contextlib import ExitStack

        from rpcinspect import exit_codes
        from rpcinspect.cli.inputs import Inputs, say_what_is_unread
        from rpcinspect.cli.interrupt import held_back
        from rpcinspect.cli.output import tell
        from rpcinspect.export.safetensors import TensorWriter
        from rpcinspect.fields.phrases import counted

        chosen = self.chosen()
        with ExitStack() as stack:
            inputs = Inputs(self, stack, twice=True)
            session, shown = inputs.session(chosen)
            with inputs.decoding() as decoding, TensorWriter(self.output, session, decoding.bytes) as writer:
                for records in decoding.blocks():
                    writer.feed([r if shown is None or shown.rows[r.row] else None for r in records])
                with held_back():
                    count, size = writer.finish()
                say_what_is_unread(decoding)
            tell([f"{counted(count, 'tensor')}, {counted(size, 'byte')}, in {self.output}"], None)
        return exit_codes.OK
