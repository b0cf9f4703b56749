"""A basis of anchor directions that is held as coefficients over the anchors."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import (
    ROUNDOFF,
    PerExampleGradient,
    PerExampleTensor,
    zero_absent,
)
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.release.bases import leading_coefficients
from tf_lowrank_dp.release.held_basis import Anchor, formed
from tf_lowrank_dp.release.long_vectors import LEAST_RATIO, PartOf, flat_rows
from tf_lowrank_dp.release.space import Normal

_DOUBLE_ROUNDOFF = 2.0**-53
_SUM_PRECISION = 1e-5


class CoefficientBasis:
    """`B = C G` for `C (k, m)` and the anchors `G (m, p)`, which stay factored.

    For kernels that meet one position of each example, `<g_a, g_b> = (x_a . x_b)(d_a . d_b)`: a
    product with all anchors takes `m (i + o)` multiplications and one with the rows of `B`
    would take `k i o`.  Neither the basis nor a gradient nor a residual is formed.  All is in
    float64: the matrices are small.

    Guarantee: the residual `r = g - B^T w` with `w` as computed is never clipped by less than its
    norm asks for.  Proof, with unit roundoff `u = 2^-53`: let `a_j = |g_j|` be the norms of the
    anchors, `c = | |C| a |`, and `v = (n + m + k + 8) u` with `n` the terms of an inner product:
    `i + o` where both gradients are factored, `i o` where one of them is not.  `v` is below
    `1e-6`, and what is twice as much as a bound of first order covers its squares.

    * Inner products of `g` are off by at most `v a_j |g|`, so `w = B g + e` with
      `|e| <= 2 v c |g|`.
    * The same holds for `G G^T`.  `C` is the product of two matrices, `W M`, and rounded itself;
      `B B^T` is computed as the symmetric part of `(W (M G G^T)) C^T`, so with
      `f = | |W| |M| a |` it is off by at most `4 v c f` in the spectral norm: the bounds of all
      roundings are at most `4 v` times `(|W| |M| a) (|C| a)^T`, whose norm is `f c`.  The largest
      eigenvalue of `B B^T` is at most `1 + h` with `h` the largest absolute row sum computed,
      minus 1, plus `4 v (1 + c f)`.
    * Expanding, `|r|^2 = |g|^2 - |w|^2 + 2 <e, w> + w^T (B B^T - I) w`, and `|w| <= q |g|` for
      `q = 1 + h + 2 v c`.  So `|r|^2 <= |g|^2 - |w|^2 + (4 v c q + h q^2 + 4 v (1 + q^2)) |g|^2`,
      where the last term is the rounding of `|g|^2` and `|w|^2`.
    * Sums of clipped residuals, `sum s g - B^T sum s w`, are formed with an error of at most
      `4 v (1 + c q) s |g|` for each example.  The bound of `|r|` is at least `|g|` times
      `1e5 * 4 v (1 + c q)`, so `s |g|` is at most the clip over that, and the error at most
      `1e-5` of the clip.  It is at least `LEAST_RATIO |g|` as well: adding up `b` examples adds
      `256 b u` of the clip to the error of each.

    In a small convolutional network with 1,000 anchors and 238 directions the factor is
    `LEAST_RATIO^2`, as it is for most: a residual of a tenth of the gradient is clipped 0.08 % more
    than its norm asks for, one of a hundredth 7 %.

    Args:
        tensors: `[C, (c, f, the largest absolute row sum of B B^T), anchors]`, see `find`.
    """

    def __init__(self, tensors: Sequence):
        self.tensors = list(tensors)
        self._coefficients, self._sizes, self._anchors = self.tensors

    @classmethod
    def find(
        cls, anchors: Sequence[Anchor], size: int, normal: Normal, power_iterations: int
    ) -> CoefficientBasis:
        """Near the leading directions of the anchors; random combinations of them to begin with.

        Args:
            anchors: of each variable of the group, finite.
            size: `k`.
            normal: public random numbers.
            power_iterations: at least 1.
        """
        doubles = [_doubles(anchor) for anchor in anchors]
        gram = tf.add_n([_inner_products(anchor, anchor) for anchor in doubles])
        [start] = normal([(size, gram.shape[0])])
        start = tf.cast(start, tf.float64)
        coefficients = leading_coefficients(gram, start, power_iterations)
        lengths = tf.sqrt(tf.maximum(tf.linalg.diag_part(gram), 0.0))
        c = _norm_of_product([coefficients.values], lengths)
        f = _norm_of_product([coefficients.mixing, coefficients.mixed], lengths)
        largest = tf.reduce_max(tf.reduce_sum(tf.abs(coefficients.gram), axis=1))
        return cls([coefficients.values, tf.stack([c, f, largest]), list(map(tuple, anchors))])

    def project(
        self, gradients: Sequence[PerExampleGradient]
    ) -> tuple[PerExampleTensor, PerExampleTensor]:
        """Embeddings `(b, k)` and residuals `(b, p)` of the group's gradients."""
        anchors = [_doubles(anchor) for anchor in self._anchors]
        held = [
            _doubles(_alike(gradient, anchor))
            for gradient, anchor in zip(gradients, anchors, strict=True)
        ]
        pairs = zip(held, anchors, strict=True)
        products = tf.add_n([_inner_products(*pair) for pair in pairs])
        embedding = tf.matmul(products, self._coefficients, transpose_b=True)
        residual = _Residual(self, held, embedding)
        squares = tf.cast(residual.squared_gradients(), tf.float32)
        return PartOf(Materialized(tf.cast(embedding, tf.float32)), squares), residual

    def lift(self, embedding: tf.Tensor) -> tf.Tensor:
        """`B^T w`, `(p,)`, for `w (k,)`: one weighted sum of anchors."""
        return tf.cast(self.lift_double(tf.cast(embedding, tf.float64)), tf.float32)

    def lift_double(self, embedding: tf.Tensor) -> tf.Tensor:
        """`lift` in float64."""
        weights = tf.linalg.matvec(self._coefficients, embedding, transpose_a=True)
        return _weighted_sums([_doubles(anchor) for anchor in self._anchors], weights)

    def guard(self, terms: int) -> tf.Tensor:
        """What the bound of `|r|^2` adds, over `|g|^2`, see above; float64 scalar.

        Args:
            terms: `n`, of the inner products of private gradients with anchors.
        """
        c, f, largest = tf.unstack(self._sizes)
        v = (terms + sum(self._coefficients.shape) + 8) * _DOUBLE_ROUNDOFF
        h = tf.maximum(largest - 1.0, 0.0) + 4.0 * v * (1.0 + c * f)
        q = 1.0 + h + 2.0 * v * c
        slack = 4.0 * v * c * q + h * q * q + 4.0 * v * (1.0 + q * q)
        ratio = tf.maximum(4.0 * v * (1.0 + c * q) / _SUM_PRECISION, LEAST_RATIO)
        return tf.maximum(slack, ratio * ratio)


