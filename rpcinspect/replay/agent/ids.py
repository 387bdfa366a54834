"""RRefs of a played worker under the ids that torch gave them, where messages have the captured ones.

In: which captured RRef is which of torch's; a message that hands some of them on. Out: the message with
torch's ids, and with forks that torch has just made. Only these ids change; what live workers send back has
none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcinspect.equality.ids import FORK, RREF, IdMap
from rpcinspect.errors import ReplayError
from rpcinspect.replay.playing.arrived import LiveRecords
from rpcinspect.replay.playing.translate import translate
from rpcinspect.rpc.command import PythonResp
from rpcinspect.rpc.message import Message
from rpcinspect.rpc.pickle_facts import FactsReader
from rpcinspect.rpc.types import GloballyUniqueId


class OwnRRefs:
    """The RRefs of one played worker."""

    def __init__(self) -> None:
        self._real: dict[GloballyUniqueId, GloballyUniqueId] = {}
        self._records = LiveRecords()

    def made(self, captured: GloballyUniqueId, real: Sequence[int]) -> None:
        """torch has made it."""
        self._real[captured] = GloballyUniqueId(int(real[0]), int(real[1]))

    def brought(self, pickle: bytes) -> list[list[int | str]]:
        """The RRefs that an answer brings, as torch takes them; from now on they can be used under their
        ids."""
        found: list[list[int | str]] = []
        if b"_py_rref_receiver" in pickle or b"_remote_module_receiver" in pickle:
            for one in FactsReader().read(PythonResp(pickle)).forks:
                self.made(GloballyUniqueId(*one.rref_id), one.rref_id)
                found.append([one.owner_id, *one.rref_id, *one.fork_id, one.parent, one.type_str])
        return found

    def real(self, captured: GloballyUniqueId) -> tuple[int, int]:
        """torch's id. Raises `ReplayError` for one that was not made here."""
        found = self._real.get(captured)
        if found is None:
            raise ReplayError(f"the RRef {captured.created_on}:{captured.local_id} was not made here")
        return found.created_on, found.local_id

    def real_pair(self, captured: tuple[int, int]) -> tuple[int, int]:
        """As `real`."""
        return self.real(GloballyUniqueId(*captured))

    def with_own_ids(
        self, message: Message, tensors: Sequence[bytes], fork: Callable[[Sequence[int]], tuple[int, int]]
    ) -> Message:
        """The message with torch's ids in its arguments; `fork`: makes one more fork of an RRef of
        torch's."""
        record = self._records.decode(message, tensors, 0).record
        if not record.facts.forks:
            return message
        ids = IdMap()
        for one in record.facts.forks:
            captured = GloballyUniqueId(*one.rref_id)
            real = self.real(captured)
            ids.same(RREF, captured, GloballyUniqueId(*real))
            ids.same(FORK, GloballyUniqueId(*one.fork_id), GloballyUniqueId(*fork(real)))
        return translate(record, ids)
