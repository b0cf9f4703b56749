"""Gradient methods that record what layers compute: bookkeeping and reweight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._tensorflow import kernels_repeat
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.gradient_methods.backward import Backward, Forward
from tf_lowrank_dp.gradient_methods.trial import plan_for
from tf_lowrank_dp.layers.coverage import check_connected, check_coverage
from tf_lowrank_dp.layers.recorder import Plan, Recorder, Site
from tf_lowrank_dp.layers.registry import capturing
from tf_lowrank_dp.per_example.centrable import ImageOfParts, centrable
from tf_lowrank_dp.per_example.combined import combine
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.tracing.example_axis import Label
from tf_lowrank_dp.tracing.random_ops import seeds_kept


def bookkeeping(model: keras.Model, forward: Forward, batch: Nested) -> Backward:
    """One backward pass for the pre-activations; sums are formed from what it leaves behind.

    Args:
        model: a built model.
        forward: takes `batch`, calls the model and returns one loss per example, `(b,)`, and
            anything else.
        batch: nested tensors whose first axis is the example.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        sites, losses, outputs = record(model, forward, batch, tape)
    output_gradients = _output_gradients(tape, losses, sites)
    gradients = _collected(model, sites, output_gradients)
    return Backward(losses, outputs, gradients, _followed(sites, output_gradients))


def reweight(model: keras.Model, forward: Forward, batch: Nested) -> Backward:
    """Two backward passes: the first for norms, the second for the sum of the clipped gradients.

    The second pass adds up the losses of the examples that count, and its output gradients are
    scaled by the clip factors.  Factors on the losses themselves (Lee & Kifer 2020, Algorithm 1)
    would be rounded on the way back in another manner than the first pass was, which moves what is
    released beyond the clip: by half a percent in bfloat16, and by any factor where terms cancel.

    Raises:
        ValueError: on a GPU whose kernels need not repeat what they computed in the first pass.
    """
    if not kernels_repeat():
        raise ValueError(
            "Expected kernels that repeat, bit for bit, what they computed in the first pass. "
            "Received: gradient_method='reweight' on a machine with a GPU, where they need not. "
            "Use gradient_method='auto' (with microbatch_size where memory is short), or call "
            "tf.config.experimental.enable_op_determinism() and keras.utils.set_random_seed first."
        )
    with tf.GradientTape(watch_accessed_variables=False, persistent=True) as tape:
        sites, losses, outputs = record(model, forward, batch, tape)
    first_gradients = _output_gradients(tape, losses, sites)
    norms = _collected(model, sites, first_gradients)

    weighted = {}

    def second_pass(weights: tf.Tensor) -> list[PerExampleGradient]:
        if weights.ref() not in weighted:
            with tape:
                present = tf.cast(weights != 0.0, tf.float32)
                total = tf.reduce_sum(tf.math.multiply_no_nan(losses, present))
            gradients = _output_gradients(tape, total, sites)
            weighted[weights.ref()] = _collected(model, sites, gradients)
        return weighted[weights.ref()]

    gradients = [
        _Reweighted(norm, lambda weights, index=index: second_pass(weights)[index])
        for index, norm in enumerate(norms)
    ]
    return Backward(losses, outputs, gradients, _followed(sites, first_gradients))


class _Reweighted(ImageOfParts):
    """Norms from the first backward pass, sums from a second one that equals it bit for bit."""

    def __init__(self, first: PerExampleGradient, second: Callable[..., PerExampleGradient]):
        self._first, self._second = first, second

    def squared_norms(self) -> tf.Tensor:
        return self._first.squared_norms()

    def squared_norm_bounds(self) -> tf.Tensor:
        return self._first.squared_norm_bounds()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._second(weights).weighted_sum(weights)

    def materialize(self) -> tf.Tensor:
        return self._first.materialize()

    def factors(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        return self._first.factors()

    def mean_inputs(self) -> tf.Tensor:
        return centrable(self._first).mean_inputs()

    def _image(self, image: Callable) -> _Reweighted:
        return _Reweighted(image(self._first), lambda weights: image(self._second(weights)))


def record(
    model: keras.Model, forward: Forward, batch: Nested, tape: tf.GradientTape
) -> tuple[list[Site], tf.Tensor, Nested]:
    """The recorded sites of a forward pass, its losses `(b,)` and what else it returns.

    Args:
        model: a built model.
        forward: takes `batch` and returns losses and more.
        batch: nested tensors whose first axis is the example.
        tape: which is recording.
    """
    variables = model.trainable_variables
    # Operations are found in a graph; in eager mode the fallback takes their place.
    plan = Plan() if tf.executing_eagerly() else plan_for(model, forward, batch)
    recorder = Recorder(variables, tape, _size_of(batch), plan)
    with capturing(model), recorder, seeds_kept():
        losses, outputs = forward(batch)
    recorder.find_operations()
    check_coverage(variables, recorder.sites)
    return recorder.sites, tf.cast(losses, tf.float32), outputs


def _size_of(batch: Nested) -> int | tf.Tensor:
    """Number of examples, an integer where it is known."""
    leaves = tf.nest.flatten(batch)
    known = [leaf.shape[0] for leaf in leaves if leaf.shape[0] is not None]
    return known[0] if known else tf.shape(leaves[0])[0]


def _output_gradients(
    tape: tf.GradientTape, losses: tf.Tensor, sites: Sequence[Site]
) -> list[list[tf.Tensor]]:
    flat = tape.gradient(losses, [output for site in sites for output in site.outputs])
    remaining = iter(flat)
    gradients = [[next(remaining) for _ in site.outputs] for site in sites]
    check_connected(sites, gradients)
    return [
        # Some of TensorFlow's gradients forget what is known of their shape, that of Reshape first.
        [
            tf.zeros_like(o) if d is None else tf.ensure_shape(d, o.shape)
            for o, d in zip(site.outputs, of_site, strict=True)
        ]
        for site, of_site in zip(sites, gradients, strict=True)
    ]


def _followed(
    sites: Sequence[Site], output_gradients: Sequence[Sequence[tf.Tensor]]
) -> list[tuple[tf.Tensor, Label]]:
    """What the gradients are made of, with where the examples should be.

    Outputs' gradients, and the outputs: they tell of the layers' inputs, which kernels' gradients
    are made of too, and which a gradient of one's own may keep out of the losses.  What builders
    have read besides: a second pass through a layer reads whatever its code does.
    """
    pairs = list(zip(sites, output_gradients, strict=True))
    found: list[tuple[tf.Tensor, Label]] = []
    found += [(gradient, site.rows) for site, gradients in pairs for gradient in gradients]
    found += [(output, site.rows) for site in sites for output in site.outputs]
    return found + [each for site in sites for each in site.read]


def _collected(
    model: keras.Model, sites: Sequence[Site], output_gradients: Sequence[Sequence[tf.Tensor]]
) -> list[PerExampleGradient]:
    """For each variable the sum over its sites."""
    found: dict[int, list[PerExampleGradient]] = {id(v): [] for v in model.trainable_variables}
    for site, gradients in zip(sites, output_gradients, strict=True):
        for variable, build in site.builders:
            found[id(variable)].append(build(*gradients))
    return [combine(found[id(v)]) for v in model.trainable_variables]
