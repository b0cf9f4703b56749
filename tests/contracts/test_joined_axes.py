"""Layers that see several rows of each example: `(b, k, ...)` reshaped to `(b k, ...)` and back."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.contracts.case import LayerCase
from tests.contracts.checks import check, check_probe, losses_of, make_batch
from tests.contracts.layer_cases import build_model
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.gradient_methods.trial import known_plan

L, ops = keras.layers, keras.ops


class OfRows(L.Layer):
    """Gives a layer the rows of all examples, one after the other."""

    def __init__(self, layer, axes=1):
        super().__init__()
        self.layer, self.axes = layer, axes

    def call(self, x):
        y = self.layer(ops.reshape(x, (-1, *x.shape[1 + self.axes :])))
        return ops.reshape(y, (-1, *x.shape[1 : 1 + self.axes], *y.shape[1:]))


def of_rows(make, axes=1):
    return lambda: OfRows(make(), axes)


@tfdp.layers.register_fallback
class Own(L.Layer):
    def build(self, shape):
        self.own = self.add_weight(shape=(shape[-1], 3), initializer="glorot_normal")

    def call(self, x):
        return ops.tanh(ops.matmul(x, self.own))


def windows():
    """Rows of windows, as in window attention: `(b, 2, 3, 2, 3, c)` to `(b 4, 9, c)`."""

    def partition(x):
        x = ops.transpose(ops.reshape(x, (-1, 2, 3, 2, 3, 4)), (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, 9, 4))

    attention, dense = L.MultiHeadAttention(2, 3), L.Dense(2)
    return lambda x: L.Reshape((36, 2))(_Windowed(attention, dense, partition)(x))


class _Windowed(L.Layer):
    def __init__(self, attention, dense, partition):
        super().__init__()
        self.attention, self.dense, self.partition = attention, dense, partition

    def call(self, x):
        rows = self.partition(x)
        return ops.reshape(self.dense(self.attention(rows, rows)), (-1, 4, 9, 2))


CASES = [
    LayerCase("dense", of_rows(lambda: L.Dense(4)), (6, 5)),
    LayerCase("dense of two axes", of_rows(lambda: L.Dense(4), 2), (3, 2, 5)),
    LayerCase("conv2d", of_rows(lambda: L.Conv2D(3, 2, strides=2)), (3, 5, 4, 2)),
    LayerCase("layer norm", of_rows(lambda: L.LayerNormalization()), (4, 5)),
    LayerCase("embedding", of_rows(lambda: L.Embedding(5, 3)), (4, 2), "ids"),
    LayerCase("einsum", of_rows(lambda: L.EinsumDense("bti,io->bto", (None, 3))), (4, 3, 5)),
    LayerCase("lstm", of_rows(lambda: L.LSTM(3)), (4, 3, 2)),
    LayerCase("attention in windows", windows, (6, 6, 4)),
    LayerCase("fallback", of_rows(lambda: Own()), (4, 5)),
    LayerCase("again", of_rows(lambda: OfRows(L.Dense(4))), (3, 2, 5)),
]
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_name
@pytest.mark.parametrize("method", ["bookkeeping", "reweight"])
def test_gradients_are_those_of_examples_one_at_a_time(case, method):
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case, 4)
    check(model, batch, method, "graph", 2e-5)
    check_probe(model, batch)
    assert known_plan(model).rows_each


@by_name
def test_images_are_those_of_the_sums(case):
    """What RGP, LSG, Sparse and centred gradients are made of."""
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case, 3)
    losses = losses_of(model)
    exact = oracle.per_example_gradients(model, losses, batch)

    @tf.function(autograph=False)
    def images(batch):
        found = METHODS["bookkeeping"](model, lambda b: (losses(b), ()), batch).gradients
        masks = [tf.cast(tf.range(tf.size(v.value)) % 2, tf.float32) for v in variables]
        masks = [tf.reshape(m, v.shape) for m, v in zip(masks, variables, strict=True)]
        return masks, [g.masked(m).materialize() for g, m in zip(found, masks, strict=True)]

    variables = model.trainable_variables
    for mask, image, gradient in zip(*images(batch), exact, strict=True):
        np.testing.assert_allclose(image, gradient * mask.numpy(), rtol=1e-3, atol=2e-5)


OPTIMIZERS = {
    "dpsgd": lambda **a: tfdp.DPSGDOptimizer("sgd", **a),
    "centred": lambda **a: tfdp.DPSGDOptimizer("sgd", centering=True, **a),
    "rgp": lambda **a: tfdp.RGPOptimizer("sgd", rank=2, **a),
    "lsg": lambda **a: tfdp.LSGOptimizer("sgd", rank=2, sparsity=0.5, **a),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_they_train_in_fit(name, jit_compile):
    keras.utils.set_random_seed(1)
    model = tfdp.make_private(build_model(CASES[0]))
    optimizer = OPTIMIZERS[name](l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    x, y = np.ones((24, 6, 5), "float32"), np.ones((24, 3), "float32")
    before = [v.numpy() for v in model.trainable_variables]
    model.fit(x, y, batch_size=6, epochs=1, multiplicity=1, verbose=0)
    for value, variable in zip(before, model.trainable_variables, strict=True):
        assert np.any(variable.numpy() != value), variable.path


def test_units_of_several_rows_train_as_well():
    model = tfdp.make_private(build_model(CASES[0]))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse")
    x, y = np.ones((24, 6, 5), "float32"), np.ones((24, 3), "float32")
    ids = np.arange(24) // 3
    model.fit(x, y, batch_size=2, unit_ids=ids, rows_per_unit=2, verbose=0)
    assert tfdp.privacy_spent(model, 1e-3) > 0.0


def test_rows_of_different_examples_next_to_each_other_are_refused():
    """Time first, without a layer around that could be taken as a whole."""

    def time_first(x):
        rows = L.Dense(4)(ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, 5)))
        return ops.transpose(ops.reshape(rows, (6, -1, 4)), (1, 0, 2))

    model = build_model(LayerCase("time first", lambda: time_first, (6, 5)))
    with pytest.raises(tfdp.UnsupportedModelError, match="rows of each next to each other"):
        check_probe(model, make_batch(CASES[0], 3))
