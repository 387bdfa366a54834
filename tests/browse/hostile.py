"""A log whose every string tries to do something to a terminal or to markup, and is long."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_payload
from tests.growing import failing
from tests.logs import log_of, message
from tests.replayer.planning.pickled import UDF

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202eabc\u2066[bold]b[/bold][/][@click=app.quit]q[/]\r\n\t\x00\u200b"
"""Escapes, C1, bidi, Rich's and Textual's markup, line breaks, what has no width."""
LONG = 1 << 20


def long_text(value: str) -> bytes:
    """BINUNICODE"""
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def call(function: str, argument: str) -> bytes:
    """A call of a function of that name with a string."""
    name = long_text("app") + long_text(function) + b"\x93"
    return UDF + name + b"(" + long_text(argument) + b"t}\x87\x81."


def hostile_log(folder: Path) -> Path:
    """Calls between workers of such names, one with an error, one without an answer."""
    worker, other = f"w{EVIL}", f"x[red]{EVIL}"
    evil, long = (
        to_payload(PythonCall(call(EVIL, EVIL), False)),
        to_payload(PythonCall(call("f" * LONG, EVIL * 9999), False)),
    )
    error = to_payload(failing(f"On WorkerInfo(id=1, name={EVIL}):\nValueError({EVIL!r}{EVIL})\n".encode()))
    fine = to_payload(PythonResp(b"\x80\x04" + long_text(EVIL + "z" * LONG) + b"."))
    records = [
        message(worker, other, "PYTHON_CALL", evil, id=1, time_ns=1000),
        message(other, worker, "PYTHON_RET", error, id=1, request=False, time_ns=2000),
        message(worker, other, "PYTHON_CALL", long, id=2, time_ns=3000),
        message(other, worker, "PYTHON_RET", fine, id=2, request=False, time_ns=4000),
        message(worker, other, f"{EVIL}", evil, id=3, time_ns=5000),
        message(worker, other, 9999, evil, id=4, time_ns=6000),
    ]
    path = folder / f"[bold]\x1b[31m\u202e{'n' * 90}.rpclog"
    path.write_bytes(log_of(*records))
    return path
