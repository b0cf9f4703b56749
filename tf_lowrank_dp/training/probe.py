"""A probe on random data: are examples independent, is state kept, are gradients right?

Types tell only of the layers we know.  Before the first step the model is run on a handful of
random rows in the shape of the data, never on the data themselves.
"""

from __future__ import annotations

import functools
import math

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.global_state import get_global_attribute
from keras.src.random.seed_generator import global_seed_generator

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.recorded import bookkeeping
from tf_lowrank_dp.layers.recorder import Recorder
from tf_lowrank_dp.layers.registry import capturing
from tf_lowrank_dp.tracing.random_ops import (
    ConstantSource,
    FixedSource,
    random_numbers_from,
    seeds_kept,
)
from tf_lowrank_dp.training.random_batch import random_batch

_ROWS = 3
_SENTENCES = ((1, 4), (5, 8))  # words
_TOLERANCE = 1e-4
# Of gradients, and the share of the whole gradient with which a variable's is at least compared.
_GRADIENTS = {True: (0.05, 0.01), False: (0.2, 0.1)}  # all layers compute in float32, or not


def probe(model: keras.Model, forward, element_spec: dict, recorded: bool = True) -> None:
    """Checks that each example's loss depends on this example alone, and its gradient is right.

    Comparisons, each with equal random numbers in dropout and the like: all other examples
    changed must leave the losses of the first and of the last as they were, and other sizes of the
    batch that of the first (here each draw has one number for all rows); the weighted sum of the
    per-example gradients of recorded layers must be what ordinary differentiation gives, so that
    none is missing, counted twice or in another example's row; and no variable but seeds and
    metrics may be updated, and none created.

    Args:
        model: a built model.
        forward: takes `{"x", "y", "sample_weight"}` and returns losses `(b,)` and more.
        element_spec: nested `tf.TensorSpec` of such a batch.
        recorded: whether layers will be recorded; then their outputs must have the example axis.

    Raises:
        UnsupportedModelError: examples are coupled, joined with another axis or exchanged, the
            gradient of a variable would be wrong, or state is changed or created.
    """
    generator = np.random.default_rng(0)
    # Texts of the second batch are longer: padding to the longest of a batch couples examples.
    first, other = (
        random_batch(model, element_spec, generator, _ROWS, lengths) for lengths in _SENTENCES
    )
    keep_first = tf.nest.map_structure(lambda a, b: tf.concat([a[:1], b[1:]], 0), first, other)
    keep_last = tf.nest.map_structure(lambda a, b: tf.concat([b[:-1], a[-1:]], 0), first, other)
    alone = tf.nest.map_structure(lambda a: a[:1], first)
    longer = tf.nest.map_structure(lambda a: tf.concat([a, a[-1:]], 0), first)

    try:
        together = _Traced(model, forward, element_spec, FixedSource())
        losses = together(first)
    except tf.errors.InvalidArgumentError as error:
        if any(spec.dtype == tf.string for spec in tf.nest.flatten(element_spec)):
            raise _reads_other_strings(model) from error
        raise
    _check_state(model, together.changed)
    _check_shape(losses)
    for row, batch in ((0, keep_first), (-1, keep_last)):
        _check_equal(losses[row], together(batch)[row], "the other examples of its batch")
    # Random numbers that are the same for all rows do not depend on how many there are.
    alike = _Traced(model, forward, element_spec, ConstantSource())
    if alike.created:
        raise _creates(model, f"'{alike.created[0].path}'")
    whole = alike(first)
    for batch in (alone, longer):
        _check_equal(whole[0], alike(batch)[0], "the size of its batch")
    if recorded:
        both = tf.nest.map_structure(lambda a, b: tf.concat([a, b], 0), first, other)
        _check_first_axes(model, forward, first)
        _check_gradients(model, forward, both)


class _Traced:
    """The losses of a forward pass, traced once for batches of any size.

    Attributes:
        changed: variables that the forward pass would change, but for seeds.
        created: Keras variables that it creates.
    """

    def __init__(self, model, forward, element_spec, source):
        variables, seeds = model.variables, {id(state) for state in _seed_states(model)}

        def losses(batch):
            # add_loss is part of the loss; what the loss creates for itself is initialised below.
            scope = keras.StatelessScope(collect_losses=True, initialize_variables=False)
            with scope:
                with (
                    random_numbers_from(source),
                    tf.variable_creator_scope(functools.partial(_refuse_new_variable, model)),
                ):
                    try:
                        found, _ = forward(batch)
                    except ValueError as error:
                        if "variable while in a stateless scope" not in str(error):
                            raise
                        raise _creates(model, "a keras.Variable") from error
                # Known until the scope ends.
                self.created = list(get_global_attribute("uninitialized_variables", []))
            updated = [v for v in variables if scope.get_current_value(v) is not None]
            self.changed = [v for v in updated if id(v) not in seeds]
            return found

        rows = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype), element_spec
        )
        function = tf.function(losses, autograph=False)
        self._losses = function.get_concrete_function(rows)
        with keras.StatelessScope():
            pass  # initialises, when it ends, what was created in the graph

    def __call__(self, batch) -> tf.Tensor:
        """Losses `(b,)`."""
        return self._losses(*tf.nest.flatten(batch))


