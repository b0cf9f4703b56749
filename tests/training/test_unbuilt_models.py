"""Models that `fit` builds from its data, as Keras does, and layers that are never called."""

import warnings

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

L = keras.layers


class Own(keras.Model):
    """With a layer that is never called and, if asked for, a normalisation."""

    def __init__(self, norm=None):
        super().__init__()
        self.hidden, self.head, self.never = L.Dense(4, "tanh"), L.Dense(3), L.Dense(7)
        self.norm = norm

    def call(self, x, training=None):
        x = self.hidden(x)
        return self.head(x if self.norm is None else self.norm(x))


class InferenceNorm(Own):
    """Its normalisation always uses the stored averages."""

    def call(self, x, training=None):
        return self.head(self.norm(self.hidden(x), training=False))


def sequential():
    return keras.Sequential([L.Dense(4, "tanh"), L.Dense(3)])


@pytest.mark.parametrize("make", [Own, sequential])
def test_a_model_that_is_not_built_trains_like_its_built_twin(
    make, private, data, weights_of, assert_same_weights
):
    x, y = data()
    keras.utils.set_random_seed(0)
    model = private(make())
    model.fit(x, y, batch_size=24, epochs=2, verbose=0)
    keras.utils.set_random_seed(0)
    twin = make()
    twin(x[:1])
    before = weights_of(twin)
    twin.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    twin.fit(x, y, batch_size=24, epochs=2, verbose=0, shuffle=False)
    assert any(np.any(a != b) for a, b in zip(before, weights_of(twin), strict=True))
    assert_same_weights(model, twin)


def test_what_a_file_knows_needs_variables_that_it_belongs_to(private, data, tmp_path):
    """A file that holds nothing yet is taken for a model that `fit` builds."""
    x, y = data()
    spent = []
    for number in range(2):
        model = sequential()
        if number:
            with pytest.raises(ValueError, match="is built.*Call it on a batch"):
                tfdp.make_private(model, ledger_path=tmp_path / "ledger")
            model.build(x.shape)
        tfdp.make_private(model, ledger_path=tmp_path / "ledger")
        model.compile(tfdp.DPSGDOptimizer(l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
        model.fit(x, np.eye(3)[y], batch_size=8, verbose=0)
        spent.append(tfdp.privacy_spent(keras.Sequential([model.layers[0]]), 1e-3))
    assert spent[1] > spent[0] > 0


@pytest.mark.parametrize("built", [False, True])
def test_a_normalization_that_would_average_over_a_batch_is_refused(private, data, built):
    x, y = data()
    model = Own(L.BatchNormalization(name="norm"))
    if built:
        model(x)
    model = private(model, noise_multiplier=1.0)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)Expected.*Received.*norm.*Freeze"):
        model.fit(x, y, verbose=0)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0
    model.norm.trainable = False
    model.fit(x, y, verbose=0)


def test_a_normalization_that_is_never_called_in_training_mode_is_trained_and_keeps_its_averages(
    private, data
):
    model = private(InferenceNorm(L.BatchNormalization()), noise_multiplier=1.0)
    model.fit(*data(), batch_size=8, verbose=0)
    assert np.any(np.array(model.norm.beta) != 0.0)
    np.testing.assert_array_equal(model.norm.moving_mean, np.zeros(4))


def test_a_custom_loop_says_how_to_build_the_model(data):
    model = tfdp.make_private(Own())
    model.compile(tfdp.DPSGDOptimizer(l2_norm_clip=1.0, noise_multiplier=1.0))
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=1)
    with pytest.raises(tfdp.UnsupportedModelError, match="(?s)Expected.*Received.*model\\(x\\)"):
        tfdp.PrivateTrainer(model, sampler)
    model(data()[0])
    tfdp.PrivateTrainer(model, sampler)


class SubclassWithoutBuild(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return self.dense(x)


def test_a_model_that_build_gave_no_variables_is_told_to_be_called(data):
    model = SubclassWithoutBuild()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras' own
        model.build((None, 5))
    with pytest.raises(tfdp.UnsupportedModelError, match="call it once on a batch"):
        tfdp.make_private(model)
    model(data()[0][:1])
    tfdp.make_private(model)


class Mapped(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return keras.ops.vectorized_map(lambda row: self.dense(row[None])[0], x)


def test_a_layer_within_a_vectorized_map_trains_as_the_remedy_says(private, data):
    def trained(**how):
        model = keras.Sequential([keras.Input((5,)), Mapped(), keras.layers.Dense(3)])
        return private(model, **how).fit(*data(), batch_size=24, verbose=0)

    with pytest.raises(tfdp.UnsupportedModelError, match="vectorized_map.*gradient_method='loop'"):
        trained()
    trained(gradient_method="loop")
