"""Per-example gradients of kernels: `g_b = X_b^T D_b`, never formed for large kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.arithmetic import (
    FLOAT32,
    arithmetic,
    as_operand,
    halves,
    multiplies_in_bfloat16,
    product,
    sums_of_squares,
)
from tf_lowrank_dp.per_example.centrable import CentrableGradient
from tf_lowrank_dp.per_example.gradient import (
    UNDERFLOW,
    PerExampleGradient,
    side_by_side,
    times_rows,
    zero_absent,
)
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.parameter import MatrixView


class OuterProduct(CentrableGradient):
    """Holds `X (b, t, i)` and `D (b, t, o)` for `g_b = X_b^T D_b`.

    Forming the `(i, o)` matrix of an example costs `t i o` multiplications and `i o` numbers; the
    ghost norm (Goodfellow 2015; Lee & Kifer 2020) costs `t^2 (i + o)` and keeps the captured
    `t (i + o)`.  Both comparisons turn at the same point: where `i o <= t (i + o)` the matrices are
    formed, once, and treated as `Materialized`.

    Otherwise norms come from the Gram matrices, `|g_b|^2 = sum_tu (x_t . x_u)(d_t . d_u)`.  The
    terms can cancel, in float32 down to zero for a gradient that is not, so the bound adds what
    rounding may have hidden.  Proof: with `A = sum_t |x_t| |d_t|` and unit roundoff `u`, each Gram
    entry is off by at most `i u |x_t| |x_u|` (`o u |d_t| |d_u|`), and the two sums over positions
    add at most `2 t u`, so the computed value is within `(i + o + 2 t + 8) u A^2` of `|g_b|^2`, to
    first order; twice this covers the higher orders and the rounding of `A`.  For one position
    the terms are positive and the same formula is a relative error.

    Squares below the smallest normal number are flushed to zero, which hides entries of `X` and
    `D` below `UNDERFLOW = 2^-63`: of each row at most `sqrt(i) UNDERFLOW`, `sqrt(o) UNDERFLOW`.  By
    the triangle inequality they add at most `sum_t (sqrt(i) UNDERFLOW |d_t| + |x_t| sqrt(o)
    UNDERFLOW + sqrt(i o) UNDERFLOW^2)` to the norm, and products of the Gram matrices that are
    flushed at most as much again.  This matters only where `D` is huge.

    On tensor cores (`arithmetic`) `X` and `D` are cut to numbers that are multiplied as they are:
    these are the gradients then, of norms and sums alike.  The sum multiplies `X` and `s_b D`,
    which is cut once more, each element by at most `v = 2^-10` of itself.  By the triangle
    inequality this adds at most `s_b sum_t |x_t| v |d_t| = s_b v A`, whatever cancels, and the
    bound adds `v A` to the norm.  A pair of bfloat16 is multiplied in bfloat16: twice as fast and
    no less exact, if `s_b D` is taken apart in two (`halves`), so that `v = 2^-14`.

    Args:
        x: layer inputs, `(b, t, i)`.
        d: gradients with respect to the pre-activation, `(b, t, o)`.
        to_variable: maps `(..., i, o)` to `(..., *variable.shape)`; None if they are the same.
        gram_of_d: whether another variable's norms need the Gram matrices of the same `D` anyway:
            then they cost nothing here, and TensorFlow computes them once.

    Example:

    >>> product = OuterProduct(tf.ones((4, 2, 6)), tf.ones((4, 2, 5)))
    >>> product.squared_norms().numpy().tolist()
    [120.0, 120.0, 120.0, 120.0]
    >>> product.weighted_sum(tf.constant([1.0, 0.5, 0.0, 0.0])).shape
    TensorShape([6, 5])
    """

    def __init__(
        self,
        x: tf.Tensor,
        d: tf.Tensor,
        to_variable: Callable[[tf.Tensor], tf.Tensor] | None = None,
        gram_of_d: bool = False,
    ):
        self._in_bfloat16 = multiplies_in_bfloat16(x, d)
        self._x, self._d = as_operand(x), as_operand(d)
        self._to_variable = to_variable
        self._gram_of_d = gram_of_d

    @classmethod
    def joined(cls, gradients: Sequence[OuterProduct]) -> OuterProduct:
        """Sum of several: their positions side by side."""
        x = tf.concat([g._x for g in gradients], axis=1)
        d = tf.concat([g._d for g in gradients], axis=1)
        return cls(x, d, gradients[0]._to_variable)

    @property
    def pair(self) -> tuple[tf.Tensor, tf.Tensor]:
        """`X (b, t, i)` and `D (b, t, o)`."""
        return self._x, self._d

    @property
    def uses_gram(self) -> bool:
        """Whether norms come from Gram matrices, not from the matrices of the examples."""
        t, i, o = self._x.shape[1], self._x.shape[2], self._d.shape[2]
        return t is None or i * o > t * (i if self._gram_of_d else i + o)

    @functools.cached_property
    def _formed(self) -> Materialized | None:
        """The matrices of the examples, where that is cheaper."""
        if self.uses_gram:
            return None
        return Materialized(self._shaped(self._product_of_pair()))

    def squared_norms(self) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.squared_norms()
        return self._norms_and_lengths()[0]

    def squared_norm_bounds(self) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.squared_norm_bounds()
        squared_norms, x, d = self._norms_and_lengths()
        t = tf.cast(tf.shape(self._x)[1], tf.float32)
        i, o = self._x.shape[2], self._d.shape[2]
        roundoff, operand = arithmetic(self._in_bfloat16)
        slack = 2.0 * roundoff * (i + o + 2.0 * t + 8.0)
        a = tf.reduce_sum(x * d, axis=-1)
        rounded = tf.sqrt(squared_norms + slack * tf.square(a)) + operand * a
        hidden_x, hidden_d = 2.0 * math.sqrt(i) * UNDERFLOW, math.sqrt(o) * UNDERFLOW
        hidden = tf.reduce_sum(hidden_x * (d + hidden_d) + hidden_d * x, axis=-1)
        return tf.square(rounded + 2.0 * hidden)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.weighted_sum(weights)
        x = zero_absent(self._x, tf.cast(weights != 0.0, tf.float32))
        d = zero_absent(self._d, weights)
        x = tf.reshape(x, [-1, self._x.shape[2]])
        d = tf.reshape(d, [-1, self._d.shape[2]])
        if self._in_bfloat16:
            parts = product(x, halves(d), in_bfloat16=True, transpose_a=True)
            return self._shaped(tf.add_n(tf.split(parts, 2, axis=-1)))
        return self._shaped(tf.matmul(x, d, transpose_a=True))

    def materialize(self) -> tf.Tensor:
        if self._formed is not None:
            return self._formed.materialize()
        return self._shaped(self._product_of_pair())

    def factors(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        if self._formed is not None or self._to_variable is not None or self._x.shape[1] != 1:
            return None
        return self._x[:, 0], self._d[:, 0]

    def joined_rows(self, weights: tf.Tensor) -> OuterProduct:
        k = weights.shape[1]
        x, d = side_by_side(self._x, k), side_by_side(times_rows(self._d, weights), k)
        return OuterProduct(x, d, self._to_variable, self._gram_of_d)

    def right(self, r: tf.Tensor, view: MatrixView) -> OuterProduct:
        return OuterProduct(tf.matmul(self._d, r, transpose_b=True), self._x)

    def left(self, l: tf.Tensor, view: MatrixView) -> OuterProduct:  # noqa: E741
        return OuterProduct(tf.matmul(self._x, l), self._d)

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        of_columns = self._to_variable is None and mask.shape == self._d.shape[2:]
        if of_columns and self._formed is None:
            return OuterProduct(self._x, self._d * mask)
        return Materialized(self.materialize(), mask)

    def centred(self, centre: tf.Tensor) -> OuterProduct:
        # Where operands are cut, the difference has to be cut, and not what it is made of.
        if self.uses_gram and self._x.shape[1] != 1 and arithmetic() == FLOAT32:
            return _Centred(self._x, self._d, centre, self._to_variable, self._gram_of_d)
        x = self._x - centre[:, 0]
        return OuterProduct(x, self._d, self._to_variable, self._gram_of_d)

    def mean_inputs(self) -> tf.Tensor:
        if self._x.shape[1] == 1:
            return tf.transpose(self._x, [0, 2, 1])
        # Only where there is a gradient: what is padding has none.
        if self.uses_gram:  # which TensorFlow computes for the norms anyway
            squares = tf.linalg.diag_part(self._gram(self._d))
        else:
            squares = sums_of_squares(self._d)
        counted = squares > 0.0
        counted |= tf.logical_not(tf.reduce_any(counted, axis=1, keepdims=True))
        weights = tf.cast(counted, tf.float32)[:, None]
        total = tf.matmul(weights, self._x)  # half of the time of the transposed product
        return tf.linalg.matrix_transpose(total / tf.reduce_sum(weights, axis=2, keepdims=True))

    def _shaped(self, matrices: tf.Tensor) -> tf.Tensor:
        return matrices if self._to_variable is None else self._to_variable(matrices)

    def _product_of_pair(self) -> tf.Tensor:
        return product(self._x, self._d, self._in_bfloat16, transpose_a=True)

    def _gram(self, rows: tf.Tensor) -> tf.Tensor:
        return product(rows, rows, self._in_bfloat16, transpose_b=True)

    def _norms_and_lengths(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`|g_b|^2` as computed, `(b,)`, `|x_bt|` and `|d_bt|`, both `(b, t)`."""
        if self._x.shape[1] == 1:
            x2, d2 = (sums_of_squares(v[:, 0]) for v in (self._x, self._d))
            return x2 * d2, tf.sqrt(x2)[:, None], tf.sqrt(d2)[:, None]
        xx, dd = self._gram(self._x), self._gram(self._d)
        squared_norms = tf.reduce_sum(tf.reduce_sum(xx * dd, axis=-1), axis=-1)
        x, d = (tf.sqrt(tf.linalg.diag_part(gram)) for gram in (xx, dd))
        return tf.maximum(squared_norms, 0.0), x, d


