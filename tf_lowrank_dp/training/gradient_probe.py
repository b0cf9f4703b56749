"""Are the per-example gradients of recorded layers what ordinary differentiation gives?"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._tensorflow import pointwise_filters_without_strides
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.gradient_methods.backward import Forward
from tf_lowrank_dp.gradient_methods.recorded import bookkeeping
from tf_lowrank_dp.layers.not_recorded import NotRecordedError
from tf_lowrank_dp.tracing.example_axis import unmistakable_size
from tf_lowrank_dp.tracing.random_ops import ConstantSource, random_numbers_from

# Of gradients, and the share of the whole gradient with which a variable's is at least compared.
_LEAST = 5  # examples
_GRADIENTS = {True: (0.05, 0.01), False: (0.2, 0.1)}  # all layers compute in float32, or not


def check_gradients(
    model: keras.Model,
    forward: Forward,
    graph: tf.Graph,
    batches: Sequence[Nested],
    weights: Sequence[Sequence[tf.Tensor]],
) -> None:
    """Compares a weighted sum of recorded gradients with the gradient of the weighted losses.

    Factors that differ tell the rows of the examples apart.  Those of a few are 0, and these are
    left out of the ordinary pass, so that the number of rows is another one.  Both are numbers for
    which no length of the model could be mistaken, as in training.  Draws give one number to all
    rows, so that they do not depend on how many there are.

    Args:
        model: a built model.
        forward: takes a batch and returns losses `(b,)` and more.
        graph: of the losses, traced with an unknown number of rows.
        batches: of random data, of which the first with finite gradients is compared.
        weights: values of the trainable variables, all of which are tried.

    Raises:
        NotRecordedError: names a variable whose gradient would be wrong, or what cannot run.
    """
    some = unmistakable_size(_LEAST, graph)
    rows = unmistakable_size(some + 1, graph)
    factors = tf.concat([tf.linspace(0.5, 1.5, some), tf.zeros([rows - some])], 0)
    variables = model.trainable_variables

    def scope(values: Sequence[keras.Variable]) -> AbstractContextManager:
        return keras.StatelessScope(list(zip(variables, values, strict=True)), collect_losses=True)

    @tf.function(autograph=False)
    def both(batch: Nested, values: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        with random_numbers_from(ConstantSource()), scope(values):
            gradients = bookkeeping(model, forward, batch).gradients
            found = [gradient.weighted_sum(factors) for gradient in gradients]
        # Of the weights alone: what is in front of them may have no gradient.
        with (
            random_numbers_from(ConstantSource()),
            tf.GradientTape(watch_accessed_variables=False) as tape,
            scope(values),
        ):
            tape.watch(values)
            losses, _ = forward(tf.nest.map_structure(lambda leaf: leaf[:some], batch))
        factor = tf.cast(factors[:some], losses.dtype)
        with pointwise_filters_without_strides():
            expected = tape.gradient(losses, values, factor, unconnected_gradients="zero")
        return found, [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in expected]

    for few in batches:
        compared = False
        batch = tf.nest.map_structure(lambda t: tf.gather(t, np.arange(rows) % t.shape[0]), few)
        for values in weights:
            traced = both.get_concrete_function(batch, values)
            try:
                found, expected = traced(batch, values)
            except tf.errors.OpError as error:
                raise _cannot_run(model, error) from error
            if np.isfinite(float(tf.linalg.global_norm(expected))):
                _compare(model, found, expected)
                compared = True
        if compared:
            return


def _cannot_run(model: keras.Model, error: tf.errors.OpError) -> NotRecordedError:
    node = re.search(r"node ([\w/.]+)", str(error))
    what = node[1].split("/")[-1] if node else type(error).__name__
    return NotRecordedError(
        "Expected gradients that TensorFlow computes of several examples at once. Received: "
        f"'{model.name}', where it cannot run '{what}'. Use gradient_method='loop', which takes "
        "one example after the other.",
        f"'{what}', which TensorFlow cannot run for several at once,",
    )


def computes_in_float32(model: keras.Model) -> bool:
    """Whether all layers do, so that gradients can be compared closely."""
    layers = layers_of(model)
    return all(getattr(layer, "compute_dtype", None) in (None, "float32") for layer in layers)


def _compare(model: keras.Model, found: Sequence[tf.Tensor], expected: Sequence[tf.Tensor]) -> None:
    whole = float(tf.linalg.global_norm(expected))
    tolerance, share = _GRADIENTS[computes_in_float32(model)]
    for variable, gradient, reference in zip(
        model.trainable_variables, found, expected, strict=True
    ):
        same_shape = gradient.shape == reference.shape
        error = float(tf.norm(gradient - reference)) if same_shape else math.inf
        scale = max(float(tf.norm(reference)), share * whole, 1e-12)
        if not error <= tolerance * scale:
            raise NotRecordedError(
                "Expected per-example gradients that add up to the ordinary gradient. Received: on "
                f"random data, that of '{variable.path}' is off by {error / scale:.2g} of its norm."
                " Either the model takes examples out of their order, or uses a weight in a way "
                "that the layers do not know of (outside of its layer, say). Use "
                "gradient_method='vectorized', or register the class of the surrounding layer "
                "with tf_lowrank_dp.layers.register_fallback. A penalty on weights is a "
                "kernel_regularizer, not a part of the examples' losses.",
                f"what uses '{variable.path}' outside of its layer",
            )
