"""`make operators`: the table of the operators of aten that may run without `--allow`.

    python bench/operators.py           say what the installed torch would change in the table
    python bench/operators.py --write   and change it

In: the groups below, by name without overload, and the schema registry of the installed torch.
Out: rpcinspect/replayer/planning/operator_table.py: for each group the exact names, of every overload that
keeps to `is_sound`; and the names of `REFUSED` with their reasons. Names that are in the table and that this
torch does not have stay, since another release has them.

A new torch brings new overloads: write the table, try what is new with bench/operator_crashes.py, and commit
both or refuse it here. tests/replayer/planning/test_operator_table.py holds table, rules and registry
together.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

import torch

from rpcinspect.replayer.planning.operator_table import PASSES
from rpcinspect.replayer.planning.operators import ATEN, is_known, read_schema

TABLE = Path(__file__).resolve().parent.parent / "rpcinspect/replayer/planning/operator_table.py"

GROUPS = {
    "arithmetic": """
        abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh
        asin asinh atan atan2 atanh ceil clamp clamp_max clamp_min clip complex conj conj_physical copysign
        cos cosh cumprod cumsum deg2rad diff digamma div divide erf erfc erfinv exp exp2 expm1 fix float_power
        floor floor_divide fmax fmin fmod frac gcd heaviside hypot imag ldexp lerp lgamma log log10 log1p
        log2 logaddexp logaddexp2 logcumsumexp logit maximum minimum mul multiply nan_to_num neg negative
        polar positive pow rad2deg real reciprocal remainder resolve_conj resolve_neg round rsqrt rsub sgn
        sign signbit sin sinc sinh sqrt square sub subtract tan tanh true_divide trunc xlogy
    """,
    "comparison and choice": """
        allclose argsort argwhere bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
        bitwise_xor bucketize eq equal ge greater greater_equal gt is_complex is_floating_point is_nonzero
        is_same_size is_signed isclose isfinite isin isinf isnan isneginf isposinf isreal le less less_equal
        logical_and logical_not logical_or logical_xor lt masked_fill masked_select msort ne nonzero not_equal
        where
    """,
    "view, shape and copy": """
        adjoint alias atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors broadcast_to
        cartesian_prod cat channel_shuffle chunk clone column_stack combinations concat concatenate
        constant_pad_nd detach diag diag_embed diagflat diagonal dim dsplit dstack expand flatten flip fliplr
        flipud hsplit hstack meshgrid moveaxis movedim narrow narrow_copy numel pad pad_sequence permute
        pixel_shuffle pixel_unshuffle ravel repeat reshape roll rot90 row_stack select size split
        split_with_sizes squeeze stack stride swapaxes swapdims t tensor_split tile to transpose tril triu
        unbind unflatten unfold unsqueeze view view_as_complex view_as_real vsplit vstack
    """,
    "reduction": """
        all amax amin any argmax argmin bincount count_nonzero dist logsumexp max mean median min nanmean
        nanmedian nansum norm prod std sum trace trapezoid trapz var
    """,
    "product of matrices": """
        addbmm addmm addmv addr baddbmm bilinear bmm cdist chain_matmul cosine_similarity cross dot einsum ger
        inner kron linalg_cross linalg_matmul linalg_multi_dot linalg_vecdot linalg_vector_norm linear matmul
        matrix_power mm mv outer pairwise_distance tensordot vdot
    """,
    "activation": """
        alpha_dropout celu dropout elu feature_alpha_dropout feature_dropout gelu glu hardshrink hardsigmoid
        hardswish hardtanh leaky_relu log_sigmoid log_softmax mish prelu relu relu6 rrelu selu sigmoid silu
        softmax softplus softshrink threshold
    """,
    "loss": """
        binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy_loss
        hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss nll_loss nll_loss2d
        nll_loss_nd poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
    """,
    "norm": """
        batch_norm instance_norm layer_norm rms_norm
    """,
    "choice by indices that it checks": """
        embedding gather index index_add index_copy index_fill index_select one_hot scatter scatter_add take
        take_along_dim
    """,
    "creation, of the size of its arguments": """
        arange bernoulli eye full full_like linspace logspace multinomial new_full new_ones new_zeros normal
        ones ones_like poisson rand rand_like randint randint_like randn randn_like randperm scalar_tensor
        zeros zeros_like
    """,
    "quantization": """
        dequantize int_repr quantize_per_channel quantize_per_tensor
    """,
    "distributed autograd, read": """
        get_gradients
    """,
}

REFUSED = {
    "it trusts the sizes and strides that it is given": """
        as_strided as_strided_ as_strided_copy as_strided_scatter set_ resize resize_ resize_as resize_as_
        resize_as_sparse_ unsafe_chunk unsafe_split unsafe_split_with_sizes empty_strided new_empty_strided
        slice_inverse sparse_resize_ sparse_resize_and_clear_
    """,
    "it makes a sparse tensor of unchecked indices": """
        sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor
        sparse_compressed_tensor
    """,
    "it returns what was in memory before": """
        empty empty_like empty_permuted empty_quantized new_empty
    """,
    "it reads or writes a file of the caller's choice": "from_file load save",
    "it changes what the whole process does": """
        backward dist_backward grad manual_seed seed set_grad_enabled warn
    """,
    "it was seen to end its process with a signal": """
        div.Tensor_mode div.Scalar_mode divide.Tensor_mode divide.Scalar_mode lcm repeat_interleave
        view.dtype
    """,
    "it multiplies strides, paddings and sizes that the caller chooses, and some ended the process": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d conv1d
        conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d
    """,
    "it takes weights that were packed before": """
        fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation quantized_gru quantized_gru_cell quantized_lstm
        quantized_lstm_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell
    """,
}
"""Reasons that are told, by name with or without overload. What has none needs `--allow` all the same."""

