"""Which tensors are on `basic`: all that were on the network; the channels of others keep their names."""

from __future__ import annotations

from rpcinspect.export.pcap.channels import BASIC, CPU, Channels, channels_of
from rpcinspect.run.run import RunModel
from rpcinspect.tensorpipe.control import read_descriptor, write_descriptor
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDescriptor, TpPayload, TpTensorDescriptor
from rpcinspect.tensorpipe.records import Placement, TpTensor
from tests.truth import CAPTURES, capture_of


def of_first_pipe(name: str) -> tuple[Channels, RunModel]:
    opened = RunModel.open([str(capture_of(name))])
    pipe = opened.session.pipes[0]
    messages = [record.tp for record in opened.messages if record.tp.pipe is pipe]
    return channels_of(pipe, messages), opened


def test_what_came_on_mpt_is_on_basic() -> None:
    channels, opened = of_first_pipe("transport_matrix_uv_mpt")
    with opened:
        assert (channels.for_pair, channels.names) == ({(CPU, CPU): BASIC}, (BASIC,))
        carried = [
            channels.carries(record.tp, tensor)
            for record in opened.messages
            for tensor in record.tp.tensors
            if tensor.descriptor.length
        ]
        assert carried
        assert all(carried)


def test_what_never_was_on_the_network_keeps_its_channel() -> None:
    channels, opened = of_first_pipe("transport_matrix_uv_only")
    with opened:
        assert (channels.for_pair, channels.names) == ({(CPU, CPU): "cma"}, ("cma",))
        assert not any(channels.carries(r.tp, t) for r in opened.messages for t in r.tp.tensors)


def test_a_pipe_of_which_nothing_is_known_offers_basic() -> None:
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        pipe = opened.session.pipes[0]
        pipe.channels = ()
        channels = channels_of(pipe, [])
    assert (channels.layout, channels.names) == (ControlLayout.V1_9, (BASIC,))


def test_descriptors_are_the_captured_bytes() -> None:
    channels, opened = of_first_pipe("views_alias")
    with opened:
        for record in opened.messages:
            body = channels.descriptor_body(record.tp)
            assert body is record.tp.descriptor_body
            assert read_descriptor(body) == (record.tp.descriptor, ControlLayout.V1_9)


def test_a_channel_that_1_8_names_in_its_descriptors_is_renamed() -> None:
    """Made by our encoders: no capture of 1.8 with mpt_uv is at hand."""
    tensors = tuple(
        TpTensorDescriptor(
            length=8, source_device=CPU, target_device=None, channel=name, channel_descriptor=b""
        )
        for name in ("mpt_uv", "cma")
    )
    descriptor = TpDescriptor(b"", tuple(TpPayload(n) for n in (4, 8, 5, 1)), tensors)
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        message = opened.messages[0].tp
    message.descriptor, message.layout = descriptor, ControlLayout.V1_8
    message.descriptor_body = write_descriptor(descriptor, ControlLayout.V1_8)
    message.tensors = [TpTensor(t, Placement.MISSING, None) for t in tensors]
    message.pipe.layout = ControlLayout.V1_8
    channels = channels_of(message.pipe, [message])
    assert channels.names == (BASIC, "cma")
    assert [channels.carries(message, tensor) for tensor in message.tensors] == [True, False]
    again, layout = read_descriptor(channels.descriptor_body(message))
    assert layout is ControlLayout.V1_8
    assert [tensor.channel for tensor in again.tensors] == [BASIC, "cma"]
    assert again.payloads == descriptor.payloads
