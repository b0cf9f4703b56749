"""A constraint that standardises kernels, for networks without batch normalisation."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import ops


@keras.saving.register_keras_serializable("tf_lowrank_dp")
class WeightStandardization(keras.constraints.Constraint):
    """Keeps the kernel of each output at mean 0 and norm 1, after each update.

    Weight standardisation (Qiao et al. 2019) as De et al. (2022, section 3) use it for private
    training, with group normalisation in place of that of batches.  They divide in each forward
    pass; here the trained weights themselves are projected, so that gradients stay those of an
    ordinary layer.  It acts on noised weights and costs no privacy.

    Pass it as `kernel_constraint` of Dense and convolutional layers, whose last axis is the output,
    `(..., outputs)`.  Initial kernels are projected by the first step.

    Example:

    >>> import keras, numpy as np
    >>> layer = keras.layers.Conv2D(8, 3, kernel_constraint=WeightStandardization())
    >>> kernel = keras.ops.reshape(layer.kernel_constraint(np.random.normal(size=(3, 3, 2, 8))),
    ...                            (-1, 8))
    >>> bool(np.allclose(np.mean(kernel, 0), 0, atol=1e-6))
    True
    >>> bool(np.allclose(np.linalg.norm(kernel, axis=0), 1))
    True
    """

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        """The kernel `(..., outputs)`, standardised."""
        axes = list(range(len(w.shape) - 1))
        centred = w - ops.mean(w, axis=axes, keepdims=True)
        norm = ops.sqrt(ops.sum(ops.square(centred), axis=axes, keepdims=True))
        return centred / ops.maximum(norm, keras.config.epsilon())
