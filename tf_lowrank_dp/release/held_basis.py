"""A basis of anchor directions that is held as rows."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.release.bases import leading_rows
from tf_lowrank_dp.release.flat import FlatGradient, Joined, flat_rows
from tf_lowrank_dp.release.space import Normal

LEAST_RATIO = 2.0**-8
"""Of residual and gradient: a smaller residual is clipped as if it were that large.

A residual far smaller than its gradient is rounding, and rounding depends on the size of the batch
and on a record's place in it, which other records decide.  With this floor what one record releases
moves by at most about `1e-4` of the clip for another layout of the batch, whatever the record is.
"""

Anchor = tuple[tf.Tensor, ...]
"""Gradients of the public examples for one variable: `(m, *shape)`, or the factors `x (m, i)` and
`d (m, o)` of the gradients `x d^T` of a kernel."""


class HeldBasis:
    """`B (k, p)` itself, for the `p` parameters of a group.

    Guarantee: embedding and residual are formed, `w_b = B g_b` and `r_b = g_b - B^T w_b`, and what
    is clipped is what is added up.  So neither rounding, nor a basis that is not quite orthonormal,
    lets a record release more than the clip, however small the residual is: it only moves numbers
    between both.  The bound of `|r|` is `sqrt(|r|^2 + (LEAST_RATIO |g|)^2)`.

    Forming the gradients costs `t i o` multiplications for a kernel `(i, o)` and `t` positions, and
    each of the two products `k i o`; applying the basis to the captured pair without forming the
    gradients would cost `t k i o`.

    Args:
        tensors: for each variable of `n` parameters its columns of `B`, float32 `(k, n)`.
    """

    def __init__(self, tensors: Sequence[tf.Tensor]):
        self.tensors = list(tensors)

    @classmethod
    def find(
        cls, anchors: Sequence[Anchor], size: int, normal: Normal, power_iterations: int
    ) -> HeldBasis:
        """Near the leading directions of the anchors (GEP, Algorithm 1).

        Args:
            anchors: of each variable of the group, finite.
            size: `k`.
            normal: public random numbers.
            power_iterations: at least 1.
        """
        matrices = [flat_rows(formed(anchor)) for anchor in anchors]
        sizes = [matrix.shape[1] for matrix in matrices]
        [start] = normal([(size, sum(sizes))])
        return cls(leading_rows(matrices, tf.split(start, sizes, axis=1), power_iterations))

    def project(
        self, gradients: Sequence[PerExampleGradient]
    ) -> tuple[PerExampleGradient, FlatGradient]:
        """Embeddings `(b, k)` and residuals `(b, p)` of the group's gradients."""
        values = [gradient.materialize() for gradient in gradients]
        pairs = list(zip(map(flat_rows, values), self.tensors, strict=True))
        embedding = tf.add_n([tf.matmul(rows, basis, transpose_b=True) for rows, basis in pairs])
        residuals = [
            Materialized(tf.reshape(rows - tf.matmul(embedding, basis), [-1, *value.shape[1:]]))
            for (rows, basis), value in zip(pairs, values, strict=True)
        ]
        return Materialized(embedding), _Residual(residuals, Joined(map(Materialized, values)))

    def lift(self, embedding: tf.Tensor) -> tf.Tensor:
        """`B^T w`, `(p,)`, for `w (k,)`."""
        parts = [tf.linalg.matvec(basis, embedding, transpose_a=True) for basis in self.tensors]
        return tf.concat(parts, axis=0)


class _Residual(Joined):
    """Residuals whose norm counts as at least `LEAST_RATIO` of the gradient's.

    Args:
        residuals: of each variable.
        gradient: of which they are what is left.
    """

    def __init__(self, residuals: Sequence[PerExampleGradient], gradient: PerExampleGradient):
        super().__init__(residuals)
        self._gradient = gradient

    def squared_norm_bounds(self):
        floor = LEAST_RATIO**2 * self._gradient.squared_norms()
        return super().squared_norm_bounds() + floor


def formed(factors: Anchor) -> tf.Tensor:
    """The gradients `(m, *shape)` of an `Anchor`."""
    if len(factors) == 1:
        return factors[0]
    x, d = factors
    return x[:, :, None] * d[:, None, :]
