"""What the sockets of a replay sent and received -> a pcap file, without any rights.

In: every connection as it is opened, used and closed, as a `Tap` of the loop and of the store's client.
Out: a pcap with times in nanoseconds, as of the loopback interface; see `tcp.packetize` for what its packets
are made from. A connection between two played workers is seen from both its ends and recorded once. To be
used by one thread.

The file is written as the replay goes, in steps of 1 MiB, and holds whole packets only, also after a failure
or Ctrl-C; it is at its place once it is closed, and until then what was there stays. A failed write, such as
that of a full disk, does not disturb the replay: the recording ends there, and `failure` says why.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from rpcinspect.capture.pcap import pcap_header, pcap_record
from rpcinspect.errors import OutputError
from rpcinspect.files.closing import Closing
from rpcinspect.files.output import Output
from rpcinspect.tcp.packetize import LINK_TYPE, HostPort, Packetizer

FLUSH_BYTES = 1 << 20

NOT_RECORDED = (
    "The recording holds the connections of the played workers and their conversation with the store, "
    "not what live workers sent to each other or to the store."
)
"""What a report says of a recording."""


class TrafficRecorder(Closing):
    """A pcap file that is being written. Use it in a `with` statement, outside that of the loop, so that the
    ends of the connections are in it.
    """

    def __init__(self, path: Path) -> None:
        """Begins the file; raises `OutputError` if it can't be written."""
        self.path = path
        self._connections: dict[tuple[HostPort, HostPort], tuple[Packetizer, bool]] = {}
        """(end that tells of it, other end) → what writes it, and whether the first is the client."""
        self._time_ns = 0
        self._waiting = bytearray(pcap_header(LINK_TYPE))
        """Whole packets that are not in the file yet."""
        self._written = 0
        """Bytes of whole packets in the file."""
        self._recording = True
        """Off for good once a write has failed or Ctrl-C has cut a call short: nobody knows then what the
        next packet would have to be."""
        self.failure: str | None = None
        """The reason why nothing more is recorded; None while all is well."""
        self._output = Output(path, private=True)
        self._file = self._output.file
        if not self._flush():
            self._output.drop()
            raise OutputError(self.failure)

    # --- the tap -------------------------------------------------------------------------------------------

    def opened(self, local: HostPort, remote: HostPort, accepted: bool) -> None:
        """A connection is there; `accepted`: the remote side opened it."""
        if (remote, local) in self._connections:
            return  # both ends are ours, and the other one tells of it
        ends = (remote, local) if accepted else (local, remote)
        # by their first sequence numbers readers tell connections apart, also between files
        talk = Packetizer(*ends, initial=(secrets.randbits(32), secrets.randbits(32)))
        self._connections[local, remote] = talk, not accepted
        self._record(talk.open())

    def data(self, local: HostPort, remote: HostPort, sent: bool, data: bytes | memoryview) -> None:
        """Bytes were sent or received."""
        talk, is_client = self._connections.get((local, remote), (None, False))
        if talk is not None:
            self._record(talk.data(is_client == sent, data))

    def closed(self, local: HostPort, remote: HostPort) -> None:
        """The connection has ended."""
        talk, is_client = self._connections.pop((local, remote), (None, False))
        if talk is not None:
            self._record(talk.close(is_client))

    # --- the file ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Writes what waits and puts the file in its place; again is fine. `failure` is final then."""
        if self._file.closed:
            return
        try:
            self._end()
        except BaseException:  # Ctrl-C: what was recorded is worth as much
            self._end()
            raise

    # --- inside --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """May be done again if it was interrupted."""
        if self.failure is None:
            self._flush()
        with contextlib.suppress(OSError):  # what is no regular file can't be cut
            self._file.truncate(self._written)
        self._recording = False
        try:
            self._output.put()
        except OutputError as error:
            self.failure = self.failure or str(error)
            self._output.drop()

    def _record(self, frames: Iterator[bytes]) -> None:
        if not self._recording:
            return
        self._recording = False
        self._time_ns = max(self._time_ns, time.time_ns())  # the clock may be set back
        for frame in frames:
            self._waiting += pcap_record(self._time_ns, frame)
            if len(self._waiting) >= FLUSH_BYTES and not self._flush():
                return
        self._recording = True

    def _flush(self) -> bool:
        """Writes what waits; False: it could not, and nothing more is recorded. If Ctrl-C cuts that short, it
        can be done again from where the file was whole.
        """
        waiting = memoryview(bytes(self._waiting))
        try:
            if self._file.seekable():
                self._file.seek(self._written)
            done = 0
            while done < len(waiting):
                done += self._file.write(waiting[done:])
        except OSError as error:
            self.failure = f"{self.path}: can't be written: {error.strerror or error}"
            return False
        self._written, self._waiting = self._written + done, bytearray()
        return True