class _Residual(PerExampleTensor):
    """`g_b - B^T w_b`, not formed.

    Args:
        basis: that of the group.
        held: gradients of each variable, float64, factored or not.
        embedding: `w_b`, float64 `(b, k)`.
    """

    def __init__(self, basis: CoefficientBasis, held: Sequence[Anchor], embedding: tf.Tensor):
        self._basis, self._held, self._embedding = basis, list(held), embedding

    def squared_norms(self) -> tf.Tensor:
        return tf.cast(
            tf.maximum(self.squared_gradients() - self._squared_embeddings(), 0.0), tf.float32
        )

    def squared_norm_bounds(self) -> tf.Tensor:
        squares = self.squared_gradients()
        guard = self._basis.guard(sum(_terms(held) for held in self._held))
        bounds = tf.maximum(squares - self._squared_embeddings(), 0.0) + guard * squares
        return tf.cast(bounds * (1.0 + 4.0 * ROUNDOFF), tf.float32)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        weights = tf.cast(weights, tf.float64)
        embedding = tf.reduce_sum(zero_absent(self._embedding, weights), axis=0)
        total = _weighted_sums(self._held, weights)
        return tf.cast(total - self._basis.lift_double(embedding), tf.float32)

    def materialize(self) -> tf.Tensor:
        values = tf.concat([flat_rows(formed(held)) for held in self._held], axis=1)
        inside = tf.map_fn(self._basis.lift_double, self._embedding)
        return tf.cast(values - inside, tf.float32)

    def squared_gradients(self) -> tf.Tensor:
        """`|g_b|^2`, float64 `(b,)`."""
        return tf.add_n([_squared_norms(held) for held in self._held])

    def _squared_embeddings(self) -> tf.Tensor:
        return tf.reduce_sum(tf.square(self._embedding), axis=1)


