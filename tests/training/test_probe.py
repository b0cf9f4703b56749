"""Models whose per-example gradients would be wrong are refused before the first step.

Each of these has outputs with the example axis first, so that only their gradients give them away.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.layers.dense import Dense
from tf_lowrank_dp.training.probe import probe

L, ops = keras.layers, keras.ops
LENGTH, WIDTH = 3, 4
REFUSAL = "add up to the ordinary gradient|use gradient_method='vectorized'"


class Reversed(L.Layer):
    """Hands the examples to its Dense layer from the last to the first."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(WIDTH)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return ops.flip(self.dense(ops.flip(x, 0)), 0)


class Sorted(Reversed):
    """In the order of their first numbers."""

    def call(self, x):
        order = ops.argsort(x[:, 0, 0])
        return ops.take(self.dense(ops.take(x, order, 0)), ops.argsort(order), 0)


class Transposed(Reversed):
    """As `(examples, positions)` that were positions and examples."""

    def call(self, x):
        shape, swapped = ops.shape(x), ops.transpose(x, (1, 0, 2))
        rows = ops.reshape(self.dense(ops.reshape(swapped, shape)), ops.shape(swapped))
        return ops.transpose(rows, (1, 0, 2))


class FirstRow(L.Layer):
    """Adds positions that it looked up for one example, without its axis."""

    def __init__(self):
        super().__init__()
        self.table = L.Embedding(LENGTH, WIDTH)

    def build(self, shape):
        self.table.build()

    def call(self, x):
        return x + self.table(ops.arange(LENGTH)[None])[0]


class Borrowed(Reversed):
    """Uses the kernel of its Dense layer as well."""

    def call(self, x):
        return ops.matmul(self.dense(x), ops.transpose(self.dense.kernel))


