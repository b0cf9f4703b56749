"""Kernels that are kept standardised, in private training as in ordinary training."""

import math

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp


def network():
    keras.utils.set_random_seed(2)
    standardized = {"kernel_constraint": tfdp.WeightStandardization()}
    return keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            keras.layers.Conv2D(4, 3, activation="relu", **standardized),
            keras.layers.GroupNormalization(2),
            keras.layers.Flatten(),
            keras.layers.Dense(3, **standardized),
        ]
    )


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 6, 6, 1)).astype("float32"), rng.integers(0, 3, 8)


def fit(model, optimizer):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, jit_compile=False)
    model.fit(*data(), batch_size=8, epochs=3, verbose=0)
    return model


def test_without_clip_and_noise_weights_are_those_of_ordinary_training():
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=math.inf, noise_multiplier=0.0)
    private = fit(tfdp.make_private(network()), optimizer)
    plain = fit(network(), "sgd")
    for ours, theirs in zip(private.trainable_variables, plain.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("centering", [False, True])
def test_noised_kernels_have_mean_0_and_norm_1_and_are_saved_so(centering, tmp_path):
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(0.5), l2_norm_clip=1.0, noise_multiplier=1.0, centering=centering
    )
    fit(tfdp.make_private(network()), optimizer).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    kernels = [layer.kernel for layer in loaded.layers if hasattr(layer, "kernel")]
    assert len(kernels) == 2
    for kernel in kernels:
        columns = np.reshape(kernel, (-1, kernel.shape[-1]))
        np.testing.assert_allclose(columns.mean(0), 0.0, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(columns, axis=0), 1.0, atol=1e-5)


def test_a_kernel_of_equal_numbers_becomes_zero():
    assert not np.any(tfdp.WeightStandardization()(np.ones((3, 2), "float32")))
