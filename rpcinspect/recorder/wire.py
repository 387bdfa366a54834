"""Recording the wire: torch is made to send everything over TCP (startup/rpcinspect_wire.py), and a sniffer
writes the packets of an interface into a pcap.

In: the file, the interface, and whether the command gets a network of its own. Out: a `Recorded`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from rpcinspect.errors import RpcInspectError
from rpcinspect.recorder.namespace import enter_own_network
from rpcinspect.recorder.notes import Note
from rpcinspect.recorder.packet_socket import Ring, open_socket
from rpcinspect.recorder.reaper import Process
from rpcinspect.recorder.record import Mechanism, Recorded
from rpcinspect.recorder.sniffer import Sniffer
from rpcinspect.session.process_end import ProcessEnd


class Wire(Mechanism):
    """Packets of one interface. What can be refused is asked for by the process that becomes the command."""

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
        return [open_socket(self._interface).detach()]

    def begin(self, descriptors: Sequence[int]) -> None:
        """The sniffer starts."""
        (descriptor,) = descriptors
        ring = Ring(socket.socket(fileno=descriptor))
        try:
            self._sniffer = Sniffer(ring, self._file)
        except RpcInspectError:
            ring.close()
            raise

    def finish(self, notes: Sequence[Note], ends: Mapping[Process, ProcessEnd]) -> Recorded:
        """The sniffer writes what is left and ends; a pcap has no place for ends of processes."""
        assert self._sniffer is not None
        return self._sniffer.finish()

    def close(self) -> None:
        """Ends the sniffer."""
        if self._sniffer is not None:
            self._sniffer.close()
