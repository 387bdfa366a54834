"""Operators of `aten` as a person calls them: `torch.add(x, y, alpha=2)`.

In: the schema of an operator and the full list of its arguments, as SCRIPT_CALL carries them. Out: the name
under which PyTorch's Python API has it, positional arguments and keywords; arguments that are their defaults
are left out. rpc takes for an operator what `torch.jit._builtins` lists: the functions of torch and of some
modules below it, of which most have the module's name in front.

Mirrors torch/jit/_builtins.py and the types of aten/src/ATen/native/native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.replay.planning.operators import Parameter, read_schema
from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.tree import Value


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
    """What an integer stands for where the schema says that it is a dtype, a layout or a memory format."""
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


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PREFIXES = {"fft_": "fft", "linalg_": "linalg", "special_": "special"}
"""Operators whose names begin with that of their module."""

FUNCTIONAL = _names(
    """
    avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear one_hot scaled_dot_product_attention softplus
    softshrink
    """
)
"""Operators of torch._C._nn that torch.nn.functional has under the same name."""

NN = _names(
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

VF = _names("cdist norm stft tensordot unique_consecutive")
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
