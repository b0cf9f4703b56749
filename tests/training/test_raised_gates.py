"""A term that joins examples behind a variable that a callback raises is seen before training.

The operations are those that the walk through the graph does not follow. By how many clips a
record moved the sum once the gate was open stands beside some.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.state import ledger_of

L, N = keras.layers, 16


def sparse_product(x):
    ones = tf.sparse.from_dense(tf.ones([tf.shape(x)[0], tf.shape(x)[0]]))
    return tf.sparse.sparse_dense_matmul(ones, x)


def of_mask(x):
    return tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > -9), 0)


def of_parts(x):
    parts = tf.dynamic_partition(x, tf.cast(x[:, 0] > 0, tf.int32), 2)
    return tf.reduce_sum(parts[0], 0) + tf.reduce_sum(parts[1], 0)


def scattered(x):
    return tf.scatter_nd(tf.zeros([tf.shape(x)[0], 1], tf.int32), x, tf.shape(x))


def gathered(x):
    rows = tf.range(tf.shape(x)[0])[::-1]
    return tf.gather_nd(x, rows[:, None])


def moved(x):
    return tf.reshape(tf.transpose(x), tf.shape(x))


def singular(x):
    return tf.linalg.svd(x, compute_uv=False)[:1] * tf.ones([1, 4])


JOINS = [sparse_product, of_mask, of_parts, scattered, gathered, moved, singular]  # 2 to 52 clips


class Gated(L.Layer):
    """`x + gate * term(x)`, with a gate that nobody trains."""

    def __init__(self, term, gate):
        super().__init__()
        self.term, self.gate = term, gate

    def call(self, x):
        return x + tf.cast(tf.convert_to_tensor(self.gate), x.dtype) * self.term(x)


def gates():
    return {
        "keras": keras.Variable(0.0, trainable=False),
        "tensorflow": tf.Variable([0.0], trainable=False),
        "counter": keras.Variable(0, dtype="int64", trainable=False),
        "flag": tf.Variable(False, trainable=False),
    }


def fitted(private, term, gate, loss=None):
    model = keras.Sequential([keras.Input((4,)), Gated(term, gate), L.Dense(2)])
    own = {} if loss is None else {"loss": loss}
    private(model, noise_multiplier=1.0, **own)
    model.compile(model.optimizer, model.loss, jit_compile=False)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(N, 4)).astype("float32")
    model.fit(x, generator.integers(0, 2, N), batch_size=8, verbose=0)
    return ledger_of(model).num_steps


@pytest.mark.parametrize("term", JOINS)
def test_a_term_that_joins_examples_behind_a_closed_gate_is_refused(private, term):
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, term, gates()["keras"])


@pytest.mark.parametrize("kind", ["tensorflow", "counter", "flag"])
def test_whatever_the_gate_is(private, kind):
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, of_mask, gates()[kind])


def test_a_loss_that_knows_the_size_of_its_batch_behind_a_closed_gate_is_refused(private):
    """14 clips."""
    gate = tf.Variable(0.0, trainable=False)

    def loss(y_true, y_pred):
        each = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        return each * (1.0 + gate / tf.cast(tf.maximum(tf.shape(y_pred)[0] // 8, 1), tf.float32))

    with pytest.raises(tfdp.UnsupportedModelError, match="the size of its batch"):
        fitted(private, tf.zeros_like, tf.Variable(0.0, trainable=False), loss)


def own_rows(x):
    return tf.vectorized_map(lambda row: tf.reduce_sum(row, keepdims=True) * row, x)


@pytest.mark.parametrize("kind", gates())
def test_a_term_of_each_example_behind_a_gate_is_trained_and_the_gate_keeps_its_value(
    private, kind
):
    gate = gates()[kind]
    assert fitted(private, own_rows, gate) == 2
    assert not np.any(tf.convert_to_tensor(gate))


def test_traces_of_one_model_may_read_different_gates(private, monkeypatch):
    """As those of an object detector do, which had ended in an error of `zip`."""
    counts, looked_at = iter([1, 3]), []
    monkeypatch.setattr(
        "tf_lowrank_dp.training.probe.with_raised_gates",
        lambda *_: map(looked_at.append, range(next(counts))),
    )
    layers = [keras.Input((4,)), L.Lambda(own_rows, output_shape=(4,)), L.Dropout(0.2), L.Dense(3)]
    model = private(keras.Sequential(layers), noise_multiplier=1.0, gradient_method="vectorized")
    x = np.random.default_rng(0).normal(size=(N, 4)).astype("float32")
    model.fit(x, np.zeros(N, "int32"), batch_size=8, verbose=0)
    assert looked_at == [0, 0, 1, 2] and ledger_of(model).num_steps == 2


class Opened(L.Layer):
    """`x + opening(gate) * term(x)`: a gate that opens far from where it is."""

    def __init__(self, gate, opening):
        super().__init__()
        self.gate, self.opening = gate, opening

    def call(self, x):
        return x + tf.cast(self.opening(tf.convert_to_tensor(self.gate)), x.dtype) * of_mask(x)


FAR = {
    "a large scalar": (0.0, lambda gate: gate > 100.0),
    "a negative scalar": (0.0, lambda gate: tf.nn.relu(-gate)),
    "a thousand steps": (0, lambda gate: gate > 1_000),
    "a hundred thousand steps": (0, lambda gate: gate > 100_000),
    "odd steps": (0, lambda gate: gate % 2 == 1),
    "steps in a vector": ([0], lambda gate: gate > 1_000),
}


@pytest.mark.parametrize("value, opening", FAR.values(), ids=FAR)
def test_a_gate_that_opens_late_is_seen_as_well(private, value, opening):
    dtype = "float32" if isinstance(value, float) else "int64"
    gate = keras.Variable(value, dtype=dtype, trainable=False)
    model = keras.Sequential([keras.Input((4,)), Opened(gate, opening), L.Dense(2)])
    private(model, noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        model.fit(np.ones((N, 4), "float32"), np.zeros(N, int), batch_size=8, verbose=0)
