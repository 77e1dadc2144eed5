"""Which ATen operators may compute in half precision, by overload packet name.

The default is float32: an operator that is in none of the sets below, torch's or a library's,
gets its operands cast up and keeps its result in float32. So what sums many numbers, divides,
exponentiates, normalises, orders or loops is safe without being named.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Node

__all__ = ["BOUNDED", "ELEMENTWISE", "MOVEMENT", "PRODUCTS", "REDUCTIONS", "SENSITIVE", "name_of"]

# Sums of products. Runtimes accumulate them in float32 or in blocks; autocast runs them in half.
PRODUCTS = frozenset(
    (
        *(
            "linear",
            "matmul",
            "mm",
            "bmm",
            "mv",
            "addmm",
            "addbmm",
            "baddbmm",
            "einsum",
            "bilinear",
        ),
        *("conv1d", "conv2d", "conv3d", "convolution", "_convolution"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    )
)

# One rounding per element, bounded by its operands or by their product.
ELEMENTWISE = frozenset(
    (
        *("add", "sub", "rsub", "mul", "div", "neg", "abs", "minimum", "maximum", "where"),
        *("clamp", "clamp_min", "clamp_max", "masked_fill", "relu", "relu6", "leaky_relu", "prelu"),
        *("elu", "selu", "celu", "gelu", "silu", "sigmoid", "tanh", "hardtanh", "hardswish"),
        *("hardsigmoid", "threshold", "glu"),
    )
)

# They move or pick values and round nothing.
MOVEMENT = frozenset(
    (
        *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "permute", "transpose", "t"),
        *("numpy_T", "movedim", "expand", "expand_as", "broadcast_to", "squeeze", "unsqueeze"),
        *("view_as", "reshape_as", "contiguous", "clone", "alias", "detach", "lift_fresh_copy"),
        *("dropout", "feature_dropout", "cat", "concat", "stack", "hstack", "vstack", "split"),
        *("split_with_sizes", "chunk", "unbind", "tensor_split", "select", "slice"),
        *("narrow", "index_select", "gather", "take_along_dim", "index", "embedding", "repeat"),
        *("repeat_interleave", "tile", "flip", "roll", "rot90", "unfold", "im2col", "diagonal"),
        *("tril", "triu", "pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d"),
        *("reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d"),
        *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "max_pool1d", "max_pool2d"),
        *("max_pool3d", "max_pool2d_with_indices", "adaptive_max_pool2d", "amax", "amin"),
        *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    )
)

# What a last digit of their operand does is far more than a last digit of their result: a phase,
# an exponent, an index, a logarithm near zero. What leads up to them stays float32 as well, back
# to the last product. So a mask that is added to attention scores is added in float32, with the
# sentinel that the user wrote.
SENSITIVE = frozenset(
    (
        *("sin", "cos", "tan", "sinh", "cosh", "exp", "exp2", "expm1", "log", "log2", "log10"),
        *("log1p", "logit", "pow", "square", "sqrt", "rsqrt", "reciprocal", "softmax", "_softmax"),
        *("log_softmax", "_log_softmax", "_safe_softmax", "logsumexp", "logcumsumexp", "floor"),
        *("ceil", "round", "trunc", "frac", "fmod", "remainder", "floor_divide", "cumsum"),
        *("cumprod", "erfinv", "acos", "asin", "atan2", "bucketize", "searchsorted", "softplus"),
    )
)

# A product that they sum may overflow, as the square of a value above 255 does in float16.
REDUCTIONS = frozenset(
    ("sum", "mean", "prod", "norm", "var", "std", "var_mean", "linalg_vector_norm")
)

# Their results are small whatever goes in: a mask's sentinel ends here.
BOUNDED = frozenset(
    (
        *("softmax", "_softmax", "_safe_softmax", "sigmoid", "tanh", "layer_norm", "group_norm"),
        *("batch_norm", "rms_norm", "instance_norm", "native_layer_norm", "native_group_norm"),
        *("scaled_dot_product_attention", "exp", "relu6", "hardsigmoid", "hardtanh"),
    )
)


def name_of(node: Node) -> str:
    """The overload packet's name, `getitem` for the picking of a result, else nothing."""
    if node.op != "call_function":
        return ""
    target: Any = node.target
    packet = getattr(target, "overloadpacket", None)
    if packet is not None:
        return str(packet.__name__) if target.namespace == "aten" else ""
    return "getitem" if getattr(target, "__name__", "") == "getitem" else ""
