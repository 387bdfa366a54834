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
        from contextlib import ExitStack

        from rpcinspect import exit_codes
        from rpcinspect.cli.inputs import Inputs, say_what_is_unread
        from rpcinspect.cli.output import open_output, say, say_if_empty
        from rpcinspect.export.wireshark.comments import write_comments
        from rpcinspect.fields.phrases import counted

        chosen = self.chosen()
        with ExitStack() as stack:
            inputs = Inputs(self, stack, twice=True)
            session, shown = inputs.session(chosen)
            output = stack.enter_context(open_output(self.output, private=True, silent=True))
            with inputs.decoding() as decoding:
                records = (r for r in decoding.records() if shown is None or shown.rows[r.row])
                done = write_comments(output, session, decoding, records)
                say_what_is_unread(decoding)
            say_if_empty(session)
            say(f"{counted(done.packets, 'packet')}, {counted(done.messages, 'message')} in comments")
        return exit_codes.OK
