"""Recording the wire: torch is made to send everything over TCP (startup/rpcinspect_wire.py), and a sniffer
writes the packets of an interface into a pcap.

In: the file, the interface, and whether the command gets a network of its own. Out: a `RecordingResult`. A
write that fails ends the recording, with one line on standard error at that moment, and the job goes on.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from rpcinspect.capture.packet_socket import Ring, open_socket
from rpcinspect.capture.sniffer import Sniffer
from rpcinspect.errors import DOCTOR, CaptureError, OutputError, RecordError
from rpcinspect.files.output import open_growing
from rpcinspect.recorder.namespace import enter_own_network
from rpcinspect.recorder.processes import Process, ProcessNote
from rpcinspect.recorder.record import Mechanism, RecordingResult
from rpcinspect.session.process_end import ProcessEnd

MAY_NOT_CAPTURE = (
    "capturing packets is not allowed here: run rpcinspect as root, or give its Python that right "
    f"(sudo setcap cap_net_raw+ep, on the file that `readlink -f` names), or use --private-net; {DOCTOR}"
)


class WireMechanism(Mechanism):
    """Records packets of one interface. The process that becomes the command asks for all that may be
    refused."""

    via = "wire"

    def __init__(self, file: Path, *, interface: str = "lo", private_net: bool = False) -> None:
        self._file = file
        self._interface = interface
        self._private_net = private_net
        self._sniffer: Sniffer | None = None

    def stage(self) -> Sequence[int]:
        """The socket, opened where the command will be."""
        if self._private_net:
            enter_own_network()
        try:
            return [open_socket(self._interface).detach()]
        except PermissionError as error:
            raise RecordError(MAY_NOT_CAPTURE) from error
        except OSError as error:
            raise RecordError(f"this system has no packet sockets: {error}") from error
        except CaptureError as error:
            raise RecordError(f"--interface {error}") from error

    def begin(self, descriptors: Sequence[int]) -> None:
        """The sniffer starts."""
        (descriptor,) = descriptors
        try:
            ring = Ring(socket.socket(fileno=descriptor))
        except CaptureError as error:
            raise RecordError(str(error)) from error
        try:
            output = open_growing(self._file)
        except OutputError:
            ring.close()
            raise
        self._sniffer = Sniffer(ring, output, complain=self._complaint)

    def _complaint(self, reason: str) -> str:
        return f"rpcinspect: {self._file}: {reason}: the recording ends here, the job goes on\n"

    def finish(self, notes: Sequence[ProcessNote], ends: Mapping[Process, ProcessEnd]) -> RecordingResult:
        """The sniffer writes what is left and ends; a pcap has no place for ends of processes."""
        assert self._sniffer is not None
        sniffed = self._sniffer.finish()
        size, why = sniffed.bytes, sniffed.ended_early
        if size is None:
            try:
                size = self._file.stat().st_size
            except OSError:
                size, why = 0, f"{why}, and its file removed"
        return RecordingResult(
            file=self._file, bytes=size, packets=sniffed.packets, dropped=sniffed.dropped, ended_early=why
        )

    def close(self) -> None:
        """Ends the sniffer."""
        if self._sniffer is not None:
            self._sniffer.close()
