"""`rpcinspect export rpclog`: the messages of a run without packets."""

from collections.abc import Iterator
from typing import ClassVar

from rpcinspect.cli.options import RedactOption, RedactSeedOption, ShownOptions


class RpclogCommand(ShownOptions, frozen=True, kw_only=True):
    """Write a log of the messages, which every command reads like a capture."""

    EXAMPLES: ClassVar = (
        "export rpclog run.pcap -o run.rpclog",
        "export rpclog run.pcap -o shared.rpclog --redact",
    )

    redact: RedactOption = False
    redact_seed: RedactSeedOption = None

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.redact_seed is not None and not self.redact:
            yield "--redact-seed is for --redact"

    def run(self) -> int:
        """Makes the session in a first pass, writes in a second; returns the exit code."""
        from contextlib import ExitStack

        from rpcinspect import exit_codes
        from rpcinspect.cli.inputs import Inputs, say_what_is_unread
        from rpcinspect.cli.output import open_output, say, say_if_empty
        from rpcinspect.cli.redacting import save_log
        from rpcinspect.export.save import key_of

        chosen = self.chosen()
        with ExitStack() as stack:
            inputs = Inputs(self, stack, twice=True)
            session, shown = inputs.session(chosen)
            output = stack.enter_context(open_output(self.output, private=True, silent=True))
            with inputs.decoding() as decoding:
                key = key_of(self.redact_seed) if self.redact else None
                say(save_log(output, session, shown, decoding, key))
                say_what_is_unread(decoding)
            say_if_empty(session)
        return exit_codes.OK
