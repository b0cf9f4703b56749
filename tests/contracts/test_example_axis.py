"""Outputs whose first axis is not that of the examples are not recorded, however long it is.

Such a model is taken one example at a time.  An output that all examples share is recorded
in a graph, where its uses are found.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.gradient_methods.recorded import bookkeeping
from tf_lowrank_dp.training.probe import probe

L = keras.layers
LENGTH = 3  # as long as one of the probe's batches


class Positions(L.Layer):
    """Looks up the numbers of the positions, without an axis for the examples."""

    def __init__(self):
        super().__init__()
        self.table = L.Embedding(LENGTH, 2, name="table")

    def build(self, shape):
        self.table.build((LENGTH,))

    def call(self, x):
        return x + self.table(keras.ops.arange(LENGTH))


class Joined(L.Layer):
    """Joins examples and positions before a Dense layer, those of a position next to each other."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(2, name="dense")

    def build(self, shape):
        self.dense.build((None, 2))

    def call(self, x):
        rows = keras.ops.reshape(keras.ops.transpose(x, (1, 0, 2)), (-1, 2))
        rows = keras.ops.reshape(self.dense(rows), (LENGTH, -1, 2))
        return keras.ops.transpose(rows, (1, 0, 2))


def joined_model():
    """The same without a layer around it, which could be differentiated as a whole."""
    joined = Joined()
    joined.build(None)
    inputs = keras.Input((LENGTH, 2))
    rows = keras.ops.reshape(keras.ops.transpose(inputs, (1, 0, 2)), (-1, 2))
    rows = keras.ops.reshape(joined.dense(rows), (LENGTH, -1, 2))
    rows = keras.ops.transpose(rows, (1, 0, 2))
    return keras.Model(inputs, L.Dense(1, name="logits")(L.Flatten()(rows)))


def model_of(layer):
    return keras.Sequential([keras.Input((LENGTH, 2)), layer, L.Flatten(), L.Dense(1)])


def forward_of(model):
    return lambda batch: (tf.reduce_sum(tf.square(model(batch["x"])), -1), ())


@pytest.mark.parametrize("layer_class", [Positions, Joined])
@pytest.mark.parametrize("size", [2, 5])
def test_the_recorder_refuses_another_first_axis(layer_class, size):
    model = model_of(layer_class())
    with pytest.raises(tfdp.UnsupportedModelError, match="first axis of the output of layer"):
        bookkeeping(model, forward_of(model), {"x": tf.ones((size, LENGTH, 2))})


def test_the_probe_refuses_it_even_if_one_batch_is_as_long():
    model = joined_model()
    spec = {"x": tf.TensorSpec((None, LENGTH, 2))}
    with pytest.raises(tfdp.UnsupportedModelError, match="first axis of the output of layer"):
        probe(model, forward_of(model), spec)
    probe(model, forward_of(model), spec, recorded=False)


def test_positions_without_examples_train_even_if_a_batch_is_as_long():
    """In a graph: `tests/contracts/operation_cases.py` compares them with the oracle."""
    model = model_of(Positions())
    probe(model, forward_of(model), {"x": tf.TensorSpec((None, LENGTH, 2))})


@pytest.mark.filterwarnings("ignore:.*one example at a time")
def test_public_gradients_of_such_a_model_are_taken_one_at_a_time_as_well():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, LENGTH, 2)).astype("float32"), rng.normal(size=(8, 1))
    model = tfdp.make_private(joined_model())
    public = {"public_data": x, "public_labels": y.astype("float32"), "num_bases": 2}
    optimizer = tfdp.GEPOptimizer(
        "sgd", embedding_clip=1.0, residual_clip=1.0, noise_multiplier=1.0, **public
    )
    model.compile(optimizer, loss="mse")
    model.fit(x, y, batch_size=4, verbose=0)
    assert model.optimizer.ledger.num_steps == 2


def compiled(gradient_method):
    keras.utils.set_random_seed(0)
    model = tfdp.make_private(joined_model())
    arguments = {"l2_norm_clip": 0.1, "noise_multiplier": 1e-8, "gradient_method": gradient_method}
    model.compile(tfdp.DPSGDOptimizer(keras.optimizers.SGD(1.0), **arguments), loss="mse")
    return model


def test_fit_refuses_it_before_the_first_step_where_layers_have_to_be_recorded():
    model, x = compiled("reweight"), np.ones((12, LENGTH, 2), "float32")
    with pytest.raises(tfdp.UnsupportedModelError, match="first axis of the output of layer"):
        model.fit(x, np.ones((12, 1)), batch_size=LENGTH, verbose=0)
    assert tfdp.privacy_spent(model, 1e-3) == 0.0


def test_fit_takes_such_a_model_one_example_at_a_time():
    """As DeBERTa's relative positions: the sum is that of the clipped gradients of each alone."""
    model = compiled("auto")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, LENGTH, 2)).astype("float32"), rng.normal(size=(12, 1))
    before = [variable.numpy() for variable in model.trainable_variables]
    expected = [np.zeros_like(value) for value in before]
    for row in range(12):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x[row : row + 1]) - y[row]))
        gradients = [g.numpy() for g in tape.gradient(loss, model.trainable_variables)]
        norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradients))
        expected = [e + g * min(1.0, 0.1 / norm) for e, g in zip(expected, gradients, strict=True)]
    with pytest.warns(UserWarning, match="one example at a time.*another first axis"):
        model.fit(x, y, batch_size=12, epochs=1, verbose=0)
    for old, new, total in zip(before, model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(old - new.numpy(), total / 12, rtol=1e-3, atol=1e-6)
