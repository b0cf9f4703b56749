"""The oracle: per-example gradients by ordinary automatic differentiation of batches of one.

It shares no code with the package: a `GradientTape` over the trainable variables, one example at a
time.
"""

import numpy as np
import tensorflow as tf


def rows(structure, slice_):
    return tf.nest.map_structure(lambda leaf: leaf[slice_], structure)


def per_example_gradients(model, loss_of, batch):
    """One float64 array `(b, *variable.shape)` for each trainable variable.

    Args:
        model: a Keras model.
        loss_of: takes a batch and returns losses `(b,)`.
        batch: nested tensors.
    """
    size = int(tf.nest.flatten(batch)[0].shape[0])
    gradients = [[] for _ in model.trainable_variables]
    for index in range(size):
        with tf.GradientTape() as tape:
            loss = tf.cast(loss_of(rows(batch, slice(index, index + 1)))[0], tf.float32)
        found = tape.gradient(loss, [v.value for v in model.trainable_variables])
        for collected, gradient, v in zip(gradients, found, model.trainable_variables, strict=True):
            gradient = tf.zeros(v.shape) if gradient is None else tf.convert_to_tensor(gradient)
            collected.append(np.asarray(tf.cast(gradient, tf.float32), np.float64))
    return [
        np.stack(collected) if collected else np.zeros((0, *v.shape))
        for collected, v in zip(gradients, model.trainable_variables, strict=True)
    ]


def norms(gradients):
    """Joint norm of each example, float64 `(b,)`."""
    return np.sqrt(sum((g**2).sum(axis=tuple(range(1, g.ndim))) for g in gradients))


def clipped_sums(gradients, presence, l2_norm_clip):
    """`sum_b presence_b min(1, clip / |g_b|) g_b`, one array for each variable."""
    factors = presence * np.minimum(1.0, l2_norm_clip / np.maximum(norms(gradients), 1e-300))
    return [np.tensordot(factors, g, axes=1) for g in gradients]


def relative_error(actual, expected, scale=None):
    """Largest absolute difference over the largest magnitude of what was expected."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if expected.size == 0:
        return 0.0
    scale = np.max(np.abs(expected)) if scale is None else scale
    return float(np.max(np.abs(actual - expected)) / max(scale, 1e-6))
