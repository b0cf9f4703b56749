"""Capture for the normalisations that treat each example by itself.

Keras folds the scale into the inverse deviation and never forms the normalised input.  Recorded
calls form it, because the scale's per-example gradient is its product with the output gradient.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.materialized import Materialized


@register_capture(keras.layers.LayerNormalization)
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` with per-example gradients of `gamma` and `beta`."""

    @classmethod
    def can_capture(cls, layer) -> bool:
        """Not the deprecated `rms_scaling`, which goes through the fallback."""
        return not layer.rms_scaling

    def call(self, inputs):
        if current_recorder() is None:
            return super().call(inputs)
        x = _at_least_float32(inputs)
        axes = [axis % x.shape.rank for axis in self.axis]
        normalized = _normalized(x, axes, self.epsilon)
        outputs = _scaled(self, normalized, axes, self.gamma, self.beta)
        return tf.cast(outputs, self.compute_dtype)


@register_capture(keras.layers.GroupNormalization)
class GroupNormalization(keras.layers.GroupNormalization):
    """`keras.layers.GroupNormalization` with per-example gradients of `gamma` and `beta`."""

    def call(self, inputs):
        if current_recorder() is None:
            return super().call(inputs)
        x = _at_least_float32(inputs)
        channel = self.axis % x.shape.rank
        groups = _at_least_float32(self._reshape_into_groups(inputs))
        axes = [axis for axis in range(1, groups.shape.rank) if axis != channel]
        normalized = tf.reshape(_normalized(groups, axes, self.epsilon), tf.shape(x))
        normalized = tf.ensure_shape(normalized, x.shape)
        outputs = _scaled(self, normalized, [channel], self.gamma, self.beta)
        return tf.cast(outputs, self.compute_dtype)


@register_capture(keras.layers.RMSNormalization)
class RMSNormalization(keras.layers.RMSNormalization):
    """`keras.layers.RMSNormalization` with per-example gradients of `scale`."""

    def call(self, x):
        if current_recorder() is None:
            return super().call(x)
        x32 = _at_least_float32(x)
        axes = [axis % x32.shape.rank for axis in self.axis]
        mean_square = tf.reduce_mean(tf.square(x32), axes, keepdims=True)
        normalized = x32 * tf.math.rsqrt(mean_square + self.epsilon)
        return tf.cast(_scaled(self, normalized, axes, self.scale, None), x.dtype)


def _at_least_float32(x) -> tf.Tensor:
    return tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x


def _normalized(x, axes, epsilon) -> tf.Tensor:
    mean = tf.reduce_mean(x, axes, keepdims=True)
    centered = x - mean
    variance = tf.reduce_mean(tf.square(centered), axes, keepdims=True)
    return centered * tf.math.rsqrt(variance + epsilon)


def _scaled(layer, normalized, axes, gamma, beta) -> tf.Tensor:
    """`normalized * gamma + beta`, recorded; the variables lie along `axes`."""
    axes = sorted(axes)
    broadcast = [normalized.shape[a] if a in axes else 1 for a in range(normalized.shape.rank)]
    summed = [axis for axis in range(1, normalized.shape.rank) if axis not in axes]

    def along(variable):
        return tf.reshape(tf.cast(variable, normalized.dtype), broadcast)

    z, builders = normalized, []
    if gamma is not None:
        z = z * along(gamma)
        builders.append((gamma, lambda d: Materialized(tf.reduce_sum(d * normalized, summed))))
    if beta is not None:
        z = z + along(beta)
        builders.append((beta, lambda d: Materialized(tf.reduce_sum(d, summed))))
    (z,) = current_recorder().watch(layer.name, [z], builders)
    return z
