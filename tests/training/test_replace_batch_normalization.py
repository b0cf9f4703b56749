"""`replace_batch_normalization`: what is replaced, what is kept, what is refused."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp

L = keras.layers
MESSAGE = "(?s)Expected.*Received.*"


def convolutional(channels=8, **norm):
    """Two convolutions with residual connection, random weights everywhere."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 3))
    x = L.Conv2D(channels, 3, padding="same", name="one")(inputs)
    y = L.ReLU()(L.BatchNormalization(name="norm", **norm)(x))
    x = x + L.Conv2D(channels, 3, padding="same", name="two", trainable=False)(y)
    return randomized(keras.Model(inputs, L.Dense(3, name="head")(L.GlobalMaxPooling2D()(x))))


def randomized(model):
    generator = np.random.default_rng(3)
    model.set_weights([generator.uniform(0.5, 1.5, w.shape) for w in model.get_weights()])
    return model


def normalizations(model):
    kinds = (L.BatchNormalization, L.GroupNormalization)
    return [layer for layer in model._flatten_layers() if isinstance(layer, kinds)]


def images(size=5):
    return np.random.default_rng(1).normal(size=(size, 6, 6, 3)).astype("float32")


def group_norm_of(x, groups, layer):
    """Wu & He (2018) in numpy."""
    grouped = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = grouped.var((1, 3), keepdims=True)
    normalized = ((grouped - mean) / np.sqrt(variance + layer.epsilon)).reshape(x.shape)
    return normalized * np.array(layer.gamma) + np.array(layer.beta)


def test_the_copy_normalises_groups_with_the_scale_and_offset_of_the_original():
    model = convolutional(epsilon=0.01)
    copy = tfdp.replace_batch_normalization(model, groups=2)
    assert [type(layer) for layer in normalizations(copy)] == [L.GroupNormalization]
    before = keras.Model(model.inputs[0], model.get_layer("one").output)(images())
    found = keras.Model(copy.inputs[0], copy.get_layer("norm").output)(images())
    expected = group_norm_of(np.array(before), 2, model.get_layer("norm"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_all_other_weights_and_what_is_frozen_are_kept_and_the_original_is_left():
    model = convolutional()
    before = model.get_weights()
    copy = tfdp.replace_batch_normalization(model)
    for name in ("one", "two", "head"):
        layer, new = model.get_layer(name), copy.get_layer(name)
        assert layer is not new and layer.trainable == new.trainable
        for weight, new_weight in zip(layer.get_weights(), new.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, new_weight)
    assert [type(layer) for layer in normalizations(model)] == [L.BatchNormalization]
    for weight, after in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, after)


@pytest.mark.parametrize(
    ("channels", "groups", "expected"),
    [(64, 32, 16), (256, 32, 32), (24, 32, 6), (24, 5, 4), (3, 32, 1), (14, 32, 2), (7, 3, 1)],
)
def test_groups_divide_the_channels(channels, groups, expected):
    model = keras.Sequential([keras.Input((2, 2, channels)), L.BatchNormalization()])
    [layer] = normalizations(tfdp.replace_batch_normalization(model, groups))
    assert layer.groups == expected


def test_axis_dtype_and_missing_scale_are_kept():
    norm = L.BatchNormalization(axis=1, scale=False, dtype="mixed_bfloat16", name="norm")
    model = keras.Sequential([keras.Input((8, 4)), norm])
    [layer] = normalizations(tfdp.replace_batch_normalization(model))
    assert (layer.axis, layer.gamma, layer.compute_dtype) == (1, None, "bfloat16")


def test_nested_models_and_layers_used_twice_are_replaced():
    keras.utils.set_random_seed(0)
    block = keras.Sequential([L.Conv2D(3, 1), L.BatchNormalization()], name="block")
    inputs = keras.Input((6, 6, 3))
    inner = keras.Model(inputs, block(block(inputs)), name="inner")
    model = randomized(keras.Sequential([keras.Input((6, 6, 3)), inner, L.Flatten(), L.Dense(2)]))
    copy = tfdp.replace_batch_normalization(model)
    assert [type(layer) for layer in normalizations(copy)] == [L.GroupNormalization]
    assert len(copy.trainable_variables) == len(model.trainable_variables)
    for v, w in zip(model.trainable_variables, copy.trainable_variables, strict=True):
        np.testing.assert_array_equal(v, w)


def test_a_sequential_model_that_was_built_by_data_is_copied():
    model = keras.Sequential([L.Conv2D(4, 3), L.BatchNormalization(), L.Flatten(), L.Dense(2)])
    model(images())
    copy = tfdp.replace_batch_normalization(model)
    np.testing.assert_array_equal(model.layers[0].kernel, copy.layers[0].kernel)


def test_the_copy_trains_privately_and_its_original_cannot(private, data):
    x, y = images(24), data()[1]
    model = convolutional()
    with pytest.raises(tfdp.UnsupportedModelError, match="tfdp.replace_batch_normalization"):
        tfdp.make_private(model)
    copy = private(tfdp.replace_batch_normalization(model), noise_multiplier=1.0)
    copy.fit(x, y, batch_size=8, verbose=0)
    assert tfdp.privacy_spent(copy, 1e-3) > 0


class Block(L.Layer):
    def __init__(self, of_call=(), **kwargs):
        super().__init__(**kwargs)
        self.of_call = dict(of_call)
        self.norm = L.BatchNormalization(name="hidden")

    def build(self, shape):
        self.norm.build(shape)

    def call(self, x):
        return self.norm(x, **self.of_call)


def test_batch_normalization_inside_of_a_layer_is_refused_by_name():
    model = keras.Sequential([keras.Input((4,)), Block(name="block")])
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "hidden.*block.*GroupNorm"):
        tfdp.replace_batch_normalization(model)


