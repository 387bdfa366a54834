"""`rpcinspect export`: a run as a file, or a folder, that other programs open; one module per format."""

from typing import ClassVar

from rpcinspect.cli.program import Group


class ExportCommand(Group):
    """Write a run as HTML, timeline, spans, tables, log, tensors, graph or for Wireshark."""

    PACKAGE = "rpcinspect.cli.export"
    GROUPS: ClassVar = {
        "Formats": ("html", "perfetto", "otlp", "parquet", "rpclog", "safetensors", "dot"),
        "For Wireshark": ("wireshark", "pcapng"),
    }
