"""Requests as the PyTorch calls that made them: `rpc.rpc_sync("worker1", scale, args=(x, y))`.

In: a message, with names for its tensors and RRefs. Out: a call's function and arguments as source; what an
answer is compared with. All raise `NoSourceError`. `Variables`: what stands for what in a worker's program;
tensors of a request are those of the file, unless they were computed from answers to earlier calls
(`in8[0]`), or are one and the same.

Operators of `aten` are called as a person calls them, `torch.add(x, y, alpha=2)`: by the name under which
PyTorch's Python API has them, without arguments that are their defaults. rpc takes for an operator what
`torch.jit._builtins` lists: the functions of torch and of some modules below it, of which most have the
module's name in front. Mirrors torch/jit/_builtins.py and the types of
aten/src/ATen/native/native_functions.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field

from rpcinspect.export.reproducer.model import (
    Block,
    Gradient,
    ProgramPass,
    Reproduction,
    Send,
    Together,
    WorkerProgram,
    blocks_of,
    needing_gradient,
)
from rpcinspect.export.reproducer.programs import is_optimizers
from rpcinspect.export.reproducer.python_names import (
    Brackets,
    Item,
    NoSourceError,
    SourceItem,
    accessor,
    quoted,
)
from rpcinspect.export.reproducer.python_source import Names, SourceWriter
from rpcinspect.export.reproducer.tensors import TensorCollection, name_of
from rpcinspect.pickles import semantic
from rpcinspect.pickles.places import tensor_places
from rpcinspect.pickles.safe_names import words_of
from rpcinspect.pickles.semantic import SCRIPT_PREFIX, RRefForkData
from rpcinspect.pickles.tree import Dict, Global, Value
from rpcinspect.replayer.planning.facts import rrefs_in
from rpcinspect.replayer.planning.operators import Parameter, read_schema
from rpcinspect.rpc.command import (
    ExceptionResponse,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    ScriptCall,
    ScriptRemoteCall,
)
from rpcinspect.rpc.questions import REMOTE, result_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import origin
from rpcinspect.rpc.types import LOCAL_ID_BITS
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id


def python_name(operator: str) -> str | None:
    """`torch.add` for `aten::add.Tensor`; None for what is no name."""
    name = operator.removeprefix("aten::").partition(".")[0]
    if not name.isidentifier() or not name.isascii():
        return None
    for prefix, module in PREFIXES.items():
        if name.startswith(prefix):
            return f"torch.{module}.{name.removeprefix(prefix)}"
    for where, names in (("_C._nn", NN), ("_VF", VF)):
        if name in names:
            return f"torch.{where}.{name}"
    return f"torch.nn.functional.{name}" if name in FUNCTIONAL else f"torch.{name}"


def given(
    schema: str, values: Sequence[Value]
) -> tuple[list[tuple[Parameter, Value]], list[tuple[Parameter, Value]]]:
    """(positional, keywords) of a call, defaults left out."""
    read = read_schema(schema)
    pairs = list(zip((read and read.parameters) or (), values, strict=False))
    if len(pairs) < len(values):
        return [(Parameter("", ""), value) for value in values], []
    positional = [pair for pair in pairs if not pair[0].keyword_only]
    keywords = [pair for pair in pairs if pair[0].keyword_only and not _is_default(*pair)]
    while positional and _is_default(*positional[-1]):
        positional.pop()
    return positional, keywords


def enumerated(parameter: Parameter, value: Value) -> str | None:
    """Returns `torch.NAME` for an integer that the schema declares as dtype, layout or memory format; else
    None."""
    names = ENUMERATIONS.get(parameter.kind.rstrip("?"))
    if names is None or type(value) is not int or not 0 <= value < len(names):
        return None
    return f"torch.{names[value]}"


def _is_default(parameter: Parameter, value: Value) -> bool:
    plain = semantic.untag(value)
    if plain is None or type(plain) is bool:
        return parameter.default == str(plain)
    if type(plain) in (int, float):
        try:
            return parameter.default is not None and float(parameter.default) == plain
        except ValueError:
            return False
    return plain == [] and parameter.default == "[]"


PREFIXES = {"fft_": "fft", "linalg_": "linalg", "special_": "special"}
"""Operators whose names begin with that of their module."""

FUNCTIONAL = words_of(
    """
    avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear one_hot scaled_dot_product_attention softplus
    softshrink
    """
)
"""Operators of torch._C._nn that torch.nn.functional has under the same name."""

NN = words_of(
    """
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d binary_cross_entropy
    col2im conv_depthwise3d cross_entropy_loss elu flatten_dense_tensors fractional_max_pool2d
    fractional_max_pool3d gelu_ glu hardsigmoid hardsigmoid_ hardswish hardswish_ hardtanh huber_loss im2col
    l1_loss leaky_relu log_sigmoid max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d
    mish mish_ mkldnn_linear mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d nll_loss_nd
    pad pad_sequence reflection_pad1d reflection_pad2d reflection_pad3d relu6 relu6_ replication_pad1d
    replication_pad2d replication_pad3d rrelu_with_noise rrelu_with_noise_ silu silu_ slow_conv3d
    slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss
    soft_margin_loss thnn_conv2d unflatten_dense_tensors upsample_bicubic2d upsample_bilinear2d
    upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    """
)
"""Operators that only torch._C._nn has as what rpc takes for an operator."""

VF = words_of("cdist norm stft tensordot unique_consecutive")
"""Operators that torch has as Python functions under the same name, which rpc takes for no operators."""

DTYPES = [
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
    "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16",
]  # fmt: skip
ENUMERATIONS = {
    "ScalarType": DTYPES,
    "Layout": ["strided", "sparse_coo", "sparse_csr"],
    "MemoryFormat": ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"],
}
"""Python names in the order of c10's enumerations."""


