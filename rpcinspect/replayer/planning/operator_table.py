"""The operators of aten that may run in a live worker without `--allow`, and why others may not: data.

Written by bench/operators.py, which says how they were chosen; see there before changing anything here.
"""

from __future__ import annotations

PASSES = {
    "arithmetic": """
        abs absolute acos acosh add.Scalar add.Tensor addcdiv addcmul angle arccos arccosh arcsin arcsinh
        arctan arctan2 arctanh asin asinh atan atan2 atanh ceil clamp clamp.Tensor clamp_max clamp_max.Tensor
        clamp_min clamp_min.Tensor clip clip.Tensor complex conj conj_physical copysign.Scalar copysign.Tensor
        cos cosh cumprod cumsum deg2rad diff digamma div.Scalar div.Tensor divide.Scalar divide.Tensor erf
        erfc erfinv exp exp2 expm1 fix float_power.Scalar float_power.Tensor_Scalar float_power.Tensor_Tensor
        floor floor_divide floor_divide.Scalar fmax fmin fmod.Scalar fmod.Tensor frac gcd heaviside hypot imag
        ldexp.Tensor lerp.Scalar lerp.Tensor lgamma log log10 log1p log2 logaddexp logaddexp2 logcumsumexp
        logit maximum minimum mul.Scalar mul.Tensor multiply.Scalar multiply.Tensor nan_to_num neg negative
        polar positive pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor rad2deg real reciprocal remainder.Scalar
        remainder.Scalar_Tensor remainder.Tensor resolve_conj resolve_neg round round.decimals rsqrt
        rsub.Scalar rsub.Tensor sgn sign signbit sin sinc sinh sqrt square sub.Scalar sub.Tensor
        subtract.Scalar subtract.Tensor tan tanh true_divide.Scalar true_divide.Tensor trunc
        xlogy.Scalar_Other xlogy.Scalar_Self xlogy.Tensor
    """,
    "comparison and choice": """
        allclose argsort argsort.stable argwhere bitwise_and.Scalar bitwise_and.Scalar_Tensor
        bitwise_and.Tensor bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor
        bitwise_left_shift.Tensor_Scalar bitwise_not bitwise_or.Scalar bitwise_or.Scalar_Tensor
        bitwise_or.Tensor bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor
        bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar bitwise_xor.Scalar_Tensor bitwise_xor.Tensor
        bucketize.Scalar bucketize.Tensor eq.Scalar eq.Tensor equal ge.Scalar ge.Tensor greater.Scalar
        greater.Tensor greater_equal.Scalar greater_equal.Tensor gt.Scalar gt.Tensor is_complex
        is_floating_point is_nonzero is_same_size is_signed isclose isfinite isin.Scalar_Tensor
        isin.Tensor_Scalar isin.Tensor_Tensor isinf isnan isneginf isposinf isreal le.Scalar le.Tensor
        less.Scalar less.Tensor less_equal.Scalar less_equal.Tensor logical_and logical_not logical_or
        logical_xor lt.Scalar lt.Tensor masked_fill.Scalar masked_fill.Tensor masked_select msort ne.Scalar
        ne.Tensor nonzero not_equal.Scalar not_equal.Tensor where where.Scalar where.ScalarOther
        where.ScalarSelf where.self
    """,
    "view, shape and copy": """
        adjoint alias atleast_1d atleast_1d.Sequence atleast_2d atleast_2d.Sequence atleast_3d
        atleast_3d.Sequence block_diag broadcast_tensors broadcast_to cartesian_prod cat channel_shuffle chunk
        clone column_stack combinations concat concatenate constant_pad_nd detach diag diag_embed diagflat
        diagonal dim dsplit.array dsplit.int dstack expand flatten.using_ints flip fliplr flipud hsplit.array
        hsplit.int hstack meshgrid meshgrid.indexing moveaxis.int moveaxis.intlist movedim.int movedim.intlist
        narrow narrow.Tensor narrow_copy numel pad pad_sequence permute pixel_shuffle pixel_unshuffle ravel
        repeat reshape roll rot90 row_stack select.int size.int split.Tensor split.sizes split_with_sizes
        squeeze squeeze.dim squeeze.dims stack stride.int swapaxes swapdims t tensor_split.indices
        tensor_split.sections tensor_split.tensor_indices_or_sections tile to.device to.dtype to.dtype_layout
        to.other transpose.int tril triu unbind.int unflatten.int unfold unsqueeze view view_as_complex
        view_as_real vsplit.array vsplit.int vstack
    """,
    "reduction": """
        all all.dim all.dims amax amin any any.dim any.dims argmax argmin bincount count_nonzero
        count_nonzero.dim_IntList dist logsumexp max max.other mean mean.dim median min min.other nanmean
        nanmedian nansum norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype prod
        prod.dim_int std std.correction std.dim sum sum.dim_IntList trace trapezoid.dx trapezoid.x trapz.dx
        trapz.x var var.correction var.dim
    """,
    "product of matrices": """
        addbmm addmm addmm.dtype addmv addr baddbmm baddbmm.dtype bilinear bmm bmm.dtype cdist chain_matmul
        cosine_similarity cross dot einsum ger inner kron linalg_cross linalg_matmul linalg_multi_dot
        linalg_vecdot linalg_vector_norm linear matmul matrix_power mm mm.dtype mv outer pairwise_distance
        tensordot vdot
    """,
    "activation": """
        alpha_dropout celu dropout elu feature_alpha_dropout feature_dropout gelu glu hardshrink hardsigmoid
        hardswish hardtanh leaky_relu log_sigmoid log_softmax.int mish prelu relu relu6 rrelu selu sigmoid
        silu softmax.int softplus softshrink threshold
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
        embedding gather index.Tensor index_add index_copy index_fill.int_Scalar index_fill.int_Tensor
        index_select one_hot scatter.reduce scatter.src scatter.value scatter.value_reduce scatter_add take
        take_along_dim
    """,
    "creation, of the size of its arguments": """
        arange arange.start arange.start_step bernoulli bernoulli.Tensor bernoulli.p eye eye.m full full_like
        linspace linspace.Scalar_Tensor linspace.Tensor_Scalar linspace.Tensor_Tensor logspace
        logspace.Scalar_Tensor logspace.Tensor_Scalar logspace.Tensor_Tensor multinomial new_full new_ones
        new_zeros normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal.float_float ones
        ones_like poisson rand rand.generator rand_like rand_like.generator randint randint.generator
        randint.low randint.low_generator randint_like randint_like.Tensor randint_like.Tensor_generator
        randint_like.generator randint_like.low_dtype randint_like.low_generator_dtype randn randn.generator
        randn_like randn_like.generator randperm randperm.generator scalar_tensor zeros zeros_like
    """,
    "quantization": """
        dequantize.self dequantize.tensors int_repr quantize_per_channel quantize_per_tensor
        quantize_per_tensor.tensor_qparams quantize_per_tensor.tensors
    """,
    "distributed autograd, read": """
        get_gradients
    """,
}
"""Group → exact names with overloads, without `aten::`."""

