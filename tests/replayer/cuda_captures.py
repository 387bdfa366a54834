"""A captured CPU job as if its tensors had been on a GPU, written by our encoders: table, maps and
descriptors."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from rpcinspect.export.pcap.writer import write_session
from rpcinspect.rpc.decode import reencode
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import RunModel
from rpcinspect.tensorpipe.control import write_descriptor
from rpcinspect.tensorpipe.control_types import TpDescriptor, TpDevice, TpPayload


def on_cuda(path: Path, to: Path, own: int = 0, other: int | None = None) -> Path:
    """The capture with every tensor on `cuda:<own>`; requests map it to `cuda:<other>`."""
    other = own if other is None else other
    with RunModel.open([str(path)]) as opened:
        records = opened.messages
        for record in records:
            if not record.facts.control and not record.problems:
                _move(record, own, other)
        with to.open("wb") as output:
            write_session(output, opened.session, records, opened.read)
    return to


def _move(record: RpcRecord, own: int, other: int) -> None:
    here, there = (own, other) if record.tp.from_client else (other, own)
    rpc, tp = record.rpc, record.tp
    envelopes = tuple(
        replace(envelope, device_map={f"cuda:{own}": f"cuda:{other}"})
        if isinstance(envelope, RpcWithAutograd) and tp.from_client
        else envelope
        for envelope in rpc.envelopes
    )
    tensors = tuple(replace(meta, device=f"cuda:{here}") for meta in rpc.tensors)
    record.rpc = replace(rpc, envelopes=envelopes, tensors=tensors)
    tp.payloads = reencode(record.rpc)
    for tensor in tp.tensors:
        tensor.descriptor = replace(
            tensor.descriptor, source_device=TpDevice("cuda", here), target_device=TpDevice("cuda", there)
        )
    whole = tp.descriptor
    tp.descriptor = TpDescriptor(
        whole.metadata,
        tuple(
            replace(one, length=len(data)) if one.length is not None else TpPayload(None)
            for one, data in zip(whole.payloads, tp.payloads, strict=True)
        ),
        tuple(tensor.descriptor for tensor in tp.tensors),
    )
    tp.descriptor_body = write_descriptor(tp.descriptor, tp.layout)