class Failure(Struct, frozen=True):
    """Type of an expected error, and its text if that is the same in every run."""

    type: str
    text: str | None


def call_items(record: RpcRecord, writer: SourceWriter, names: Names) -> Sequence[SourceItem]:
    """The function of a call, `args=…` and `kwargs=…`: what stands in the brackets behind the callee."""
    command = record.rpc.command
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        return _script(command, writer, names)
    if isinstance(command, (PythonCall, PythonRemoteCall)):
        return _python(record, writer, names)
    raise NoSourceError("it is not a call of a function")


def answer_source(record: RpcRecord, writer: SourceWriter, names: Names) -> SourceItem:
    """The value of an answer."""
    return writer.write(result_of(record), names)


def failure_of(record: RpcRecord, writer: SourceWriter) -> Failure:
    """The error in an answer."""
    command = record.rpc.command
    if isinstance(command, ExceptionResponse):
        text = command.text.decode("utf-8", "backslashreplace")
        return Failure("RuntimeError", _stable(origin(text).cause))
    pickle = record.facts.pickle
    error = semantic.remote_exception(pickle.root) if pickle is not None else None
    if error is None or error.exception_type is None:
        raise NoSourceError("an error whose type its pickle does not name")
    text = error.message
    return Failure(writer.name(error.exception_type), _stable(origin(text).cause))


def _python(record: RpcRecord, writer: SourceWriter, names: Names) -> list[SourceItem]:
    pickle = record.facts.pickle
    udf = semantic.python_udf(pickle.root) if pickle is not None else None
    if udf is None or type(udf.args) not in (tuple, list):
        raise NoSourceError("it is not a call of a function")
    items: list[SourceItem] = [writer.write(udf.func, names)]
    if udf.args:
        items.append(Item("args=", writer.write(tuple(udf.args), names)))
    if type(udf.kwargs) is Dict and udf.kwargs.pairs:
        items.append(Item("kwargs=", writer.write(udf.kwargs, names)))
    return items


def _script(command: ScriptCall | ScriptRemoteCall, writer: SourceWriter, names: Names) -> list[SourceItem]:
    if command.schema is None:
        module, _, name = command.qualified_name.removeprefix(SCRIPT_PREFIX).rpartition(".")
        items: list[SourceItem] = [writer.name(Global(module, name))]
        return items + _arguments([writer.write(value, names) for value in command.args])
    function = python_name(command.function)
    if function is None:
        raise NoSourceError("an operator whose name is not an identifier")
    positional, keywords = given(command.schema, command.args)

    def source(pair: tuple[Parameter, Value]) -> SourceItem:
        return enumerated(*pair) or writer.write(pair[1], names)

    items = [function, *_arguments([source(pair) for pair in positional])]
    if keywords:
        pairs = tuple(Item(f"{quoted(pair[0].name)}: ", source(pair)) for pair in keywords)
        items.append(Item("kwargs=", Brackets("{", pairs, "}")))
    return items


def _arguments(sources: Sequence[SourceItem]) -> list[SourceItem]:
    return [Item("args=", Brackets("(", list(sources), ")", single_comma=True))] if sources else []


def _stable(cause: str) -> str | None:
    """What an error says, unless another run says something else: addresses, paths, ids."""
    if not cause or len(cause) > MAX_CAUSE or UNSTABLE.search(cause) or not cause.isprintable():
        return None
    return cause