def _seed_states(model) -> list:
    generators = [g for layer in model._flatten_layers() for g in layer._seed_generators]
    generators.append(global_seed_generator())  # of layers that draw without one of their own
    return [generator.state for generator in generators]


def _reads_other_strings(model) -> UnsupportedModelError:
    return UnsupportedModelError(
        "Expected strings of words, which are looked up: a model is tried on random ones before it "
        f"trains. Received: '{model.name}', which fails on them. Decode images, numbers, dates and "
        "the like before sampling, so that the model gets tensors of numbers."
    )


def _refuse_new_variable(model, next_creator, **arguments):
    raise _creates(model, f"'{arguments.get('name')}'")


def _creates(model, name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"Expected a forward pass that creates no variables. Received: '{model.name}' creates "
        f"{name} each time it is called, so that it is never trained. "
        "Create layers and weights in __init__ or build, and only use them in call."
    )


def _check_first_axes(model, forward, batch) -> None:
    """The recorder refuses outputs whose first axis is not that of the examples.

    An axis that happens to be as long as one batch is not as long as another.
    """

    def recorded(batch):
        size = tf.nest.flatten(batch)[0].shape[0]
        tape = tf.GradientTape(watch_accessed_variables=False)
        with tape, random_numbers_from(FixedSource()), seeds_kept(), capturing(model):
            with Recorder(model.trainable_variables, tape, size):
                forward(batch)

    tf.function(recorded, autograph=False).get_concrete_function(batch)


def _check_gradients(model, forward, batch) -> None:
    """Weights that differ tell the rows of the examples apart."""
    variables = model.trainable_variables
    weights = tf.linspace(0.5, 1.5, tf.nest.flatten(batch)[0].shape[0])

    @tf.function(autograph=False)
    def both_ways(batch):
        with random_numbers_from(FixedSource()):
            recorded = bookkeeping(model, forward, batch).gradients
            found = [gradient.weighted_sum(weights) for gradient in recorded]
        with random_numbers_from(FixedSource()), seeds_kept(), tf.GradientTape() as tape:
            losses, _ = forward(batch)
            loss = tf.reduce_sum(weights * tf.cast(losses, tf.float32))
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(
            loss, [v.value for v in variables], unconnected_gradients=zero
        )
        return found, [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in gradients]

    found, expected = both_ways(batch)
    whole = float(tf.linalg.global_norm(expected))
    if not np.isfinite(whole):
        return
    layers = model._flatten_layers()
    exact = all(getattr(layer, "compute_dtype", None) in (None, "float32") for layer in layers)
    tolerance, share = _GRADIENTS[exact]
    for variable, gradient, reference in zip(variables, found, expected, strict=True):
        same_shape = gradient.shape == reference.shape
        error = float(tf.norm(gradient - reference)) if same_shape else math.inf
        scale = max(float(tf.norm(reference)), share * whole, 1e-12)
        if not error <= tolerance * scale:
            raise UnsupportedModelError(
                "Expected per-example gradients that add up to the ordinary gradient. Received: on "
                f"random data, that of '{variable.path}' is off by {error / scale:.2g} of its norm."
                " Either the model takes examples out of their order, or uses a weight in a way "
                "that the layers do not know of (outside of its layer, say). Use "
                "gradient_method='vectorized', or register the class of the surrounding layer "
                "with tf_lowrank_dp.layers.register_fallback."
            )


def _check_state(model, changed) -> None:
    if changed:
        raise UnsupportedModelError(
            "Expected a forward pass that changes no state but random seeds. Received: "
            f"'{model.name}' updates {[v.path for v in changed]} from its inputs, which would be "
            "saved without noise. Freeze the layer (layer.trainable = False) or replace it."
        )


def _check_shape(losses) -> None:
    if losses.shape.rank != 1 or losses.shape[0] != _ROWS:
        raise UnsupportedModelError(
            f"Expected one loss per example, shape ({_ROWS},) for {_ROWS} examples. Received: "
            f"shape {tuple(losses.shape)}. Let the loss keep its first axis."
        )


def _check_equal(a, b, what: str) -> None:
    a, b = float(a), float(b)
    if not (np.isfinite(a) and np.isfinite(b)):
        return  # Random inputs can be outside a model's domain; there is nothing to compare.
    if abs(a - b) > _TOLERANCE * max(1e-3, abs(a), abs(b)):
        raise UnsupportedModelError(
            "Expected layers and losses that treat each example by itself. Received: on random "
            f"data, an example's loss depends on {what} ({a:.6g} against {b:.6g}). Replace the "
            "layer or loss that mixes examples (batch statistics, contrastive or ranking losses, "
            "means over the batch): no clipping could bound one example's influence."
        )
