"""Captures that an attacker might hand out: w0 calls w1, which calls back; the pickles are the attacker's.

`APP` is the module that the user's job has; `sings` is a pickle that, loaded, writes a file with the id of
the process that loads it.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_payload
from tests.replayer.talks import udf
from tests.tensorpipe.conversations import NO_TENSORS, Network, PipeTalk, Said
from tests.test_pipeline import capture

APP = """
import copyreg, os, posix
import torch.distributed.rpc as rpc

copyreg.add_extension("posix", "system", 5)

def callback():
    raise AssertionError("w0 is never live here")

def ask():
    rpc.rpc_sync("w0", callback)
    return 5

def f(*args):
    return 5
"""

NAMES = b"\x8f(X\x02\x00\x00\x00w0X\x02\x00\x00\x00w1\x90"  # EMPTY_SET, MARK, "w0", "w1", ADDITEMS
GATHER = (  # PythonUDF(_gather_to_leader, (0, "w1", None, {"w0", "w1"}), {}): tells who is at both ends
    b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\nctorch.distributed.rpc.api\n_gather_to_leader\n"
    b"(K\x00X\x02\x00\x00\x00w1N" + NAMES + b"t}\x87\x81."
)
FAILED = (  # RemoteException("On WorkerInfo(id=1, name=w1): …", ValueError): tells who answered
    b"\x80\x02ctorch.distributed.rpc.internal\nRemoteException\n"
    b"X\x20\x00\x00\x00On WorkerInfo(id=1, name=w1):\nno" + b"cbuiltins\nValueError\n\x86\x81."
)
CALL, RETURN = 0x102, 0x203


class Job:
    """What w0 and w1 said, one thing after the other."""

    def __init__(self, channel: str = "basic") -> None:
        """`channel` of w0's tensors; all that go by `cuda_basic` are on a GPU, says their descriptor."""
        self.network = Network()
        self._forth = PipeTalk(
            self.network, name="w0", client="10.0.0.1", server="10.0.0.2:5000", channel=channel
        )
        self._back = PipeTalk(self.network, name="w1", client="10.0.0.2", server="10.0.0.1:5001", first_id=2)
        self._ids = 0
        self._say(self._back, 0, GATHER)
        self._say(self._back, 0, pickle.dumps(None), answers=True)
        self._say(self._forth, 0, udf("torch.distributed.rpc.backend_registry._get_device_infos"))
        self._say(self._forth, 0, FAILED, answers=True)

    def _say(self, pipe: PipeTalk, number: int, pickled: bytes, *, answers: bool = False) -> None:
        command = PythonResp(pickled) if answers else PythonCall(pickled, False)
        said = Said(type=RETURN if answers else CALL, id=number, payload=to_payload(command))
        pipe.send(said, from_client=not answers)

    def call(
        self,
        request: bytes,
        answer: bytes = pickle.dumps(5),
        *,
        back: bytes | None = None,
        table: bytes = NO_TENSORS,
        tensors: tuple[bytes, ...] = (),
    ) -> Job:
        """w0 calls w1. `back`: meanwhile w1 calls `app.callback` of w0, and gets this."""
        self._ids += 1
        payload = to_payload(PythonCall(request, False))
        said = Said(CALL, self._ids, payload, table=table, tensors=tensors)
        self._forth.send(said)
        if back is not None:
            self._say(self._back, self._ids, udf("app.callback"))
            self._say(self._back, self._ids, back, answers=True)
        self._say(self._forth, self._ids, answer, answers=True)
        return self

    def write(self, folder: Path) -> Path:
        """The capture."""
        return capture(folder, self.network)


def hostile(folder: Path, request: bytes, answer: bytes) -> Path:
    """w0 calls `request` of w1, which calls back meanwhile and gets `answer`."""
    return Job().call(request, FAILED, back=answer).write(folder)


# --- pickles ------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    """BINUNICODE"""
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def called_with(argument: bytes) -> bytes:
    """A request for `app.f`: opcodes for its only argument."""
    return (
        b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\ncapp\nf\n" + argument + b"\x85}\x87\x81."
    )  # TUPLE1, EMPTY_DICT, TUPLE3, NEWOBJ


SYSTEM: dict[str, bytes] = {
    "by its name": b"cposix\nsystem\n",
    "by names on the stack": text("posix") + text("system") + b"\x93",
    "by getattr": b"cbuiltins\ngetattr\ncapp\nos\n" + text("system") + b"\x86R",
    "by deep getattr": (
        b"cbuiltins\ngetattr\ncbuiltins\ngetattr\ncapp\nrpc\n"
        + text("os")
        + b"\x86R"
        + text("system")
        + b"\x86R"
    ),
    "by a dotted name": b"capp\nos.system\n",
    "by an extension code": b"\x82\x05",
}
"""Opcodes that leave os.system on the stack, by ways that a list of names may miss."""


def sings(way: str, canary: Path) -> bytes:
    """Opcodes that, when loaded, write the id of the loading process to a file."""
    return SYSTEM[way] + text(f"echo $PPID > {canary}") + b"\x85R"
