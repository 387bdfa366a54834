"""Packets that pyshark gives: the one module that imports it, and only where somebody asks for it.

In: a capture object of pyshark, or a file for which one is made. Out: TCP segments, as tshark's own reader
gives them, see `segments`.

A `FileCapture` tells how tshark is to be run (display filter, decode-as, preferences), and pyshark makes
packets of what it prints. The program itself is run here and not in pyshark's event loop: so this works where
such a loop runs already, as in notebooks, tshark ends when we do, and no packet is kept. Packets that a
capture has loaded, as `LiveCapture.sniff` does, are taken as they are.

Payloads and sequence numbers are taken from the raw part of the JSON, which is the bytes themselves; what
stands beside it is text, in the form that the user's preferences give it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from rpcinspect.capture.block import ReportProblem
from rpcinspect.capture.child import ChildTool
from rpcinspect.capture.segments import SegmentSource
from rpcinspect.capture.source import Source, open_source
from rpcinspect.capture.tshark import BATCH, INSTALL, PREFERENCES, Tshark, find_program, told_by
from rpcinspect.errors import DOCTOR, CaptureError
from rpcinspect.limits import Unpacking

INSTALL_PYSHARK = f"pip install 'rpcinspect[pyshark]'; {DOCTOR}"
FORMAT = "pyshark"
KEPT_AT_ONCE = 256
"""So many kept packets make a block."""

MODE = "(…, use_json=True, include_raw=True)"
"""What a capture object must be made with."""
_SEPARATOR = b"[,\n "
"""What may stand between two packets of JSON."""
_PACKET_END = b"</packet>"


class PysharkFile(Tshark):
    """A file that tshark reads and of which pyshark makes packets."""

    format = FORMAT
    END = b"\n  }"

    def __init__(
        self,
        source: Source,
        preferences: Sequence[str],
        capture: int,
        report: ReportProblem,
        unpacking: Unpacking,
        given: Any = None,
    ) -> None:
        """As `Tshark`; `given` is the user's capture object, without which one is made. Raises `CaptureError`
        where pyshark is missing, too."""
        self._given = given
        self._json = load_pyshark(source.name).tshark.output_parser.tshark_json
        super().__init__(source, preferences, capture, report, unpacking)

    def _program(self) -> str | None:
        return getattr(self._given, "tshark_path", None) or super()._program()

    def _command(self, program: str, preferences: Sequence[str]) -> list[str]:
        capture = self._given
        if capture is None:
            every = [one.partition(":") for one in (*PREFERENCES, *preferences)]
            wanted = {name: value for name, _, value in every}
            form = {"use_json": True, "include_raw": True}
            capture = file_capture(self._path, override_prefs=wanted, **form)
        return [program, "-n", *json_arguments(capture, self._path)]

    def _lines(self) -> list[bytes]:
        return [self._line(piece) for piece in super()._lines()]

    def _line(self, piece: bytes) -> bytes:
        """Returns the line of one packet; an empty one, which counts as unreadable, for anything else."""
        try:
            text = piece.lstrip(_SEPARATOR) + self.END
            return field_line(self._json.packet_from_json_packet(text, deduplicate_fields=False))
        except (ValueError, LookupError, TypeError, AttributeError):
            return b""


class PysharkKept(SegmentSource):
    """Packets that a capture object keeps."""

    format = FORMAT

    def __init__(self, name: str, packets: Iterable[Any], capture: int, report: ReportProblem) -> None:
        super().__init__(name, None, capture, report)
        self._packets = iter(packets)

    def _lines(self) -> list[bytes]:
        return [field_line(packet) for packet in islice(self._packets, KEPT_AT_ONCE)]


def open_given(
    given: Any, name: str, index: int, report: ReportProblem, unpacking: Unpacking
) -> PysharkFile | PysharkKept:
    """Returns the source that reads a capture object; raises `CaptureError` for one that can't be read, with
    what to use instead."""
    bases = (base.__name__ for base in type(given).__mro__ if base.__module__.startswith("pyshark."))
    kind = next(bases, None)
    if kind is None:
        raise TypeError(f"{type(given).__name__} is neither a path nor a capture object of pyshark")
    if kind not in ("FileCapture", "LiveCapture"):
        raise CaptureError(
            f"{name}: a pyshark {kind} can't be read; save its packets and use FileCapture{MODE}"
        )
    if not (given.use_json and given.include_raw):
        raise CaptureError(f"{name}: this mode of pyshark gives no bytes of packets; use {kind}{MODE}")
    if kind == "LiveCapture":
        if not len(given):
            raise CaptureError(
                f"{name}: this LiveCapture keeps no packets; call its sniff(timeout=SECONDS) first"
            )
        return PysharkKept(name, map(given.__getitem__, range(len(given))), index, report)
    if given.loaded:
        return PysharkKept(name, given, index, report)
    source = open_source(name, report, unpacking)
    try:
        return PysharkFile(source, (), index, report, unpacking, given)
    except BaseException:
        source.close()
        raise


def file_capture(path: str, **parameters: Any) -> Any:
    """Returns a `pyshark.FileCapture`. Its event loop is never used."""
    import asyncio

    loop = asyncio.new_event_loop()  # else it takes, or makes, the thread's own, and the signal of children
    loop.close()
    return load_pyshark(path).FileCapture(path, keep_packets=False, eventloop=loop, **parameters)


def json_arguments(capture: Any, path: str) -> list[str]:
    """Returns the arguments of tshark by which a capture object reads this file; raises `CaptureError` where
    it would give nothing."""
    try:
        arguments: list[str] = capture.get_parameters()
    except Exception as error:  # it asks tshark for its release
        raise CaptureError(f"{path}: pyshark: {error}") from error
    if "-w" in arguments:
        raise CaptureError(f"{path}: a pyshark capture with output_file gives no packets; leave it out")
    arguments[arguments.index("-r") + 1] = path  # unpacked
    return ["-T", "json", *arguments, "--no-duplicate-keys"]


def load_pyshark(name: str) -> Any:
    """Returns the package; raises `CaptureError` where it, or what it needs, is missing."""
    try:
        import pyshark
        from pyshark.tshark.output_parser import tshark_json, tshark_xml  # noqa: F401
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise CaptureError(f"{name}: pyshark can't be used without {missing}: {INSTALL_PYSHARK}") from error
    return pyshark


def dissected(path: str, display_filter: str, script: Path) -> Iterator[Any]:
    """Yields the packets of a file that a display filter picks, from tshark's XML, with all that it makes of
    the whole file and of a script in Lua. Raises `CaptureError` where tshark is missing or refuses."""
    xml = load_pyshark(path).tshark.output_parser.tshark_xml
    program = find_program("tshark")
    if program is None:
        raise CaptureError(f"{path}: this needs tshark; {INSTALL}")
    with closing(open_source(path, lambda reason: None)) as source:
        name, descriptors = source.shared()
        command = [program, "-n", "-r", name, "-T", "pdml", "-Y", display_filter]
        with closing(ChildTool([*command, "-X", f"lua_script:{script}"], descriptors)) as child:
            rest = b""
            while data := child.read(BATCH):
                *whole, rest = (rest + data).split(_PACKET_END)
                for one in whole:
                    yield xml.packet_from_xml_packet(one[one.find(b"<packet>") :] + _PACKET_END)
            if child.result():
                raise CaptureError(f"{path}: tshark: {told_by(child, child.result())}")


def field_line(packet: Any) -> bytes:
    """Returns a packet's line for `FieldLines`: the values of its fields, of several layers with commas."""
    layers: dict[str, list[Any]] = {"ip": [], "ipv6": [], "tcp": []}
    for layer in packet.layers:
        if layer.layer_name in layers:
            layers[layer.layer_name] += [layer, *layer.duplicate_layers]
    ip, ipv6, tcp = layers.values()
    fields = (
        _values(ip, "ip.src"),
        _values(ip, "ip.dst"),
        _values(ipv6, "ipv6.src"),
        _values(ipv6, "ipv6.dst"),
        _values(tcp, "tcp.srcport"),
        _values(tcp, "tcp.dstport"),
        [packet.frame_info.get("frame.protocols", "")],
        [str(packet.number)],
        [packet.sniff_timestamp or ""],
        [str(int(value or "0", 16)) for value in _raw(tcp, "tcp.seq_raw")],
        [str(int(value or "0", 16)) for value in _raw(tcp, "tcp.ack_raw")],
        _values(tcp, "tcp.flags"),
        _values(tcp, "tcp.len"),
        [value for value in _raw(tcp, "tcp.payload") if value],
    )
    return "\t".join([",".join(values) for values in fields]).encode("ascii", "replace")


def _values(layers: Sequence[Any], name: str) -> list[str]:
    """Returns a field of each layer, as text."""
    return [str(layer.get(name, "")) for layer in layers]


def _raw(layers: Sequence[Any], name: str) -> Iterator[str]:
    """Yields the bytes of a field of each layer, in hexadecimal; nothing where the packet was cut."""
    for layer in layers:
        found = layer.get(f"{name}_raw")
        yield str(found[0]) if isinstance(found, list) else ""