class _Centred(OuterProduct):
    """`(X_b - 1 mu^T)^T D_b` from products with `X`: no copy of it, and what others share of it.

    With `g_b = D_b^T 1` the sum is that of `G_b` less `mu` times that of `g_b`, and

        |G_b - mu g_b^T|^2 = |G_b|^2 + sum_t (|mu|^2 - 2 x_t . mu) (d_t . g_b),

    where `d_t . g_b` are the row sums of the Gram matrix.  Each term is off by no more than those
    of `G_b` if its rows were `|x_t| + |mu|` long, so that is what the bound has for `|x_t|`.  What
    is flushed to zero is in four products for each of `X`, which is twice as much in the norm: the
    bound of both classes has room for that.
    """

    def __init__(
        self,
        x: tf.Tensor,
        d: tf.Tensor,
        centre: tf.Tensor,
        to_variable: Callable[[tf.Tensor], tf.Tensor] | None,
        gram_of_d: bool,
    ):
        super().__init__(x - centre[:, 0], d, to_variable, gram_of_d)
        self._given, self._centre = OuterProduct(x, d), centre

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        # The gradient of the bias is finite: the Gram matrix of longer rows than 2^64 is not.
        of_bias = zero_absent(tf.reduce_sum(self._d, axis=1), weights)
        along_centre = self._centre * tf.reduce_sum(of_bias, axis=0)
        return self._shaped(self._given.weighted_sum(weights) - along_centre)

    def _norms_and_lengths(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        squared_norms, x, d = self._given._norms_and_lengths()
        rows = tf.reshape(self._given._x, [-1, self._x.shape[2]])
        along = tf.reshape(tf.matmul(rows, self._centre), tf.shape(x))
        square = tf.reduce_sum(tf.square(self._centre))
        row_sums = tf.reduce_sum(self._gram(self._d), axis=-1)
        squared_norms += tf.reduce_sum((square - 2.0 * along) * row_sums, axis=-1)
        return tf.maximum(squared_norms, 0.0), x + tf.sqrt(square), d