def is_cheaper(anchors: Sequence[Anchor], size: int) -> bool:
    """Whether coefficients take fewer multiplications for each example than held rows.

    Args:
        anchors: of each variable of a group.
        size: `k`.
    """
    num_anchors = anchors[0][0].shape[0]
    parameters = sum(formed_size(anchor) for anchor in anchors)
    return num_anchors * sum(_terms(anchor) for anchor in anchors) < size * parameters


def formed_size(anchor: Anchor) -> int:
    """Number of parameters of an anchor's variable."""
    if len(anchor) == 1:
        return anchor[0].shape[1:].num_elements()
    return anchor[0].shape[1] * anchor[1].shape[1]


def _norm_of_product(matrices: Sequence[tf.Tensor], vector: tf.Tensor) -> tf.Tensor:
    """`| |M_1| ... |M_n| v |`, rounded up."""
    for matrix in reversed(matrices):
        vector = tf.linalg.matvec(tf.abs(matrix), vector)
    return tf.norm(vector) * (1.0 + 1e-9)


def _alike(gradient: PerExampleGradient, anchor: Anchor) -> Anchor:
    """The gradient, in factors where it has some and the anchors are held so too."""
    factors = gradient.factors() if len(anchor) == 2 else None
    return (gradient.materialize(),) if factors is None else factors


def _doubles(anchor: Anchor) -> Anchor:
    return tuple(tf.cast(tensor, tf.float64) for tensor in anchor)


def _inner_products(left: Anchor, right: Anchor) -> tf.Tensor:
    """`<left_b, right_j>`, `(b, m)`."""
    if len(left) == len(right) == 2:
        factors = zip(left, right, strict=True)
        x, d = (tf.matmul(one, other, transpose_b=True) for one, other in factors)
        return x * d
    return tf.matmul(flat_rows(formed(left)), flat_rows(formed(right)), transpose_b=True)


def _squared_norms(held: Anchor) -> tf.Tensor:
    squares = [tf.reduce_sum(tf.square(flat_rows(tensor)), axis=1) for tensor in held]
    return squares[0] if len(held) == 1 else squares[0] * squares[1]


def _weighted_sums(gradients: Sequence[Anchor], weights: tf.Tensor) -> tf.Tensor:
    """`sum_b weights_b g_b` of all variables, one behind the other, `(p,)`."""
    sums = []
    for gradient in gradients:
        if len(gradient) == 1:
            total = tf.reduce_sum(zero_absent(gradient[0], weights), axis=0)
        else:
            present = tf.cast(weights != 0.0, tf.float64)
            x, d = zero_absent(gradient[0], present), zero_absent(gradient[1], weights)
            total = tf.matmul(x, d, transpose_a=True)
        sums.append(tf.reshape(total, [-1]))
    return tf.concat(sums, axis=0)


def _terms(anchor: Anchor) -> int:
    """Multiplications of one inner product."""
    return sum(tensor.shape[1:].num_elements() for tensor in anchor)
