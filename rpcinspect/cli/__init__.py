"""The command line: the program, its commands and what it does to its streams.

In: the arguments of the process. Out: an exit code. Each command's options are in a module of its name, those
that several have in `options`; what a command does is in `commands`, whose modules are imported only once a
command runs: `rpcinspect --help` and `decode` must start at once. That is also why annotations of this
package are not postponed: typer would compile each of these texts, which takes 6 % of the whole start.
"""

import codecs
import io
import os
import signal
import sys
from typing import Annotated

import typer

from rpcinspect import __version__
from rpcinspect.cli import decode, diff, record, replay

app = typer.Typer(
    name="rpcinspect",
    help="Decode, replay and diff captured torch.distributed.rpc traffic.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(decode.decode)
app.command()(replay.replay)
app.command()(diff.diff)
app.command(context_settings={"allow_interspersed_args": False})(record.record)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rpcinspect {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Decode, replay and diff captured torch.distributed.rpc traffic."""


def main() -> None:
    """Runs the command line; what it writes suits any terminal, file or pipe."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends us quietly, as it ends any other filter
    _prepare_streams()
    app()


def _prepare_streams() -> None:
    """Standard streams that were closed become empty ones; characters that an encoding lacks are escaped."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN)


def _plainer(error: UnicodeError) -> tuple[str | bytes, int]:
    """Returns ASCII for characters that an encoding lacks: `->` for our arrows, escapes for others."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    told = (SIGNS.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in lacking)
    return "".join(told), error.end


PLAIN = "rpcinspect.plain"
SIGNS = {
    "→": "->",
    "⇄": "<>",
    "…": "...",
    "✗": "x",
    "×": "x",
    "µ": "u",
    "±": "+-",
    "−": "-",
    "∞": "inf",
    "↻": "@",
    "│": "|",
    "├": "|",
    "┤": "|",
    "┼": "+",
    "◀": "<",
    "▶": ">",
    "─": "-",
    "╌": "-",
    "┄": "-",
}
"""What views draw, as ASCII."""
codecs.register_error(PLAIN, _plainer)
