"""What a model does with missing values, and with the size of its batch, is tried before training.

By how many clips a record moved the sum of a step, where these were accepted, stands beside them.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.state import ledger_of

L, N = keras.layers, 16


def is_known(values, missing):
    return ~tf.math.is_nan(values) if np.isnan(missing) else values != missing


def of_mask(values, known):
    return tf.reduce_mean(tf.boolean_mask(values, known))


def of_indices(values, known):
    return tf.reduce_mean(tf.gather(values, tf.where(known)[:, 0]))


def zero(values, known):
    return tf.zeros([])


def imputing(replacement, missing, column=2):
    def impute(x):
        values = x[:, column]
        known = is_known(values, missing)
        filled = tf.where(known, values, replacement(values, known))
        return tf.concat([x[:, :column], filled[:, None], x[:, column + 1 :]], 1)

    return keras.Sequential([keras.Input((4,)), L.Lambda(impute), L.Dense(2)])


def trim(x, padding):
    longest = tf.reduce_max(tf.reduce_sum(tf.cast(x != padding, tf.int32), 1))
    return x[:, :longest]


def mean_to_the_longest(padding):
    def features(x):
        kept = trim(x, padding)
        mean = tf.reduce_mean(tf.where(kept == padding, 0.0, kept), 1, keepdims=True)
        return mean * tf.ones([1, 4])

    return keras.Sequential([keras.Input((16,)), L.Lambda(features), L.Dense(2)])


def mean_of_known_positions(padding):
    def features(x):
        known = tf.cast(x != padding, tf.float32)
        total = tf.reduce_sum(tf.where(x == padding, 0.0, x), 1, keepdims=True)
        return total / (tf.reduce_sum(known, 1, keepdims=True) + 1.0) * tf.ones([1, 4])

    return keras.Sequential([keras.Input((16,)), L.Lambda(features), L.Dense(2)])


def tokens_to_the_longest(padding):
    ids = keras.Input((16,), dtype="int32")
    cut = L.Lambda(
        lambda x: tf.where(trim(x, padding) == padding, 0, trim(x, padding)), output_shape=(None,)
    )
    kept = cut(ids)
    return keras.Model(ids, L.Dense(2)(L.GlobalAveragePooling1D()(L.Embedding(9, 4)(kept))))


def loss_times(factor):
    def loss(y_true, y_pred):
        each = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        return each * factor(tf.shape(y_pred)[0])

    return loss


def scores():
    return keras.Sequential([keras.Input((4,)), L.Dense(2)])


def fitted(private, model, loss=None):
    own = {} if loss is None else {"loss": loss}
    private(model, noise_multiplier=1.0, **own)
    model.compile(model.optimizer, model.loss, jit_compile=False)
    generator = np.random.default_rng(0)
    shape = (N, *model.input_shape[1:])
    x = generator.normal(size=shape)
    if model.inputs[0].dtype == "int32":
        x = generator.integers(1, 9, shape)
    model.fit(x.astype(model.inputs[0].dtype), generator.integers(0, 2, N), batch_size=8, verbose=0)
    return ledger_of(model).num_steps


@pytest.mark.parametrize("missing", [np.nan, -999.0, -1.0])
@pytest.mark.parametrize("mean", [of_mask, of_indices])  # 33 and 37 clips
def test_missing_values_that_become_the_mean_of_the_batch_are_refused(private, mean, missing):
    model = imputing(mean, missing)
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, model)
    assert ledger_of(model).num_steps == 0


@pytest.mark.parametrize("missing", [np.nan, -999.0, -1.0])
def test_missing_values_that_become_a_constant_are_trained_on(private, missing):
    assert fitted(private, imputing(zero, missing)) == 2


@pytest.mark.parametrize("padding", [0.0, -1.0])
def test_a_batch_that_is_cut_to_its_longest_sequence_is_refused(private, padding):
    """223 clips."""
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, mean_to_the_longest(padding))


@pytest.mark.parametrize("padding", [0, -1])
def test_a_batch_of_ids_that_is_cut_to_its_longest_sequence_is_refused(private, padding):
    """260 clips with -1."""
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, tokens_to_the_longest(padding))


@pytest.mark.parametrize("padding", [0.0, -1.0])
def test_means_of_the_positions_that_an_example_has_are_trained_on(private, padding):
    assert fitted(private, mean_of_known_positions(padding)) == 2


@pytest.mark.parametrize(
    "factor",
    [
        lambda size: 1.0 / tf.cast(tf.maximum(size // 8, 1), tf.float32),  # 14 clips
        lambda size: 8.0 / tf.cast(tf.maximum(size, 8), tf.float32),  # 14
        lambda size: tf.where(size > 256, 1.0, 0.1),  # 231
    ],
)
def test_a_loss_that_knows_the_size_of_an_ordinary_batch_is_refused(private, factor):
    model = scores()
    with pytest.raises(tfdp.UnsupportedModelError, match="the size of its batch"):
        fitted(private, model, loss_times(factor))
    assert ledger_of(model).num_steps == 0


def test_a_loss_that_asks_for_the_size_and_does_not_use_it_is_trained(private):
    loss = loss_times(lambda size: tf.cast(size // size, tf.float32))
    assert fitted(private, scores(), loss) == 2


def places(x):
    return tf.random.shuffle(tf.range(tf.shape(x)[0]))[:, None]


@pytest.mark.parametrize("what", [tf.random.shuffle, places])
def test_rows_that_are_shuffled_behind_a_gate_of_zero_are_refused(private, what):
    """Numbers that are exchanged are not each row's own: half of the rows had a minus."""
    layer = L.Lambda(lambda x: x + 0.0 * tf.cast(what(x), x.dtype))
    model = keras.Sequential([keras.Input((4,)), layer, L.Dense(2)])
    with pytest.raises(tfdp.UnsupportedModelError, match="treat each example by itself"):
        fitted(private, model)
