"""What a device makes of float32 matrices that it multiplies, and operands it leaves alone."""

from __future__ import annotations

import os
from typing import NamedTuple

import tensorflow as tf


class Arithmetic(NamedTuple):
    """How exact products of float32 matrices are.

    Attributes:
        roundoff: relative error of each addition, over the sum of absolute values.
        operand: largest relative change of an element before it is multiplied, and a tenth more
            for the rounding of what it is multiplied with in a bound; 0 for none.
    """

    roundoff: float
    operand: float


FLOAT32 = Arithmetic(roundoff=2.0**-24, operand=0.0)
TENSOR_CORES = Arithmetic(roundoff=2.0**-22, operand=1.1 * 2.0**-10)
"""Operands of TensorFloat-32: 10 bits behind the leading one, the others dropped or rounded.  Their
products are exact in float32.  Sums lose what is below the last bit of the largest term (Fasi et
al. 2021), twice a roundoff; this is four times."""
TENSOR_CORES_BFLOAT16 = Arithmetic(roundoff=2.0**-22, operand=1.1 * 2.0**-14)
"""Operands of bfloat16, 7 bits behind the leading one, of which one is in two parts (`halves`)."""

_KEPT = -(2**13)  # all bits of an int32 but the 13 that TensorFloat-32 does not have
_KEPT_BFLOAT16 = -(2**16)

_REWRITING = ("auto_mixed_precision", "auto_mixed_precision_onednn_bfloat16",
              "auto_mixed_precision_mkl", "auto_mixed_precision_cpu")  # fmt: skip
_REWRITING_VARIABLES = (
    "TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE",
)  # fmt: skip
_MODES = ("TF_SET_ONEDNN_FPMATH_MODE", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")


def arithmetic(in_bfloat16: bool = False) -> Arithmetic:
    """That of tensor cores wherever there is a GPU.

    Whether they take part is a switch of the process that anybody may turn at any time
    (`tf.config.experimental.enable_tensor_float_32_execution`): what holds with them holds without.

    Args:
        in_bfloat16: of the pairs that `multiplies_in_bfloat16`.
    """
    if in_bfloat16:
        return TENSOR_CORES_BFLOAT16
    return TENSOR_CORES if tf.config.list_physical_devices("GPU") else FLOAT32


def multiplies_in_bfloat16(*tensors: tf.Tensor) -> bool:
    """Whether these are multiplied as bfloat16: they are, and tensor cores do so twice as fast."""
    return arithmetic() != FLOAT32 and all(t.dtype == tf.bfloat16 for t in tensors)


def as_operand(tensor: tf.Tensor) -> tf.Tensor:
    """In float32, cut to numbers that the device multiplies as they are.

    What is bfloat16 is cut as well: XLA may leave out a rounding to bfloat16 that it meets between
    two of its operations, for some that take the result and not for others.

    Guarantee: a product of two such matrices is exact up to the rounding of its sums, whichever
    kernel computes it.
    """
    kept = _KEPT_BFLOAT16 if tensor.dtype == tf.bfloat16 else _KEPT
    tensor = tf.cast(tensor, tf.float32)
    return tensor if arithmetic() == FLOAT32 else _cut(tensor, kept)


def product(
    a: tf.Tensor,
    b: tf.Tensor,
    in_bfloat16: bool,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> tf.Tensor:
    """Product of matrices that are operands, float32.

    Args:
        a, b: float32, of `as_operand`.
        in_bfloat16: whether they have no more bits than bfloat16, and are multiplied as such.
        transpose_a, transpose_b: as of `tf.matmul`.
    """
    if in_bfloat16:
        a, b = tf.cast(a, tf.bfloat16), tf.cast(b, tf.bfloat16)
        return _product_of_bfloat16(a, b, transpose_a, transpose_b)
    return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


@tf.function(jit_compile=True, autograph=False)  # TensorFlow's kernels round the sums to bfloat16
def _product_of_bfloat16(
    a: tf.Tensor, b: tf.Tensor, transpose_a: bool, transpose_b: bool
) -> tf.Tensor:
    return tf.raw_ops.BatchMatMulV3(x=a, y=b, Tout=tf.float32, adj_x=transpose_a, adj_y=transpose_b)


def halves(tensor: tf.Tensor) -> tf.Tensor:
    """Float32 `(..., 2 n)`: its leading bits, and what they lack, each of what bfloat16 can hold.

    Guarantee: the two parts differ from the number by less than `2^-14` of it, whichever way they
    are rounded to bfloat16: the leading bits are cut and not rounded, so what they lack, less than
    `2^-7`, is exact before it loses `2^-7` of itself.
    """
    leading = _cut(tensor, _KEPT_BFLOAT16)
    return tf.concat([leading, tensor - leading], axis=-1)


def _cut(tensor: tf.Tensor, kept: int) -> tf.Tensor:
    bits = tf.bitwise.bitwise_and(tf.bitcast(tensor, tf.int32), kept)
    return tf.bitcast(bits, tf.float32)


def sums_of_squares(tensor: tf.Tensor) -> tf.Tensor:
    """Sums of squares over the last axis, `(..., n)` to `(...)`, float32.

    By a product with ones on a CPU, where TensorFlow's sum over a last axis takes ten times as
    long.  Both are sums of `n` terms in some order, which is all that bounds of norms rest on.
    """
    squares = tf.square(tensor)
    if arithmetic().operand != 0.0:  # tensor cores would cut the squares
        return tf.reduce_sum(squares, axis=-1)
    return tf.linalg.matvec(squares, tf.ones([tensor.shape[-1]]))


def refuse_rewritten_products() -> None:
    """Refuses settings by which TensorFlow multiplies float32 matrices in fewer bits.

    Guarantee: norms and sums of the captured pairs are computed as `arithmetic` says, which the
    bounds of the norms rest on.

    Raises:
        RuntimeError: such a setting is on.
    """
    options = tf.config.optimizer.get_experimental_options()
    received = [f"the option {name!r}" for name in _REWRITING if options.get(name)]
    settings: list[tuple[str, tuple[str, ...]]] = [
        (name, ("", "0", "false")) for name in _REWRITING_VARIABLES
    ]
    settings += [(name, ("", "strict")) for name in _MODES]
    for name, harmless in settings:
        value = os.environ.get(name, "")
        if value.lower() not in harmless:
            received.append(f"{name}={value} in the environment")
    if received:
        raise RuntimeError(
            "Expected float32 products in float32: the bounds of the examples' norms rest on them. "
            f"Received: {', '.join(received)}, by which TensorFlow computes them in fewer bits. "
            "Switch it off (tf.config.optimizer.set_experimental_options, os.environ) and use "
            "keras.config.set_dtype_policy('mixed_bfloat16') instead, which is as fast and safe."
        )
