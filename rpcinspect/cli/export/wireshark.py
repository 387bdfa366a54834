"""`rpcinspect export wireshark`: a dissector for Wireshark that knows the messages of a run."""

import shlex
from pathlib import Path
from typing import Annotated, ClassVar

from rpcinspect.cli.options import STDIN, ShownOptions, option


class WiresharkCommand(ShownOptions, frozen=True, kw_only=True):
    """Write a dissector for Wireshark: fields, filters and links of the messages."""

    EXAMPLES: ClassVar = (
        "export wireshark run.pcap -o run.ws",
        "export wireshark run.pcap -o errors.ws -f error",
    )

    output: Annotated[Path, option("-o --output DIR", "Write to this folder.")]

    def run(self) -> int:
        """Makes the session in a first pass, writes in two more; returns the exit code."""
        from rpcinspect import exit_codes
        from rpcinspect.cli.inputs import two_passes
        from rpcinspect.cli.output import tell
        from rpcinspect.export.wireshark.dissector import SCRIPT, write_dissector
        from rpcinspect.fields.phrases import counted

        with two_passes(self) as (session, shown, decoding):
            records = (r for r in decoding.records() if shown is None or shown.rows[r.row])
            done = write_dissector(self.output, session, decoding, records)
        much = ((done.messages, "message"), (done.packets, "packet"), (done.bytes, "byte"))
        told = ", ".join(counted(number, noun) for number, noun in much)
        first = [self.files[0]] if self.files[0] != STDIN else []
        opens = shlex.join(["wireshark", "-X", f"lua_script:{self.output / SCRIPT}", *first])
        tell([told, opens], None)
        return exit_codes.OK