MAX_CAUSE = 300
UNSTABLE = re.compile(r"0x[0-9a-fA-F]{4}|[/\\]|:\d+\b|\bid[ =:]")


class Variables(Struct, eq=False):
    """What stands for what in a worker's program: variables of calls, tensors of the file, references."""

    made: Reproduction
    program: WorkerProgram
    tensors: TensorCollection
    uses: set[str] = field(default_factory=set)
    """Helpers of the script that expressions need."""

    def shared(self, part: Together) -> list[list[int]]:
        """Returns for each lane the calls with RRefs that other lanes use."""
        key = (self.program.job, self.program.worker)
        shared = []
        for lane in part.lanes:
            own = {event.call.index for event in lane.events if isinstance(event, Send)}
            used: set[int] = set()
            for block in blocks_of(self.program):
                for event in block.events if block is not lane else ():
                    call = event.trigger if isinstance(event, ProgramPass) else event.call
                    for rref in rrefs_in(call.request) if call is not None else ():
                        used.add(self.made.handles[key[0], key[1], rref].request)
            shared.append(sorted(own & used))
        return shared

    def variable(self, index: int) -> str:
        """What holds the outcome of a call."""
        kind = self.made.calls[index].kind
        return f"rref{index}" if kind in REMOTE else f"out{index}"

    def leaves(self, call: Exchange) -> list[str]:
        """The tensors of a request that get a gradient, each once."""
        record = call.request
        same = same_tensors(record)
        return list(dict.fromkeys(name_of(call.index, same.get(i, i)) for i in needing_gradient(record)))

    def arguments(self, call: Exchange) -> dict[int, str]:
        """Tensor → what stands for it, where that is not the tensor of the file."""
        same = same_tensors(call.request)
        found = {i: f't["{name_of(call.index, j)}"]' for i, j in same.items()}
        if call.index in self.program.links:
            leaves = self.leaves(call)
            for i in needing_gradient(call.request):
                found[i] = f"in{call.index}[{leaves.index(name_of(call.index, same.get(i, i)))}]"
        return found

    def outputs(self, gradient: Gradient) -> list[str]:
        """Where in an answer the tensors of a gradient are."""
        call = self.made.calls[gradient.request]
        assert call.response is not None
        places = tensor_places(result_of(call.response))
        return [f"out{call.index}{accessor(places[i])}" for i in gradient.tensors]

    def given(self, gradient: Gradient) -> list[str]:
        """The recorded tensors of a gradient."""
        command = gradient.call.request.rpc.command
        assert isinstance(command, PropagateGradientsReq)
        self.tensors.add(gradient.call.index, gradient.call.request)
        return [f't["{name_of(gradient.call.index, i)}"]' for i in command.grads]

    def names(
        self,
        message: int,
        tensors: dict[int, str],
        *,
        ours: bool = False,
        integers: dict[int, str] | None = None,
    ) -> Names:
        """Returns the names for one message; `ours`: a request, with the RRefs as its sender holds them."""

        def tensor(index: int) -> str:
            return tensors.get(index, f't["{name_of(message, index)}"]')

        def rref(fork: RRefForkData) -> str:
            if ours:
                return self.handle(fork.rref_id)
            self.uses.add("rref_of")
            owner = self._owner(fork)
            return f"RRefOf({'None' if owner is None else quoted(owner)})"

        return Names(tensor, rref, integers or {})

    def _owner(self, fork: RRefForkData) -> str | None:
        for worker in self.made.workers[self.program.job]:
            if worker.id == fork.owner_id:
                return worker.name
        return None

    def handle(self, rref: Id) -> str:
        handle = self.made.handles[self.program.job, self.program.worker, rref]
        if handle.how == "owned":
            return f"own{handle.request}"
        if handle.how == "made":
            return f"rref{handle.request}"
        return f"out{handle.request}{accessor(handle.place)}"


def same_tensors(record: RpcRecord) -> dict[int, int]:
    """Arguments of an operator that are one tensor: later → first. Python's pickles write a tensor once."""
    if not isinstance(record.rpc.command, (ScriptCall, ScriptRemoteCall)):
        return {}
    found: dict[int, int] = {}
    for i, meta in enumerate(record.rpc.tensors):
        if meta.part_of is None and meta.storage is not None:
            first = record.rpc.tensors.index(meta)
            if first != i:
                found[i] = first
    return found


def integers_of(call: Exchange, block: Block) -> dict[int, str]:
    """Returns the id of a call's context, where an integer surely is that: a small number may be another."""
    context = block.context
    if context is None or (context >> LOCAL_ID_BITS == 0 and not is_optimizers(call)):
        return {}
    return {context: "context_id"}
