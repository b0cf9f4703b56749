"""A record that cannot be used costs itself: all else is as if it were absent, and nothing raises.

Without noise the release is compared with that of the same batch in which the record is padding.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.training.compiled_loss import CompiledLoss
from tf_lowrank_dp.training.start_run import start_run

ROWS, BAD = 6, 2
NAN, INFINITY = float("nan"), float("inf")
SPARSE = keras.losses.SparseCategoricalCrossentropy


def classifier():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])


def tagger():
    """A class for each of four tokens."""
    return keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(7, 3),
            keras.layers.Dense(3),
        ]
    )


def batch_of(generator, tokens):
    shape = (ROWS, 4) if tokens else (ROWS,)
    x = generator.normal(size=(ROWS, 5)).astype("float32")
    return {
        "x": generator.integers(0, 7, (ROWS, 4)).astype("int32") if tokens else x,
        "y": generator.integers(0, 3, shape).astype("int32"),
        "sample_weight": np.ones(shape, "float32"),
        "presence": np.ones(ROWS, "float32"),
    }


@pytest.fixture
def release():
    """Private gradients without noise, through the compiled loss as in `fit`."""

    def release(model, loss, batch, compiled=False):
        tfdp.make_private(model)
        optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=0.5, noise_multiplier=0.0)
        model.compile(optimizer, loss=loss)
        run = start_run(model, Sampling.poisson(60, ROWS), 1, loss=CompiledLoss(model, ROWS))
        batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
        presence = batch.pop("presence")
        release = run.engine.private_gradients
        step = tf.function(lambda b, p: release(run.loss, b, p, jit_compile=compiled))
        return [gradient.numpy() for gradient in step(batch, presence)]

    return release


def crossentropy_of_logits(y_true, y_pred):
    """A loss that overflows for one record, marked by its label."""
    losses = keras.losses.sparse_categorical_crossentropy(tf.minimum(y_true, 2), y_pred, True)
    return losses / tf.where(tf.reshape(y_true, [-1]) > 2, 0.0, 1.0)


CASES = {
    "NaN in the inputs": (classifier, SPARSE(from_logits=True), "x", (0,), NAN),
    "infinity in the inputs": (classifier, SPARSE(from_logits=True), "x", (4,), -INFINITY),
    "NaN in the targets": (classifier, "mse", "y", (1,), NAN),
    "infinity in the targets": (classifier, "mse", "y", (0,), INFINITY),
    "NaN as weight": (classifier, SPARSE(from_logits=True), "sample_weight", (), NAN),
    "infinity as weight": (classifier, SPARSE(from_logits=True), "sample_weight", (), INFINITY),
    "a loss divided by 0": (classifier, crossentropy_of_logits, "y", (), 3),
    "a label too large": (classifier, SPARSE(from_logits=True), "y", (), 3),
    "a negative label": (classifier, SPARSE(from_logits=True), "y", (), -1),
    "a label beside the ignored one": (
        classifier,
        SPARSE(from_logits=True, ignore_class=-1),
        "y",
        (),
        -2,
    ),
    "a label for the loss by name": (
        classifier,
        "sparse_categorical_crossentropy",
        "y",
        (),
        1_000_000,
    ),
    "one label of a sequence": (tagger, SPARSE(from_logits=True), "y", (3,), 3),
    "an id too large": (tagger, SPARSE(from_logits=True), "x", (1,), 7),
    "a huge id": (tagger, SPARSE(from_logits=True), "x", (0,), 2**31 - 1),
    "an id below the first row": (tagger, SPARSE(from_logits=True), "x", (1,), -8),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_record_contributes_nothing_and_changes_nothing_else(release, case):
    build, loss, key, position, value = CASES[case]
    generator = np.random.default_rng(0)
    good = batch_of(generator, build is tagger)
    if loss == "mse":
        good["y"] = generator.normal(size=(ROWS, 3)).astype("float32")
    bad = {name: array.copy() for name, array in good.items()}
    bad[key][(BAD, *position)] = value
    good["presence"][BAD] = 0.0
    model = build()
    expected, received = release(model, loss, good), release(model, loss, bad)
    for left, right in zip(expected, received, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-6, atol=1e-7)
        assert np.any(left != 0)


def test_bad_labels_and_ids_cost_the_same_under_xla(release):
    good = batch_of(np.random.default_rng(0), tokens=True)
    bad = {name: array.copy() for name, array in good.items()}
    bad["y"][1, 0], bad["x"][BAD, 0] = 9, 9
    good["presence"][[1, BAD]] = 0.0
    model, loss = tagger(), SPARSE(from_logits=True)
    for left, right in zip(
        release(model, loss, good, True), release(model, loss, bad, True), strict=True
    ):
        np.testing.assert_allclose(right, left, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("how", ("weight 0", "the ignored class"))
def test_labels_that_do_not_count_need_be_no_classes(release, how):
    """Padding of a sequence often is -1; the tokens beside it are kept."""
    good = batch_of(np.random.default_rng(0), tokens=True)
    padded = {name: array.copy() for name, array in good.items()}
    loss = SPARSE(from_logits=True, ignore_class=-1 if how == "the ignored class" else None)
    if how == "weight 0":
        for batch in (good, padded):
            batch["sample_weight"][BAD, 2:] = 0.0
        padded["y"][BAD, 2:] = -1
    else:
        good["y"][BAD, 2:], padded["y"][BAD, 2:] = -1, -1
        good["x"][BAD, 2:] = padded["x"][BAD, 2:]
    model = tagger()
    expected, received = release(model, loss, good), release(model, loss, padded)
    for left, right in zip(expected, received, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-6, atol=1e-7)
    good["presence"][BAD] = 0.0
    without = release(model, loss, good)
    assert any(np.any(a != b) for a, b in zip(without, received, strict=True))


def test_ids_below_zero_count_from_the_end_as_keras_reads_them(release):
    last = batch_of(np.random.default_rng(0), tokens=True)
    last["x"][BAD, 1] = 6
    negative = {name: array.copy() for name, array in last.items()}
    negative["x"][BAD, 1] = -1
    model, loss = tagger(), SPARSE(from_logits=True)
    for left, right in zip(release(model, loss, last), release(model, loss, negative), strict=True):
        np.testing.assert_array_equal(left, right)


def test_fit_trains_on_with_bad_records_and_counts_every_step(build, data):
    """An error would tell of one record; three labels and inputs of the data are hostile."""
    x, y = data
    x[3], x[7, 1], y[11] = NAN, INFINITY, 12
    model = build()
    model.fit(x, y, batch_size=12, epochs=2, verbose=0)
    assert all(np.all(np.isfinite(w)) for w in model.get_weights())
    assert model.optimizer.ledger.num_steps == 4


def test_empty_draws_are_steps_of_noise_that_count(build, data):
    """With one example expected of 24, about every third draw is empty."""
    x, y = data
    model = build(noise_multiplier=1.0)
    seen = []
    weights = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(model.get_weights()[0])
    )
    model.fit(x, y, batch_size=1, verbose=0, callbacks=[weights])
    assert model.optimizer.ledger.num_steps == len(seen) == 24
    assert all(np.any(a != b) for a, b in zip(seen, seen[1:], strict=False))
    assert np.all(np.isfinite(seen[-1]))