class ChildOfAUnit(L.Layer):
    """Calls a layer over positions and then directly."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(WIDTH)
        self.over_positions = L.TimeDistributed(self.dense)

    def build(self, shape):
        self.over_positions.build(shape)

    def call(self, x):
        return self.dense(self.over_positions(x))


class Twice(Dense):
    """Records its own forward pass beside that of its class."""

    def call(self, x):
        return 2.0 * super().call(x)


WRONG = {
    "reversed": Reversed,
    "sorted": Sorted,
    "transposed": Transposed,
    "first row": FirstRow,
    "borrowed kernel": Borrowed,
    "child of a unit": ChildOfAUnit,
    "subclass of a capture": lambda: Twice(WIDTH),
}
SPEC = {"x": tf.TensorSpec((None, LENGTH, WIDTH)), "y": tf.TensorSpec((None, 1))}


def model_of(layer):
    head = [L.Dense(WIDTH, activation="tanh"), L.Flatten(), L.Dense(1)]
    return keras.Sequential([keras.Input((LENGTH, WIDTH)), layer, *head])


def forward_of(model):
    def forward(batch):
        y_pred = model(batch["x"], training=True)
        return tf.reduce_sum(tf.square(y_pred - batch["y"]), -1), ()

    return forward


@pytest.mark.parametrize("name", WRONG)
def test_a_gradient_that_would_be_wrong_is_refused(name):
    keras.utils.set_random_seed(0)
    model = model_of(WRONG[name]())
    with pytest.raises(tfdp.UnsupportedModelError, match=REFUSAL):
        probe(model, forward_of(model), SPEC)
    probe(model, forward_of(model), SPEC, recorded=False)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("layer", [L.LSTM(WIDTH, return_sequences=True), L.LayerNormalization()])
def test_a_gradient_that_is_right_within_its_precision_is_not(policy, layer):
    keras.utils.set_random_seed(0)
    config = {**layer.get_config(), "dtype": policy}
    model = model_of(type(layer).from_config(config))
    model.add(L.Dropout(0.5))
    probe(model, forward_of(model), SPEC)


RANDOM = {
    "dropout": lambda: L.Dropout(0.5),
    "spatial dropout": lambda: L.SpatialDropout1D(0.5),
    "noise": lambda: L.GaussianNoise(1.0),
    "lstm": lambda: L.LSTM(WIDTH, dropout=0.5, recurrent_dropout=0.5, return_sequences=True),
    "gru": lambda: L.Bidirectional(L.GRU(2, dropout=0.5, return_sequences=True)),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_layers_draw_the_same_in_both_passes(name):
    keras.utils.set_random_seed(0)
    model = model_of(RANDOM[name]())
    probe(model, forward_of(model), SPEC)


@pytest.mark.parametrize(
    "mix", [lambda x: ops.cumsum(x, 0), lambda x: ops.roll(x, 1, 0), lambda x: ops.flip(x, 0)]
)
def test_examples_that_see_only_some_others_are_found(mix):
    model = model_of(L.Dense(WIDTH))

    def forward(batch):
        return tf.reduce_sum(tf.square(model(batch["x"]) - mix(batch["y"])), -1), ()

    with pytest.raises(tfdp.UnsupportedModelError, match="other examples of its batch"):
        probe(model, forward, SPEC)


def test_losses_that_are_no_numbers_on_any_random_data_are_refused():
    """Of -1 - x^2 there is no logarithm, so no comparison could tell that rows are joined."""

    def forward(batch):
        logs = tf.math.log(-1.0 - tf.square(model(batch["x"])))[:, 0]
        return logs + tf.math.cumulative_logsumexp(logs), ()

    model = model_of(L.Dense(WIDTH))
    with pytest.raises(tfdp.UnsupportedModelError, match="Expected finite losses on random data"):
        probe(model, forward, SPEC)


def test_a_custom_loop_is_probed_before_its_first_release():
    model = tfdp.make_private(model_of(Reversed()))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3))
    x, y = np.ones((12, LENGTH, WIDTH), "float32"), np.ones((12, 1), "float32")
    sampler = tfdp.PoissonSampler(x, y, batch_size=4, steps=2)
    trainer = tfdp.PrivateTrainer(model, sampler)

    def step(batch):
        return trainer.gradients(forward_of(model), batch)

    for gradients in (step, tf.function(step, autograph=False)):
        with pytest.raises(tfdp.UnsupportedModelError, match=REFUSAL):
            gradients(next(iter(sampler)))
    assert tfdp.privacy_spent(model) == 0.0


RANDOM_LAYERS = {
    "dropout": lambda: L.Dropout(0.5),
    "noise": lambda: L.GaussianNoise(1.0),
    "spatial dropout": lambda: L.SpatialDropout1D(0.3),
    "tf.random": lambda: L.Lambda(lambda x: x + tf.random.normal(tf.shape(x))),
}


@pytest.mark.parametrize("random", RANDOM_LAYERS)
def test_a_loss_that_knows_the_size_of_its_batch_is_refused_with_random_layers_too(random):
    def loss(y, y_pred):
        return ops.mean(ops.square(y - y_pred), (1, 2)) / ops.cast(ops.shape(y)[0], "float32")

    def compiled(loss):
        x = keras.Input((LENGTH, WIDTH))
        model = tfdp.make_private(keras.Model(x, RANDOM_LAYERS[random]()(L.Dense(WIDTH)(x))))
        model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), loss)
        return model

    data = np.ones((16, LENGTH, WIDTH)), np.zeros((16, LENGTH, WIDTH))
    model = compiled(loss)
    with pytest.raises(tfdp.UnsupportedModelError, match="the size of its batch"):
        model.fit(*data, batch_size=4, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0
    compiled("mse").fit(*data, batch_size=4, verbose=0)


def test_a_kernel_used_outside_of_its_layer_is_found_behind_a_head_of_zeros():
    """All gradients below the head were 0, and one that is 61 % off was accepted."""
    dense = L.Dense(WIDTH)

    class Twice(L.Layer):
        def build(self, shape):
            dense.build(shape)
            self.dense = dense

        def call(self, x):
            return self.dense(x) + ops.matmul(x, self.dense.kernel)

    model = keras.Sequential(
        [keras.Input((LENGTH, WIDTH)), Twice(), L.Flatten(), L.Dense(2, kernel_initializer="zeros")]
    )
    with pytest.raises(tfdp.UnsupportedModelError, match=REFUSAL):
        probe(model, forward_of(model), SPEC)
