"""What `fit` takes as data, and the statements about it that it refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

NOISY = {"noise_multiplier": 1.0}


def steps_of(model):
    return int(model.optimizer.iterations)


@pytest.fixture
def model(private, small_model):
    return private(small_model(), **NOISY)


def refused(model, match, *args, **kwargs):
    with pytest.raises(ValueError, match=f"(?s)Expected.*{match}"):
        model.fit(*args, verbose=0, **kwargs)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


def test_a_batch_size_above_the_number_of_examples_is_refused(model, data):
    refused(model, "Received: batch_size=25", *data(), batch_size=25)


def test_the_number_of_examples_is_that_after_validation_split(model, data):
    refused(model, "Received: batch_size=20", *data(), batch_size=20, validation_split=0.5)


def test_a_data_set_needs_a_statement_of_how_it_was_sampled(model, data, same_batches):
    refused(model, "poisson.*shuffle", same_batches(*data()))


def test_arrays_need_no_statement(model, data):
    refused(model, "arrays", *data(), batch_size=8, sampling="shuffle")


@pytest.mark.parametrize(
    "beside", [{"class_weight": {0: 2.0}}, {"sample_weight": np.ones(24)}, {"y": np.zeros(24)}]
)
def test_what_is_given_beside_batches_is_refused_not_dropped(model, data, same_batches, beside):
    refused(model, next(iter(beside)), same_batches(*data()), sampling="shuffle", **beside)
    refused(model, next(iter(beside)), tfdp.PoissonSampler(*data(), batch_size=8), **beside)


def test_a_batch_size_that_contradicts_the_sampler_is_refused(model, data):
    refused(model, "batch_size=5", tfdp.PoissonSampler(*data(), batch_size=8), batch_size=5)


def test_more_steps_than_a_sampler_has_are_refused(model, data):
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=2)
    refused(model, "steps_per_epoch=3", sampler, steps_per_epoch=3)


def test_an_endless_poisson_data_set_needs_steps_per_epoch(model, data):
    def batches():
        while True:
            yield data()

    stated = {"sampling": "poisson", "batch_size": 24, "num_examples": 24}
    refused(model, "steps_per_epoch", batches, **stated)
    model.fit(batches, **stated, steps_per_epoch=2, epochs=2, verbose=0)
    assert steps_of(model) == 4


def test_passes_over_shuffled_data_are_counted_as_gaussians(model, data, same_batches):
    model.fit(same_batches(*data()), sampling="shuffle", epochs=2, verbose=0)
    import dp_accounting

    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.GaussianDpEvent(1.0), 2)
    assert tfdp.privacy_spent(model, 1e-3) == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-3)
    assert "replac" in tfdp.privacy_statement(model, 1e-3).lower()


def test_an_epoch_has_as_many_steps_as_examples_over_batch_size_rounded_up(model, data):
    model.fit(*data(), batch_size=7, epochs=2, verbose=0)
    assert steps_of(model) == 2 * 4


def test_steps_per_epoch_and_initial_epoch_are_respected(model, data):
    model.fit(*data(), batch_size=7, epochs=3, initial_epoch=1, steps_per_epoch=2, verbose=0)
    assert steps_of(model) == 4


def test_validation_data_are_evaluated(model, data):
    history = model.fit(*data(), batch_size=8, validation_data=data(seed=1), verbose=0).history
    assert history["val_loss"] == [pytest.approx(model.evaluate(*data(seed=1), verbose=0))]


def test_a_delta_that_is_not_below_1_over_the_number_of_examples_warns(private, small_model, data):
    model = private(small_model(), delta=1 / 24, **NOISY)
    with pytest.warns(UserWarning, match="(?s)Expected delta below.*Received"):
        model.fit(*data(), batch_size=8, verbose=0)


def test_class_weight_equals_sample_weight(private, small_model, data, assert_same_weights):
    x, y = data()
    class_weight = {0: 0.5, 1: 2.0, 2: 1.0}
    models = []
    for weights in (
        {"class_weight": class_weight},
        {"sample_weight": np.array([class_weight[int(label)] for label in y], "float32")},
    ):
        model = private(small_model(), l2_norm_clip=1.0, noise_multiplier=0)
        model.fit(x, y, batch_size=24, epochs=2, verbose=0, **weights)
        models.append(model)
    assert_same_weights(*models)


def test_tensors_are_taken_like_arrays(model, data):
    x, y = data()
    model.fit(tf.constant(x), tf.constant(y), batch_size=8, verbose=0)
    assert steps_of(model) == 3


def test_a_new_loss_takes_effect_in_the_next_fit(private, small_model, data, same_batches):
    """Recompiling with the same optimizer object must not train on with the old loss."""
    x, _ = data()
    y = np.ones((24, 3), "float32")
    model = private(small_model(), loss="mse")
    dataset = same_batches(x, y)
    model.fit(dataset, sampling="shuffle", verbose=0)
    model.compile(model.optimizer, loss=lambda t, p: 0.0 * keras.ops.sum(p, -1), jit_compile=False)
    before = np.array(model.layers[0].kernel)
    model.fit(dataset, sampling="shuffle", verbose=0)
    np.testing.assert_array_equal(model.layers[0].kernel, before)
