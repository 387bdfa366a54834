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
        from rpcinspect import exit_codes
        from rpcinspect.cli.inputs import two_passes
        from rpcinspect.cli.output import open_output, say
        from rpcinspect.cli.redacting import save_log
        from rpcinspect.export.save import key_of

        with (
            two_passes(self) as (session, shown, decoding),
            open_output(self.output, private=True, silent=True) as output,
        ):
            key = key_of(self.redact_seed) if self.redact else None
            say(save_log(output, session, shown, decoding, key))
        return exit_codes.OK