GET_GRADIENTS = "aten::get_gradients"
"""An operator of the interpreter whose one argument is checked: it looks for a context of that id."""
ENUMS = frozenset({"dtype", "layout", "memory_format"})


def is_sound(schema: Any) -> bool:
    """Whether an overload of a name in the groups may run."""
    read = read_schema(str(schema))
    arguments = schema.arguments
    return (
        read is not None
        and read.parameters is not None
        and all(is_known(one.kind) for one in read.parameters)
        # The interpreter's own operators trust the compiler, which checked types before.
        and (torch._C._dispatch_has_kernel(read.name) or read.name == GET_GRADIENTS)
        and not any(one.is_out or (one.alias_info and one.alias_info.is_write) for one in arguments)
        # An enum of C++ that the schema calls a number.
        and not any(
            one.name in ENUMS and parameter.kind.startswith("int")
            for one, parameter in zip(arguments, read.parameters, strict=True)
        )
        # RPC sends one value.
        and len(schema.returns) == 1
    )


def generate(known: dict[str, str]) -> dict[str, str]:
    """The groups with exact names, those of `known` that this torch lacks among them."""
    found: dict[str, set[str]] = {group: set() for group in GROUPS}
    groups = {name: group for group, names in GROUPS.items() for name in names.split()}
    refused = {name for names in REFUSED.values() for name in names.split()}
    registry = {name_of(schema): schema for schema in torch._C._jit_get_all_schemas()}
    for name, schema in registry.items():
        base = name.partition(".")[0]
        if schema.name.startswith(ATEN) and base in groups and name not in refused and is_sound(schema):
            found[groups[base]].add(name)
    for names in known.values():
        for name in names.split():
            if name not in registry and name.partition(".")[0] in groups:
                found[groups[name.partition(".")[0]]].add(name)
    return {group: " ".join(sorted(names)) for group, names in found.items()}


def name_of(schema: Any) -> str:
    """`add.Tensor`"""
    base = schema.name.removeprefix(ATEN)
    return f"{base}.{schema.overload_name}" if schema.overload_name else base


def source(passes: dict[str, str]) -> str:
    """The module."""
    return HEAD + _table("PASSES", passes, PASSES_TEXT) + "\n" + _table("REFUSED", REFUSED, REFUSED_TEXT)


def _table(name: str, rows: dict[str, str], text: str) -> str:
    lines = [f"{name} = {{"]
    for key, names in rows.items():
        body = textwrap.fill(
            " ".join(sorted(names.split())),
            WIDTH,
            initial_indent=" " * 8,
            subsequent_indent=" " * 8,
            break_on_hyphens=False,
        )
        lines.append(f'    "{key}": """\n{body}\n    """,')
    return "\n".join([*lines, "}", f'"""{text}"""', ""])


HEAD = '''\
"""The operators of aten that may run in a live worker without `--allow`, and why others may not: data.

Written by bench/operators.py, which says how they were chosen; see there before changing anything here.
"""

from __future__ import annotations

'''
PASSES_TEXT = "Group → exact names with overloads, without `aten::`."
REFUSED_TEXT = "Reason → names, with an overload where only that is meant, without `aten::`."
WIDTH = 110


def changes() -> list[str]:
    """What the installed torch would change in the table: `+ name  (group)`; and the table as a whole, where
    only its text would be another."""
    passes = generate(PASSES)
    found = []
    for group in sorted({*PASSES, *passes}):
        before, after = {*PASSES.get(group, "").split()}, {*passes.get(group, "").split()}
        found += [f"+ {name}  ({group})" for name in sorted(after - before)]
        found += [f"- {name}  ({group})" for name in sorted(before - after)]
    if not found and TABLE.read_text(encoding="utf-8") != source(passes):
        found.append("the text of the table")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="change the table")
    options = parser.parse_args()
    found = changes()
    print(*found or ["nothing changes"], sep="\n")
    if options.write:
        TABLE.write_text(source(generate(PASSES)), encoding="utf-8")
    return 1 if found and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