def test_a_subclassed_model_is_refused():
    class Own(keras.Model):
        pass

    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "Own.*GroupNorm"):
        tfdp.replace_batch_normalization(Own())


def test_a_model_that_is_not_built_is_refused():
    model = keras.Sequential([L.BatchNormalization()])
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "build"):
        tfdp.replace_batch_normalization(model)


def test_a_private_model_is_refused_because_a_copy_would_lose_its_ledger(private, data):
    model = private(convolutional(trainable=False), noise_multiplier=1.0)
    with pytest.raises(tfdp.NotPrivateError, match=MESSAGE + "ledger"):
        tfdp.replace_batch_normalization(model)
    model.fit(images(24), data()[1], batch_size=8, verbose=0)
    tfdp.make_standard(model)
    with pytest.raises(tfdp.NotPrivateError, match=MESSAGE + "ledger"):
        tfdp.replace_batch_normalization(model)


def unregistered(x):
    return 2.0 * x


def test_functions_that_are_not_registered_are_kept():
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            L.Lambda(lambda x: x / 3.0),
            L.Lambda(unregistered, name="twice"),
            L.Conv2D(4, 3, activation=unregistered),
            L.BatchNormalization(trainable=False),
            L.Activation(unregistered),
            L.Flatten(),
            L.Dense(2),
        ]
    )
    copy = tfdp.replace_batch_normalization(randomized(model))
    np.testing.assert_allclose(copy(images()), model(images()), rtol=1e-5)


def test_a_frozen_normalization_mixes_nothing_and_is_kept():
    model = convolutional(trainable=False)
    copy = tfdp.replace_batch_normalization(model)
    assert [type(layer) for layer in normalizations(copy)] == [L.BatchNormalization]
    assert not normalizations(copy)[0].trainable
    np.testing.assert_allclose(copy(images()), model(images()), rtol=1e-5)


def test_a_normalization_that_is_called_without_training_is_kept(private, data):
    model = keras.Sequential([keras.Input((5,)), Block({"training": False}), L.Dense(3)])
    copy = private(tfdp.replace_batch_normalization(model), noise_multiplier=1.0)
    assert [type(layer) for layer in normalizations(copy)] == [L.BatchNormalization]
    copy.fit(*data(), batch_size=8, verbose=0)
    np.testing.assert_array_equal(normalizations(copy)[0].moving_mean, np.zeros(5))


def test_a_single_number_cannot_be_normalised_by_itself_and_the_remedy_works():
    norm = L.BatchNormalization(name="single")
    model = keras.Sequential([keras.Input((1,)), norm, L.Dense(2)])
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "single.*freeze"):
        tfdp.replace_batch_normalization(model)
    norm.trainable = False
    tfdp.make_private(tfdp.replace_batch_normalization(model))


class WithoutConfig(keras.Model):
    def __init__(self, units):
        super().__init__()
        self.inner = L.Dense(units)

    def call(self, x):
        return self.inner(x)


def test_a_layer_that_cannot_be_made_anew_is_refused_by_name():
    inputs = keras.Input((5,))
    outputs = WithoutConfig(2)(L.BatchNormalization()(inputs))
    with pytest.raises(tfdp.UnsupportedModelError, match=MESSAGE + "WithoutConfig.*get_config"):
        tfdp.replace_batch_normalization(keras.Model(inputs, outputs))


@pytest.mark.parametrize("groups", [0, -1, 1.5, True])
def test_wrong_numbers_of_groups_are_refused(groups):
    with pytest.raises(ValueError, match=MESSAGE):
        tfdp.replace_batch_normalization(convolutional(), groups)
