"""A basis of anchor directions that is held as rows."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import PerExampleGradient, PerExampleTensor
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.release.bases import leading_rows
from tf_lowrank_dp.release.long_vectors import Joined, PartOf, flat_rows
from tf_lowrank_dp.release.space import Normal

Anchor = tuple[tf.Tensor, ...]
"""Gradients of the public examples for one variable: `(m, *shape)`, or the factors `x (m, i)` and
`d (m, o)` of the gradients `x d^T` of a kernel."""


class HeldBasis:
    """`B (k, p)` itself, for the `p` parameters of a group.

    Guarantee: embedding and residual are formed, `w_b = B g_b` and `r_b = g_b - B^T w_b`, and what
    is clipped is what is added up.  So neither rounding, nor a basis that is not quite orthonormal,
    lets a record release more than the clip, however small the residual is: it only moves numbers
    between both.  Both count as a `PartOf` the gradient.

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
    ) -> tuple[PerExampleTensor, PerExampleTensor]:
        """Embeddings `(b, k)` and residuals `(b, p)` of the group's gradients."""
        values = [gradient.materialize() for gradient in gradients]
        pairs = list(zip(map(flat_rows, values), self.tensors, strict=True))
        embedding = tf.add_n([tf.matmul(rows, basis, transpose_b=True) for rows, basis in pairs])
        residuals = [
            Materialized(tf.reshape(rows - tf.matmul(embedding, basis), [-1, *value.shape[1:]]))
            for (rows, basis), value in zip(pairs, values, strict=True)
        ]
        squares = tf.add_n([Materialized(value).squared_norms() for value in values])
        return PartOf(Materialized(embedding), squares), PartOf(Joined(residuals), squares)

    def lift(self, embedding: tf.Tensor) -> tf.Tensor:
        """`B^T w`, `(p,)`, for `w (k,)`."""
        parts = [tf.linalg.matvec(basis, embedding, transpose_a=True) for basis in self.tensors]
        return tf.concat(parts, axis=0)


def formed(factors: Anchor) -> tf.Tensor:
    """The gradients `(m, *shape)` of an `Anchor`."""
    if len(factors) == 1:
        return factors[0]
    x, d = factors
    return x[:, :, None] * d[:, None, :]
