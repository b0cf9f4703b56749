"""What `fit` takes as data, and the statements about it that it refuses."""

import collections

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters.array_slicing import train_validation_split
from scipy import sparse

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.data import split_rows
from tf_lowrank_dp.training.state import ledger_of

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


def test_a_batch_size_above_the_number_of_examples_is_taken_as_that_number(model, data):
    with pytest.warns(UserWarning, match="(?s)Expected a batch_size of at most 24.*Received: 25"):
        model.fit(*data(), batch_size=25, verbose=0)
    assert steps_of(model) == 1
    assert tfdp.privacy_spent(model, 1e-3) == pytest.approx(gaussians(1), rel=1e-3)


@pytest.mark.parametrize("kind", ["records", "a sampler", "tf.data"])
def test_validation_split_is_of_arrays(model, data, kind):
    x, y = data()
    made = {
        "records": lambda: tfdp.Records((x, y)),
        "a sampler": lambda: tfdp.PoissonSampler(x, y, batch_size=6),
        "tf.data": lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(6),
    }[kind]()
    with pytest.raises(ValueError, match="(?s)Expected arrays.*Received.*validation_data="):
        model.fit(made, validation_split=0.5, verbose=0)
    stated = {"sampling": "shuffle", "batch_size": 6} if kind == "tf.data" else {}
    if kind == "records":
        stated = {"batch_size": 6}
    model.fit(made, validation_data=(x, y), steps_per_epoch=4, verbose=0, **stated)


def test_the_number_of_examples_is_that_after_validation_split(model, data):
    with pytest.warns(UserWarning, match="at most 12"):
        model.fit(*data(), validation_split=0.5, verbose=0)


def gaussians(count):
    """Epsilon of plain Gaussians of multiplier 1, by Google's accountant alone."""
    accountant = dp_accounting.pld.PLDAccountant()
    return accountant.compose(dp_accounting.GaussianDpEvent(1.0), count).get_epsilon(1e-3)


def test_a_data_set_needs_a_statement_of_how_it_was_sampled(model, data, same_batches):
    refused(model, "poisson.*shuffle", same_batches(*data()))


def test_arrays_need_no_statement(model, data):
    refused(model, "arrays", *data(), batch_size=8, sampling="shuffle")


@pytest.mark.parametrize("beside", [{"sample_weight": np.ones(24)}, {"y": np.zeros(24)}])
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
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.GaussianDpEvent(1.0), 2)
    assert tfdp.privacy_spent(model, 1e-3) == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-3)
    assert "replac" in tfdp.privacy_statement(model, 1e-3).lower()


def test_an_epoch_has_as_many_steps_as_examples_over_batch_size_rounded_up(model, data):
    model.fit(*data(), batch_size=7, epochs=2, verbose=0)
    assert steps_of(model) == 2 * 4


def test_a_fit_of_no_epochs_does_nothing(private, small_model, data):
    model = private(small_model(), epsilon=3.0, delta=1e-3)
    model.fit(*data(), batch_size=6, epochs=2, initial_epoch=2, verbose=0)
    assert ledger_of(model).num_steps == 0


def test_steps_per_epoch_and_initial_epoch_are_respected(model, data):
    model.fit(*data(), batch_size=7, epochs=3, initial_epoch=1, steps_per_epoch=2, verbose=0)
    assert steps_of(model) == 4


def test_validation_data_are_evaluated(model, data):
    history = model.fit(*data(), batch_size=8, validation_data=data(seed=1), verbose=0).history
    assert history["val_loss"] == [pytest.approx(model.evaluate(*data(seed=1), verbose=0))]


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_lists_and_dicts_are_split_as_keras_splits_them(fraction):
    x = [np.arange(22.0), {"b": np.arange(44.0).reshape(22, 2)}]
    y, weight = [np.arange(22), np.arange(22) + 1], np.arange(22.0) + 2
    expected = train_validation_split((x, y, weight), fraction)
    for part, expected_part in zip(split_rows(x, y, weight, fraction), expected, strict=True):
        for found, wanted in zip(part, expected_part, strict=True):
            found, wanted = keras.tree.flatten(found), keras.tree.flatten(wanted)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_split_without_examples_to_train_on_is_refused_as_by_keras(model, data):
    with pytest.raises(ValueError, match="sufficient"):
        train_validation_split(data(), 0.99)
    refused(model, "validation_split", *data(), validation_split=0.99)


def test_validation_of_several_inputs_and_outputs_is_that_of_keras(private, data):
    x, y = data()
    one, two = keras.Input((5,)), keras.Input((5,))
    joined = keras.layers.Concatenate()([one, two])
    outputs = [keras.layers.Dense(3)(joined), keras.layers.Dense(1)(joined)]
    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mse"]
    model = private(keras.Model([one, two], outputs), loss=losses, **NOISY)
    given = [x, -x], [y, y[:, None] * 1.0]
    history = model.fit(*given, batch_size=8, validation_data=given, verbose=0).history
    assert history["val_loss"] == [pytest.approx(model.evaluate(*given, verbose=0)[0], rel=1e-5)]


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


@pytest.mark.parametrize("one_hot", [False, True])
def test_class_weight_of_a_data_set_equals_that_of_keras(
    private, small_model, data, same_batches, assert_same_weights, one_hot
):
    x, y = data()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if one_hot:
        loss, y = keras.losses.CategoricalCrossentropy(from_logits=True), np.eye(3)[y]
    weights = {0: 0.5, 1: 2.0, 2: 3.0}
    model = private(small_model(), loss=loss)
    model.fit(same_batches(x, y), class_weight=weights, sampling="shuffle", verbose=0)
    twin = small_model()
    twin.compile("sgd", loss)
    twin.fit(same_batches(x, y), class_weight=weights, verbose=0)
    assert_same_weights(model, twin)


@pytest.mark.parametrize("form", ["csr_matrix", "coo_array", "tensor"])
def test_sparse_inputs_train_as_dense_ones(private, small_model, data, assert_same_weights, form):
    x, y = data()
    x[np.abs(x) < 0.7] = 0.0
    given = tf.sparse.from_dense(x) if form == "tensor" else getattr(sparse, form)(x)
    models = [private(small_model()) for _ in range(2)]
    for model, inputs in zip(models, (x, given), strict=True):
        model.fit(inputs, y, batch_size=24, epochs=2, verbose=0)
    assert_same_weights(*models)


def test_ragged_inputs_and_sources_by_index_are_refused_with_a_remedy_that_works(model, data):
    x, y = data()
    ragged = tf.RaggedTensor.from_tensor(x)
    refused(model, r"to_tensor\(shape=", ragged, y, batch_size=8)
    model.fit(ragged.to_tensor(shape=(None, 5)), y, batch_size=8, verbose=0)
    source = collections.UserList(list(zip(x, y, strict=True)))
    with pytest.raises(ValueError, match="(?s)Expected arrays.*Received.*tfdp.Records"):
        model.fit(source, verbose=0)
    model.fit(tfdp.Records(source), batch_size=8, verbose=0)
    assert steps_of(model) == 6


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
