"""`rpcinspect export pcapng`: the packets of a run, with comments for Wireshark."""

from typing import ClassVar

from rpcinspect.cli.options import ShownOptions


class PcapngCommand(ShownOptions, frozen=True, kw_only=True):
    """Write the same packets, with a comment at the first one of each message.

    Every packet stays; -f chooses the messages that get a comment. To write the messages that match alone,
    use decode -w.
    """

    EXAMPLES: ClassVar = (
        "export pcapng run.pcap -o run.pcapng",
        "export pcapng run.pcap -o slow.pcapng -f 'latency > 50ms'",
    )

    def run(self) -> int:
        """Makes the session in a first pass, writes in two more; returns the exit code."""
        from rpcinspect import exit_codes
        from rpcinspect.cli.inputs import two_passes
        from rpcinspect.cli.output import open_output, say
        from rpcinspect.export.wireshark.comments import write_comments
        from rpcinspect.fields.phrases import counted

        with (
            two_passes(self) as (session, shown, decoding),
            open_output(self.output, private=True, silent=True) as output,
        ):
            records = (r for r in decoding.records() if shown is None or shown.rows[r.row])
            done = write_comments(output, session, decoding, records)
        say(f"{counted(done.packets, 'packet')}, {counted(done.messages, 'message')} in comments")
        return exit_codes.OK