REFUSED = {
    "it trusts the sizes and strides that it is given": """
        as_strided as_strided_ as_strided_copy as_strided_scatter empty_strided new_empty_strided resize
        resize_ resize_as resize_as_ resize_as_sparse_ set_ slice_inverse sparse_resize_
        sparse_resize_and_clear_ unsafe_chunk unsafe_split unsafe_split_with_sizes
    """,
    "it makes a sparse tensor of unchecked indices": """
        sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
        sparse_csr_tensor
    """,
    "it returns what was in memory before": """
        empty empty_like empty_permuted empty_quantized new_empty
    """,
    "it reads or writes a file of the caller's choice": """
        from_file load save
    """,
    "it changes what the whole process does": """
        backward dist_backward grad manual_seed seed set_grad_enabled warn
    """,
    "it was seen to end its process with a signal": """
        div.Scalar_mode div.Tensor_mode divide.Scalar_mode divide.Tensor_mode lcm repeat_interleave view.dtype
    """,
    "it multiplies strides, paddings and sizes that the caller chooses, and some ended the process": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d conv1d
        conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d
    """,
    "it takes weights that were packed before": """
        fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation quantized_gru quantized_gru_cell quantized_lstm
        quantized_lstm_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell
    """,
}
"""Reason → names, with an overload where only that is meant, without `aten::`."""
