"""The command line: the program, and what it does to its streams.

In: the arguments of the process. Out: an exit code. A module per command, or for several, has the options and
what the command does; it is imported once the command is named, and what decodes and shows only once it runs:
`rpcinspect --help` and `decode` must start at once. That is also why annotations of modules with options are
not postponed: typer would compile each of these texts.
"""

import codecs
import io
import os
import signal
import sys
from typing import Annotated, TextIO, cast

import typer

from rpcinspect import __version__, exit_codes
from rpcinspect.cli.github_log import InertText, is_github_log
from rpcinspect.cli.program import SETTINGS, Program

app = typer.Typer(
    name="rpcinspect",
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


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
    """Decode, replay and compare captured torch.distributed.rpc traffic."""


def main() -> None:
    """Runs the command line; what it writes suits any terminal, file or pipe."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends us quietly, as it ends any other filter
    _prepare_streams()
    try:
        app()
    except OSError as error:  # help can't be written: what a command does is guarded
        from rpcinspect.cli.output import give_up_stdout, say
        from rpcinspect.unexpected import DEBUG

        if os.environ.get(DEBUG):
            raise
        give_up_stdout()
        say(f"standard output: can't be written: {error.strerror}")
        sys.exit(exit_codes.USAGE)


def _prepare_streams() -> None:
    """Opens standard streams that were closed as empty ones; escapes characters that an encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN)
    if is_github_log():  # the command line's own errors quote its words, and Python's warnings anything
        sys.stderr = cast("TextIO", InertText(sys.stderr))


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
    "└": "`",
    "·": ".",
    "–": "-",
    "↔": "<>",
    "╌": "-",
    "┄": "-",
}
"""What views draw, as ASCII."""
codecs.register_error(PLAIN, _plainer)
