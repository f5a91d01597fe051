"""The operations of torch, grouped by rule, under torch's names for them."""

# ruff: noqa: SIM905 - long lists of names read best as prose

from __future__ import annotations

LINEAR = frozenset(
    """
    __abs__ __get__ __getitem__ __iter__ __len__ __neg__ __pos__ __reversed__ __setitem__ abs
    absolute adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d adjoint alias alpha_dropout amax amin aminmax as_strided
    atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d bfloat16 block_diag
    broadcast_tensors broadcast_to cat channel_shuffle chunk clone column_stack complex concat
    concatenate conj conj_physical constant_pad_nd contiguous copy cpu cuda cummax cummin cumsum
    detach diag diag_embed diagflat diagonal diagonal_scatter diff double dropout dropout1d
    dropout2d dropout3d dsplit dstack embedding embedding_bag expand expand_as feature_alpha_dropout
    feature_dropout fft fft2 fftn fftshift fill fill_diagonal flatten flip fliplr flipud float fmax
    fmin fold gather grid_sample half hfft hsplit hstack ifft ifft2 ifftn ifftshift ihfft imag
    index_add index_copy index_fill index_put index_select interpolate irfft irfft2 irfftn istft
    kthvalue leaky_relu masked_fill masked_scatter masked_select max max_pool1d
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices
    maximum mean median min minimum mode moveaxis movedim msort nan_to_num nanmean nansum narrow
    narrow_copy neg negative pad permute pin_memory pixel_shuffle pixel_unshuffle positive prelu put
    quantile ravel real relu repeat repeat_interleave requires_grad reshape reshape_as resolve_conj
    resolve_neg rfft rfft2 rfftn roll rot90 row_stack rrelu scatter scatter_add scatter_reduce
    select select_scatter slice_scatter sort split split_with_sizes squeeze stack stft sum
    sum_to_size swapaxes swapdims t t_copy take take_along_dim tensor_split threshold tile to topk
    trace transpose tril triu type type_as unbind unflatten unfold unsafe_chunk unsafe_split
    unsqueeze upsample upsample_bilinear upsample_nearest view view_as view_as_complex view_as_real
    view_copy vsplit vstack where zero
    """.split()
)
"""Linear in the tensors that depend on the input, or a selection from them: the gradient is the rule."""

SUMS = frozenset(("__add__", "__radd__", "__sub__", "__rsub__", "add", "sub", "subtract", "rsub"))
"""Linear too, with a constant term as a bias."""

PRODUCTS = frozenset(
    """
    __matmul__ __mul__ __rmatmul__ __rmul__ _grouped_mm bmm cross dot ger grouped_mm inner kron
    matmul mm mul multiply mv outer tensordot vdot vecdot
    """.split()
)
"""Linear in each of two factors."""

CONTRACTIONS = frozenset(("einsum", "multi_dot", "chain_matmul"))
"""Linear in each of several factors."""

QUOTIENTS = frozenset(("__div__", "__truediv__", "__rdiv__", "__rtruediv__", "div", "divide", "true_divide"))

SIZES = frozenset(
    ("rsqrt", "sqrt", "reciprocal", "std", "var", "norm", "vector_norm", "matrix_norm", "frobenius_norm")
)
"""Measures of size, which serve as divisors and count as constants."""

SIZES_AND_MEANS = frozenset(("var_mean", "std_mean"))

ACTIVATIONS = frozenset(
    """
    arctan asinh atan celu elu erf expm1 gelu hardshrink hardswish log1p mish relu6 selu silu sinh
    softshrink softsign tanh tanhshrink
    """.split()
)
"""Elementwise functions that are 0 at 0."""

OFFSET_ACTIVATIONS = frozenset(("softplus",))
"""Elementwise functions that are not 0 at 0."""

GATES = frozenset(("sigmoid", "hardsigmoid", "expit"))
"""Elementwise functions with values in [0, 1]."""

CLAMPS = frozenset(("clamp", "clip", "clamp_min", "clamp_max", "hardtanh"))

POWERS = frozenset(("pow", "__pow__", "square", "float_power"))

CONVOLUTIONS = frozenset(
    ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
)

ADDED_PRODUCTS = frozenset(("addmm", "baddbmm", "addbmm", "addmv", "addr", "addcmul"))
"""A term and a product."""
