"""The model sees one size of batches, compiled or not, and no draw is cut to fit it."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.sampling.padding import part_rows

BATCH = 2


class Draws(tfdp.PoissonSampler):
    """A sampler whose draws are of these sizes, in turn, so that every number of parts occurs."""

    SIZES = (0, 1, 9, 3, 24, 5)

    def _draws(self):
        return map(np.arange, self.SIZES)


@pytest.fixture
def sizes_of_parts(monkeypatch):
    """The static number of rows of each part that is traced for XLA or not."""
    found, clipped_sums = [], GaussianMechanism.clipped_sums

    def recorded(mechanism, blocks, presence):
        found.append(presence.shape[0])
        return clipped_sums(mechanism, blocks, presence)

    monkeypatch.setattr(GaussianMechanism, "clipped_sums", recorded)
    return found


def trained(private, small_model, data, **arguments):
    model = private(small_model(), l2_norm_clip=0.5, noise_multiplier=0.0, **arguments)
    sampler = Draws(*data(), batch_size=BATCH, steps=len(Draws.SIZES), pad_to_multiple=1)
    history = model.fit(sampler, verbose=0)
    return model, history.history


@pytest.mark.parametrize("microbatch_size", [None, 2])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_model_sees_one_size_whatever_is_drawn(
    private, small_model, data, sizes_of_parts, microbatch_size, jit_compile
):
    """A prime of which no length of the model is a multiple; 1 where none is as small."""
    trained(private, small_model, data, jit_compile=jit_compile, microbatch_size=microbatch_size)
    sampling = Sampling.poisson(num_examples=len(data()[0]), batch_size=BATCH)
    [size] = set(sizes_of_parts)
    least = part_rows(sampling, microbatch_size)
    assert size == (1 if microbatch_size else 7) and (microbatch_size or size >= least)


def test_a_size_that_goes_into_a_condition_is_the_same_at_each_step(private, data):
    """Once 1,025 clips, where a loss left out batches that were smaller than some number."""
    seen = []

    def loss(y_true, y_pred):
        seen.append(y_pred.shape[0])
        return keras.ops.mean(keras.ops.square(y_true - y_pred), -1)

    x = data()[0]
    model = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(2)])
    private(model, "sgd", loss, noise_multiplier=0.0)
    sampler = Draws(x, np.zeros((len(x), 2)), batch_size=BATCH, steps=6, pad_to_multiple=1)
    model.fit(sampler, verbose=0)
    assert len(set(seen[-1:])) == 1 and seen[-1] is not None


@pytest.mark.parametrize("microbatch_size", [None, 2])
def test_draws_of_many_parts_train_as_whole_ones_do(
    private, small_model, data, assert_same_weights, microbatch_size
):
    """Draws of no, one and many parts; the other model takes each draw at once, uncompiled."""
    in_parts, history = trained(
        private, small_model, data, jit_compile=True, microbatch_size=microbatch_size
    )
    at_once, expected = trained(private, small_model, data, jit_compile=False)
    assert_same_weights(in_parts, at_once)
    assert history["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_batches_of_a_known_size_are_padded_to_the_next_prime(
    private, small_model, same_batches, data, sizes_of_parts
):
    model = private(small_model(), l2_norm_clip=0.5, noise_multiplier=1.0, jit_compile=True)
    model.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    assert set(sizes_of_parts) == {11}


def test_parts_of_a_compiled_step_have_masks_of_their_own(private):
    """The gradient of each of 1,000 weights counts the rows of 16 that a fair coin has kept.

    Its variance is 16 / 4; were the coins of two rows those of all eight parts, 64 * 2 / 4.
    """
    model = keras.Sequential(
        [keras.Input((1000,)), keras.layers.Dropout(0.5), keras.layers.Dense(1, use_bias=False)]
    )
    private(
        model,
        keras.optimizers.SGD(16.0),
        lambda y_true, y_pred: y_pred[:, 0],
        microbatch_size=2,
        jit_compile=True,
    )
    before = np.array(model.trainable_variables[0])
    model.fit(np.ones((16, 1000)), np.zeros((16, 1)), batch_size=16, verbose=0)
    counts = (before - np.array(model.trainable_variables[0])) / 2.0
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-3)
    assert counts.mean() == pytest.approx(8.0, abs=0.4)
    assert counts.var() == pytest.approx(4.0, abs=1.0)
