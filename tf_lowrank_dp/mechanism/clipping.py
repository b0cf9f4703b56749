"""Clipping: the factor by which each example's part of a block is scaled before the sum."""

from __future__ import annotations

import math

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import ROUNDOFF
from tf_lowrank_dp.release.space import Block


def clip_factors(
    block: Block, presence: tf.Tensor, l2_norm_clip: float, stability: float | None = None
) -> tf.Tensor:
    """Factors `s_b = min(1, l2_norm_clip / |u_b|)`, 0 for absent and for non-finite examples.

    With a `stability`, of automatic clipping, they are `l2_norm_clip / (|u_b| + stability)`.

    Formal guarantees, for any record:

    * the joint norm over the block satisfies `s_b |u_b| <= l2_norm_clip` in exact arithmetic,
      because the norm used is an upper bound (`PerExampleGradient.squared_norm_bounds`);
    * an example whose gradient holds a NaN or infinity, or whose squared norm overflows float32,
      gets 0, and so does padding (`presence` 0);
    * no example's factor depends on another example.

    Args:
        block: the gradients that are clipped jointly.
        presence: float32 `(b,)`, 1 for a sampled example and 0 for padding.
        l2_norm_clip: largest norm an example may contribute; `inf` does not clip (and then, as
            there is no privacy to keep, does not look for non-finite examples either).
        stability: added to norms by which all examples are divided; None clips.

    Returns:
        float32 `(b,)`.
    """
    if math.isinf(l2_norm_clip):
        return presence
    bound = tf.add_n([gradient.squared_norm_bounds() for gradient in block])
    bound = tf.sqrt(bound * (1.0 + 2.0 * ROUNDOFF * (len(block) + 8)))
    usable = tf.math.is_finite(bound) & (presence > 0.0)
    if stability is None:
        factors = tf.minimum(1.0, tf.math.divide_no_nan(l2_norm_clip, bound))
        factors = tf.where(bound > 0.0, factors, 1.0)
    else:
        factors = l2_norm_clip / (bound + stability)
    return tf.where(usable, factors, 0.0)


def unguarded_norms(block: Block) -> tf.Tensor:
    """Joint norms `|u_b|` as computed, `(b,)`: for display and tests, never for clipping."""
    return tf.sqrt(tf.add_n([gradient.squared_norms() for gradient in block]))
