"""Comparison of a model's per-example gradients, norms and sums with the oracle."""

import numpy as np
import tensorflow as tf

from tests import oracle
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.mechanism.clipping import unguarded_norms
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.training.probe import probe


def make_batch(case, size, seed=0):
    generator = np.random.default_rng(seed)
    if case.kind == "ids":
        x = generator.integers(0, 5, (size, *case.shape)).astype("int32")
    else:
        x = generator.normal(size=(size, *case.shape)).astype("float32")
    y = generator.normal(size=(size, 3)).astype("float32")
    return {"x": tf.constant(x), "y": tf.constant(y)}


def losses_of(model):
    def losses(batch):
        y_pred = tf.cast(model(batch["x"], training=True), tf.float32)
        return tf.reduce_sum(tf.square(y_pred - batch["y"]), -1) + tf.reduce_sum(tf.sin(y_pred), -1)

    return losses


def computed(model, method, batch, presence, clip):
    """Norms, weighted sums, unguarded clipped sums and guarded clipped sums."""
    losses = losses_of(model)
    gradients = METHODS[method](model, lambda b: (losses(b), ()), batch).gradients
    norms = unguarded_norms(gradients)
    factors = presence * tf.minimum(1.0, tf.math.divide_no_nan(clip, norms))
    sums = [g.weighted_sum(factors) for g in gradients]
    guarded = GaussianMechanism(clip, 0.0).clipped_sums([gradients], presence)[0]
    return norms, [g.materialize() for g in gradients], sums, guarded


def check(model, batch, method, mode, tolerance, guarded_tolerance=5e-3, expected=None):
    """Compares with the oracle's gradients, which are computed where they are not given."""
    size = batch["y"].shape[0]
    presence = np.ones(size, "float32")
    presence[size // 2 :][:1] = 0.0 if size > 2 else 1.0  # one padded row where there are several
    if expected is None:
        expected = oracle.per_example_gradients(model, losses_of(model), batch)
    norms = oracle.norms(expected)
    clip = float(np.median(norms)) if size else 1.0

    def step(batch, presence):
        return computed(model, method, batch, presence, clip)

    if mode != "eager":
        step = tf.function(step, jit_compile=mode == "xla", autograph=False)
    found_norms, found, sums, guarded = step(batch, tf.constant(presence))
    assert all(tensor.dtype == tf.float32 for tensor in (found_norms, *found, *sums, *guarded))
    assert oracle.relative_error(found_norms, norms) <= tolerance
    expected_sums = oracle.clipped_sums(expected, presence, clip)
    total = max([np.max(np.abs(e)) for e in expected_sums], default=1.0)
    for index, variable in enumerate(model.trainable_variables):
        # Errors are relative to the example's whole gradient: single variables may cancel to 0.
        scale = max(np.max(norms, initial=0.0), 1e-6)
        assert oracle.relative_error(found[index], expected[index], scale) <= tolerance, (
            variable.path
        )
        assert oracle.relative_error(sums[index], expected_sums[index], total) <= tolerance
        # The guarded norm is an upper bound: it may clip a little more, never less.
        assert (
            oracle.relative_error(guarded[index], expected_sums[index], total) <= guarded_tolerance
        )


def check_probe(model, batch):
    """The probe, which looks at random data of this form, has nothing against the model."""
    losses = losses_of(model)
    spec = tf.nest.map_structure(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), batch)
    probe(model, lambda b: (losses(b), ()), spec)
