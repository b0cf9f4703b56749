"""Without clipping and noise, private training is ordinary training, step for step."""

import keras
import numpy as np
import pytest

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "lion": lambda: keras.optimizers.Lion(0.003),
    "schedule": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.2, 2, 0.5), momentum=0.5
    ),
    "clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.05),
    "average": lambda: keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.8),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_no_clipping_and_no_noise_equals_the_plain_keras_optimizer(twins, small_model, data, name):
    _, own = twins(small_model, data(), OPTIMIZERS[name])
    assert int(own.optimizer.iterations) == 9


@pytest.mark.parametrize("method", ["reweight", "vectorized", "loop"])
def test_every_gradient_method_equals_the_plain_keras_optimizer(twins, small_model, data, method):
    twins(small_model, data(), OPTIMIZERS["sgd"], gradient_method=method, epochs=2)


@pytest.mark.parametrize("microbatch_size", [1, 3, 8, 50])
def test_microbatch_size_changes_nothing(twins, small_model, data, microbatch_size):
    twins(small_model, data(), OPTIMIZERS["sgd"], microbatch_size=microbatch_size, epochs=2)


def test_under_xla_private_training_equals_the_plain_keras_optimizer(twins, small_model, data):
    twins(small_model, data(), OPTIMIZERS["sgd"], jit_compile=True, epochs=2)


def test_weight_regularizers_are_added_in_full(twins, small_model, data):
    def build():
        return small_model(
            kernel_regularizer=keras.regularizers.L2(0.1),
            bias_regularizer=keras.regularizers.L1(0.05),
        )

    twins(build, data(), OPTIMIZERS["sgd"])


def test_weight_regularizers_are_not_clipped(small_model, data, private, same_batches):
    """With a clip near 0, all that remains is the regulariser's gradient: decay."""
    model = small_model(kernel_regularizer=keras.regularizers.L2(0.1))
    private(model, keras.optimizers.SGD(0.5), l2_norm_clip=1e-9, noise_multiplier=0.0)
    before = [np.array(layer.kernel) for layer in model.layers]
    model.fit(same_batches(*data()), verbose=0, sampling="shuffle")
    for layer, kernel in zip(model.layers, before, strict=True):
        np.testing.assert_allclose(layer.kernel, kernel * 0.9**3, rtol=1e-4, atol=1e-6)


def test_a_learning_rate_callback_acts_on_the_inner_optimizer(small_model, data, private):
    model = private(small_model())
    callback = keras.callbacks.LearningRateScheduler(lambda epoch: 0.25 / (epoch + 1))
    model.fit(*data(), batch_size=8, epochs=2, verbose=0, callbacks=[callback])
    assert float(model.optimizer.inner_optimizer.learning_rate) == pytest.approx(0.125)


@pytest.mark.parametrize("steps_per_execution", [2, 3])
def test_several_steps_per_execution_equal_ordinary_training(
    twins, small_model, data, steps_per_execution
):
    """Three steps an epoch: the second execution of two has but one step left."""
    _, own = twins(small_model, data(), OPTIMIZERS["adam"], steps_per_execution=steps_per_execution)
    assert int(own.optimizer.iterations) == 9
