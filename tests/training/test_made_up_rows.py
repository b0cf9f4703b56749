"""Made-up rows that the model accepts: look-ups without a place for what is unknown, padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.random_batch import completed, random_batch, with_known_words

L = keras.layers
N = 30
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
PICK = np.random.default_rng(0).integers(0, 3, N)
WORDS, NUMBERS, Y = np.array(["a", "b", "c"])[PICK], np.array([10, 20, 30])[PICK], PICK % 2


def strict(kind, vocabulary, dtype):
    inputs = keras.Input((1,), dtype=dtype)
    found = kind(vocabulary=vocabulary, num_oov_indices=0, output_mode="one_hot")(inputs)
    return keras.Model(inputs, L.Dense(2)(found))


def strings():
    return strict(L.StringLookup, ["a", "b", "c"], "string")


def integers():
    return strict(L.IntegerLookup, [10, 20, 30], "int64")


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize(("make", "x"), [(strings, WORDS), (integers, NUMBERS)])
def test_look_ups_without_a_place_for_the_unknown_train(make, x, method):
    model = tfdp.make_private(make(), microbatch_size=4)
    optimizer = tfdp.DPSGDOptimizer(l2_norm_clip=1.0, noise_multiplier=1.0, gradient_method=method)
    model.compile(optimizer, LOSS, metrics=["accuracy"], jit_compile=False)
    model.fit(x[:, None], Y, batch_size=7, verbose=0)
    assert tfdp.privacy_spent(model, 1e-3) > 0


def test_only_absent_rows_are_filled_and_only_where_look_ups_refuse_them():
    batch = {"x": tf.constant([["b"], [""], [""]]), "y": tf.constant([1, 0, 0])}
    filled = with_known_words(strings(), batch, tf.constant([1.0, 0.0, 0.0]))
    assert filled["x"].numpy().ravel().tolist() == [b"b", b"a", b"a"]
    assert filled["y"] is batch["y"]
    inputs = keras.Input((1,), dtype="string")
    lenient = L.StringLookup(vocabulary=["a"], output_mode="one_hot")(inputs)
    model = keras.Model(inputs, L.Dense(2)(lenient))
    assert with_known_words(model, batch, tf.zeros(3))["x"] is batch["x"]


def random_x(model, numbers="unit", **spec):
    spec = {"x": tf.TensorSpec(**spec), "y": tf.TensorSpec((None,), tf.int64)}
    return random_batch(model, spec, np.random.default_rng(0), 500, (1, 2), numbers)


def test_integers_are_those_that_the_model_reads():
    x = random_x(integers(), shape=(None, 1), dtype=tf.int64)["x"].numpy()
    assert set(x.ravel()) == {10, 20, 30}
    table = keras.Sequential([keras.Input((4,)), L.Embedding(9, 2), L.Flatten(), L.Dense(5)])
    for numbers, rows, classes in (("unit", 2, 2), ("normal", 9, 5)):
        batch = random_x(table, numbers, shape=(None, 4), dtype=tf.int32)
        assert set(batch["x"].numpy().ravel()) == set(range(rows))
        assert set(batch["y"].numpy()) == set(range(classes))
    images = keras.Sequential([keras.Input((4,)), L.Dense(1)])
    assert random_x(images, "normal", shape=(None, 4), dtype=tf.uint8)["x"].numpy().max() > 200


def test_sizes_that_the_data_do_not_tell_are_those_of_the_model():
    model = keras.Sequential([keras.Input((12,)), L.Dense(3)])
    spec = {name: tf.TensorSpec((None, None), tf.float32) for name in ("x", "y")}
    found = completed(model, spec)
    assert found["x"].shape.as_list() == [None, 12] and found["y"].shape.as_list() == [None, 3]


def test_batches_of_unknown_size_train_on_the_sizes_of_the_model():
    def batches():
        for _ in range(3):
            yield np.ones((5, 12), "float32"), np.zeros(5, "int64")

    spec = (tf.TensorSpec((None, None), tf.float32), tf.TensorSpec((None,), tf.int64))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    model = tfdp.make_private(keras.Sequential([keras.Input((12,)), L.Dense(3)]))
    optimizer = tfdp.DPSGDOptimizer(l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, LOSS, jit_compile=False)
    model.fit(dataset, sampling="shuffle", batch_size=5, steps_per_epoch=3, verbose=0)
    assert int(model.optimizer.iterations) == 3
